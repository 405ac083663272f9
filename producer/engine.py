"""The way from a producer to an engine in its own process, without importing one.

What this package must not import registers itself as an entry point: an application that only enqueues needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

from icefleet_main import hidden
from producer.common.errors import Reason, Refused
from producer.common.settings import Settings
from producer.model.job import Report, Request

#: Called with units done, units in all, and a word on what is being done.
ProgressCallback = Callable[[int, int, str], None]


class Engine(Protocol):
    """Runs whole jobs in the calling process."""

    def run(self, request: Request, on_progress: ProgressCallback | None = None) -> Report:
        """Run a job to its end."""
        ...


def local_engine(settings: Settings) -> Engine:
    """The engine of this process.

    Raises:
        Refused: it is not installed here, or modules of the same names hide it.
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
