"""What the work on one unit uses: Spark, the table's files, memory and cores, scratch space, and a way to cancel it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pyiceberg.io import FileIO

from workers.runtime.errors import Stopped
from workers.runtime.machine import Budget

if TYPE_CHECKING:  # what a unit does in this process alone needs no Spark, and does not wait for its import
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

#: A session, or what makes one.
SessionSource: TypeAlias = "SparkSession | Callable[[], SparkSession]"


class Cancellation(threading.Event):
    """An event that is set when a unit's work is no longer wanted.

    A Spark task gets a copy that is never set: Spark ends its tasks itself.
    """

    def __reduce__(self) -> tuple[type[Cancellation], tuple[()]]:
        return Cancellation, ()

    def check(self) -> None:
        """Raise :class:`Stopped` if the work is cancelled."""
        if self.is_set():
            raise Stopped

    def until_set(self, values: Iterable[T]) -> Iterator[T]:
        """Yield the same values, and raise :class:`Stopped` once the work is cancelled."""
        for value in values:
            self.check()
            yield value


class LazySession:
    """The Spark session of a unit, started when something first asks it for tasks.

    Args:
        source: The session of the unit's budget, or what makes it: called once, by the thread that first asks for
            tasks.
        alone: Whether this process does the work of tasks, one after another.
    """

    def __init__(self, source: SessionSource, *, alone: bool = False) -> None:
        self.alone = alone
        self._source = source
        self._spark: SparkSession | None = None
        self._group = ""

    def begin(self, group: str) -> None:
        """Name the job group of all later tasks."""
        self._group = group

    def range(self, parts: int, cancellation: Cancellation) -> DataFrame:
        """Return a frame of the numbers below ``parts``, one in each part; start the session if there is none.

        Raises:
            NoJava: There is no Java that Spark can run on.
            Stopped: The work is cancelled.
        """
        cancellation.check()
        if self._spark is None:
            spark = self._source() if callable(self._source) else self._source
            if self._group:
                spark.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
            self._spark = spark
            cancellation.check()
        return self._spark.range(0, parts, 1, parts)

    def cancel(self) -> None:
        """Cancel the jobs of the group, if the session was asked for any."""
        if self._spark is not None:
            self._spark.sparkContext.cancelJobGroup(self._group)

    def __reduce__(self) -> tuple[type[LazySession], tuple[SessionSource]]:
        return LazySession, (_no_session,)


@dataclass(frozen=True, slots=True)
class UnitContext:
    """What the work on one unit uses. A copy in a Spark task has no session and is never cancelled."""

    session: LazySession
    io: FileIO
    budget: Budget
    #: A folder that is deleted after the unit.
    scratch: Path
    cancellation: Cancellation


def _no_session() -> SparkSession:
    raise RuntimeError("a Spark task has no session")
