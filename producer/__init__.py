"""What applications import to maintain Iceberg tables: :class:`Fleet` enqueues jobs, :class:`Job` follows one.

Nothing here needs Spark, or imports the packages ``tasks`` and ``workers``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producer.common.errors import Conflict, Corrupt, Failed, IcefleetError, Refused
    from producer.common.settings import Settings
    from producer.fleet import Fleet
    from producer.job import Job, JobInterrupted
    from producer.model.job import Report, Status

__all__ = [
    "Conflict",
    "Corrupt",
    "Failed",
    "Fleet",
    "IcefleetError",
    "Job",
    "JobInterrupted",
    "Refused",
    "Report",
    "Settings",
    "Status",
]

_MODULES = {
    **dict.fromkeys(("Conflict", "Corrupt", "Failed", "IcefleetError", "Refused"), "producer.common.errors"),
    "Fleet": "producer.fleet",
    **dict.fromkeys(("Job", "JobInterrupted"), "producer.job"),
    **dict.fromkeys(("Report", "Status"), "producer.model.job"),
    "Settings": "producer.common.settings",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: enqueueing must not wait for what only planning needs."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
