"""What a workload is made of: cases, and in each the entries that are measured side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from bench.catalog import RunTables
from bench.data import Master, Recipe
from bench.place import Where
from bench.sizes import Size
from tasks.testing.reader import Checksum

#: What is asked, besides the tables' names; or what makes it from the tables of a run.
Ask: TypeAlias = Mapping[str, Any] | Callable[[RunTables], Mapping[str, Any]]
#: Looks at a run that has ended, with the facts of its answer: what is wrong with it, or None.
Check: TypeAlias = Callable[[RunTables, Mapping[str, Any]], str | None]


class Stream(Protocol):
    """A writer that commits to the tables while contestants work on them."""

    def truths(self) -> Sequence[Checksum]:
        """Return the expected checksum of each table, once the stream has ended."""

    def summary(self, facts: Mapping[str, Any]) -> str:
        """Return a summary of a run with these facts, as a sentence."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One contestant in one case."""

    #: The name of a program in :data:`bench.programs.PROGRAMS`.
    program: str
    #: Its name in the report; the program's name by default. Unique within a case.
    label: str = ""
    ask: Ask
    #: Where the tables are that it works on.
    where: Where = Where.DISK
    #: Of its JVM, where it has one.
    heap_mb: int = 512
    #: Whether it must commit to each table; yardsticks do not.
    commits: bool = True
    #: Facts that its answer must have.
    expect: Mapping[str, Any] = field(default_factory=dict)
    #: At most so many files of a kind, by the names of :class:`bench.files.Files`, may be left.
    leaves: Mapping[str, int] = field(default_factory=dict)
    check: Check | None = None
    #: Seconds for one run.
    limit: float = 900.0
    #: Runs and warm-ups, where the size's are too many.
    runs: int | None = None
    warmups: int | None = None
    #: More of the command line, and of the environment.
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in the report."""
        return self.label or self.program


@dataclass(frozen=True, kw_only=True)
class Case:
    """Tables, and the contestants that work on them. Ratios are to the first entry."""

    name: str
    title: str
    #: Name of the master, which tells all that the recipe depends on.
    master: str
    recipe: Recipe
    entries: Sequence[Entry]
    #: Bytes of changes, by which write amplification is computed; by default those of the delete files.
    changed_bytes: Callable[[Master], int] = lambda master: master.files.delete_bytes
    #: Asked of the first table before and after; ``{table}`` stands for it.
    query: str | None = None
    cores: int = 2
    #: Entries take turns run by run, so that noise hits all alike; otherwise one ends before the next starts.
    together: bool = True
    #: Of entries of one program that do the same, those after one that finished are left out: they differ by heap.
    stop_at_success: bool = False
    #: A writer that commits meanwhile.
    stream: Callable[[RunTables], AbstractContextManager[Stream]] | None = None


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Cases that stand for one thing that users have."""

    name: str
    title: str
    about: str
    cases: Callable[[Size], Sequence[Case]]
    #: How it is drawn: ``bars`` of time and memory, ``lines`` by the cases' numbers, ``heap`` by outcome.
    plot: str = "bars"
