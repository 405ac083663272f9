"""What a workload is made of: cases, and in each the entries that are measured side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from bench.data import Master, Recipe
from bench.place import Placed
from bench.sizes import Size
from tasks.testing.reader import Checksum

#: What is asked, besides the tables' names; or what makes it from the tables of a run.
Ask: TypeAlias = Mapping[str, Any] | Callable[[Placed], Mapping[str, Any]]
#: Looks at a run that has ended, with the facts of its answer: what is wrong with it, or None.
Check: TypeAlias = Callable[[Placed, Mapping[str, Any]], str | None]


class Stream(Protocol):
    """What goes on in the tables while contestants work on them."""

    def truths(self) -> Sequence[Checksum]:
        """Of each table, once the stream has ended."""

    def told(self, facts: Mapping[str, Any]) -> str:
        """What is worth telling of a run with these facts, as a sentence."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One contestant in one case."""

    #: A program of the roster.
    program: str
    #: What the report calls it; the program's name by default. No two of a case are called the same.
    label: str = ""
    ask: Ask
    #: Of its JVM, where it has one.
    heap_mb: int = 512
    #: Whether it has to commit to each table; yardsticks leave them as they are.
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
        """What the report calls it."""
        return self.label or self.program


@dataclass(frozen=True, kw_only=True)
class Case:
    """Tables, and who works on them. Ratios are to the first entry."""

    name: str
    title: str
    #: Name of the master, which tells all that the recipe depends on.
    master: str
    recipe: Recipe
    entries: Sequence[Entry]
    #: Bytes that were to be dealt with, which write amplification is reckoned from; delete files' by default.
    changed_bytes: Callable[[Master], int] = lambda master: master.files.delete_bytes
    #: Asked of the first table before and after; ``{table}`` stands for it.
    query: str | None = None
    cores: int = 2
    #: Entries take turns run by run, so that noise hits all alike; otherwise one ends before the next starts.
    together: bool = True
    #: Of entries of one program that do the same, those after one that finished are left out: they differ by heap.
    stop_at_success: bool = False
    #: What goes on meanwhile.
    stream: Callable[[Placed], AbstractContextManager[Stream]] | None = None


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Cases that stand for one thing that users have."""

    name: str
    title: str
    about: str
    cases: Callable[[Size], Sequence[Case]]
    #: How it is drawn: ``bars`` of time and memory, ``lines`` by the cases' numbers, ``heap`` by outcome.
    plot: str = "bars"
