"""The engine that runs jobs in the calling process, found as an entry point.

This package must not import the engine: an application that only enqueues needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

from icefleet_main import hidden
from producer.common.errors import Reason, Refused
from producer.common.settings import Settings
from producer.model.job import Report, Request

#: Called with the units that are done, all units, and a few words on the current work.
ProgressCallback = Callable[[int, int, str], None]


class Engine(Protocol):
    """Runs whole jobs in the calling process."""

    def run(self, request: Request, on_progress: ProgressCallback | None = None) -> Report:
        """Run a job to its end and return its report."""
        ...


def local_engine(settings: Settings) -> Engine:
    """Return the engine of this process.

    Raises:
        Refused: It is not installed here, or modules of the same names hide it.
    """
    if (sentence := hidden("tasks", "workers")) is not None:
        raise Refused(Reason.CONFIGURATION, f"No broker is set, and no worker can be found here: {sentence}")
    found = entry_points(group="icefleet.engines", name="local")
    try:
        make: Callable[[Settings], Engine] = next(iter(found)).load()
    except (StopIteration, ModuleNotFoundError) as error:
        missing = f" ({error.name} is missing)" if isinstance(error, ModuleNotFoundError) else ""
        raise Refused(
            Reason.CONFIGURATION,
            f"No broker is set and no worker is installed here{missing}: set ICEFLEET_BROKER_URL, or install "
            "icefleet[worker].",
        ) from error
    return make(settings)
