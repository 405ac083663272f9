"""The Spark session as one unit's work sees it: started when something first asks it for tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from workers.runtime.errors import Stopped

if TYPE_CHECKING:  # what a unit does in this process alone needs no Spark, and does not wait for its import
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

#: A session, or what makes one.
Source: TypeAlias = "SparkSession | Callable[[], SparkSession]"


class Stop(Protocol):
    """Says whether nobody waits for the work any more."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...


class LazySession:
    """What runs a unit's tasks.

    Args:
        source: The session of this budget, or what makes it: called once, by the thread that first asks for tasks.
        alone: Whether this process does what tasks would do, one after another.
    """

    def __init__(self, source: Source, *, alone: bool = False) -> None:
        self.alone = alone
        self._source = source
        self._spark: SparkSession | None = None
        self._group = ""
        self._stop: Stop | None = None

    def begin(self, group: str, stop: Stop) -> None:
        """Name the job group that tasks belong to from now on, and what says that nobody waits for them any more."""
        self._group, self._stop = group, stop

    def range(self, start: int, end: int, step: int, parts: int) -> DataFrame:
        """Numbers, each part of which a task gets; the session is started if it is not there yet.

        Raises:
            NoJava: there is no Java that Spark can run on.
            Stopped: nobody waits for the work any more.
        """
        self.check()
        if self._spark is None:
            spark = self._source() if callable(self._source) else self._source
            if self._group:
                spark.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
            self._spark = spark
            self.check()
        return self._spark.range(start, end, step, parts)

    def cancel(self) -> None:
        """Cancel the jobs of the group, if the session has been asked for any."""
        if self._spark is not None:
            self._spark.sparkContext.cancelJobGroup(self._group)

    def check(self) -> None:
        """Raise :class:`Stopped` when nobody waits for the work any more."""
        if self._stop is not None and self._stop.is_set():
            raise Stopped

    def until_stopped(self, values: Iterable[T]) -> Iterator[T]:
        """The same values, until nobody waits for the work any more: then :class:`Stopped` is raised."""
        return _until(self._stop, values)

    def in_task(self) -> Callable[[Iterable[T]], Iterator[T]]:
        """What does the same within a task, also in one that is sent to Spark, which ends its tasks by itself."""
        return partial(_until, self._stop)


def _until(stop: Stop | None, values: Iterable[T]) -> Iterator[T]:
    for value in values:
        if stop is not None and stop.is_set():
            raise Stopped
        yield value
