"""The contestants that run, each with a catalog and a scratch folder of its own."""

from __future__ import annotations

import itertools
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from bench.case import Case, Entry
from bench.catalog import RunCatalog
from bench.contestant import Contestant
from bench.place import Places, Where
from bench.programs import PROGRAMS, Absent, Start

#: What makes two contestants the same: program, place, heap, cores, arguments, environment.
_Key: TypeAlias = tuple[str, Where, int, int, tuple[str, ...], tuple[tuple[str, str], ...]]
_READER_HEAP_MB: Final = 4096
_READER_CORES: Final = 2


@dataclass(frozen=True, slots=True)
class RunningContestant:
    """A contestant that runs, and its catalog."""

    contestant: Contestant
    catalog: RunCatalog
    scratch: Path


class ContestantPool:
    """Starts contestants when they are needed, and ends them.

    Args:
        data: The folder that holds all that is made for runs.
        fetch: Whether to fetch peers that are not there.
    """

    def __init__(self, data: Path, *, fetch: bool = False) -> None:
        self._data = data.absolute()
        self._fetch = fetch
        self.places = Places(data)
        self._absent: dict[str, Absent] = {}
        self._pool: dict[_Key, RunningContestant] = {}
        self._readers: dict[str, RunningContestant] = {}
        self._numbers = itertools.count(1)
        #: The versions that programs reported.
        self.versions: dict[str, str] = {}
        for name in ("catalogs", "scratch"):  # of a bench that was killed
            shutil.rmtree(self._data / name, ignore_errors=True)

    def get(self, entry: Entry, case: Case) -> RunningContestant:
        """Return the contestant of an entry; start it if it does not run yet.

        Raises:
            Absent: it cannot be had here.
            Failed: it did not start.
        """
        key = _key(entry, case)
        if key not in self._pool:
            self._pool[key] = self._start(entry, case.cores)
        return self._pool[key]

    def reader(self, name: str) -> RunningContestant:
        """Return a program that only reads, with a large heap; it is never the process of a contestant.

        Raises:
            Absent: it cannot be had here.
            Failed: it did not start.
        """
        if name not in self._readers:
            self._readers[name] = self._start(Entry(program=name, ask={}, heap_mb=_READER_HEAP_MB), _READER_CORES)
        return self._readers[name]

    def stop(self, entry: Entry, case: Case, *, kill: bool = False) -> None:
        """Stop the contestant of an entry, if it runs."""
        _end(self._pool.pop(_key(entry, case), None), kill=kill)

    def stop_reader(self, name: str) -> None:
        """Kill a reader."""
        _end(self._readers.pop(name, None), kill=True)

    def close(self) -> None:
        """Stop all contestants and readers, and the object store."""
        for running in (*self._pool.values(), *self._readers.values()):
            _end(running, kill=False)
        self.places.close()
        for name in ("catalogs", "scratch"):
            with suppress(OSError):
                (self._data / name).rmdir()

    def _start(self, entry: Entry, cores: int) -> RunningContestant:
        if entry.program in self._absent:  # and not tried again
            raise self._absent[entry.program]
        program = PROGRAMS[entry.program]
        place = self.places.get(entry.where)
        name = f"{program.name}-{next(self._numbers)}"
        scratch = self._data / "scratch" / name
        scratch.mkdir(parents=True)
        catalog = RunCatalog(self._data / "catalogs" / name, place)
        try:
            start = Start(
                data=self._data,
                catalog=catalog,
                scratch=scratch,
                cores=cores,
                heap_mb=entry.heap_mb,
                arguments=entry.arguments,
                fetch=self._fetch,
            )
            command, environment = program.launch(start)
            log = self._data / "logs" / f"{name}.log"
            contestant = Contestant(command, {**environment, **entry.environment}, cores=cores, log=log)
        except BaseException as error:
            if isinstance(error, Absent):
                self._absent[program.name] = error
            catalog.close()
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        self.versions |= contestant.versions
        return RunningContestant(contestant, catalog, scratch)


def _end(running: RunningContestant | None, *, kill: bool) -> None:
    if running is not None:
        (running.contestant.kill if kill else running.contestant.close)()
        running.catalog.close()
        shutil.rmtree(running.scratch, ignore_errors=True)


def _key(entry: Entry, case: Case) -> _Key:
    environment = tuple(sorted(entry.environment.items()))
    return (entry.program, entry.where, entry.heap_mb, case.cores, entry.arguments, environment)
