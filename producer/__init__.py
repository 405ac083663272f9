"""What other applications import to have Iceberg tables maintained: :class:`Fleet` enqueues, :class:`Job` follows.

Nothing here needs Spark, and nothing here imports the packages ``tasks`` or ``workers``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producer.common.errors import Conflict, Corrupt, Failed, IcefleetError, Refused
    from producer.common.settings import Settings
    from producer.fleet import Fleet
    from producer.job import Job
    from producer.model.job import Report, Status

__all__ = ["Conflict", "Corrupt", "Failed", "Fleet", "IcefleetError", "Job", "Refused", "Report", "Settings", "Status"]

_HOMES = {
    **dict.fromkeys(("Conflict", "Corrupt", "Failed", "IcefleetError", "Refused"), "producer.common.errors"),
    "Fleet": "producer.fleet",
    "Job": "producer.job",
    **dict.fromkeys(("Report", "Status"), "producer.model.job"),
    "Settings": "producer.common.settings",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: enqueueing must not wait for what only planning needs."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
