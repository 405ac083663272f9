"""Contestants that are started, each with a catalog and a scratch folder of its own."""

from __future__ import annotations

import itertools
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from bench.case import Case, Entry
from bench.contestant import Contestant
from bench.place import Place
from bench.roster import PROGRAMS, Absent, Start

#: What makes two contestants the same: program, heap, cores, arguments, environment.
_Key: TypeAlias = tuple[str, int, int, tuple[str, ...], tuple[tuple[str, str], ...]]
_READER_HEAP_MB: Final = 4096
_READER_CORES: Final = 2


@dataclass(frozen=True, slots=True)
class Seat:
    """A contestant that runs, and where it finds its tables."""

    contestant: Contestant
    place: Place
    scratch: Path


class Seats:
    """Starts contestants when they are needed, and ends them.

    Args:
        data: The folder that holds all that is made for runs.
        fetch: Whether to fetch peers that are not there.
    """

    def __init__(self, data: Path, *, fetch: bool = False) -> None:
        self._data = data.absolute()
        self._fetch = fetch
        self._absent: dict[str, Absent] = {}
        self._seats: dict[_Key, Seat] = {}
        self._readers: dict[str, Seat] = {}
        self._numbers = itertools.count(1)
        #: Versions that programs said they are of.
        self.versions: dict[str, str] = {}
        for name in ("places", "scratch"):  # of a bench that was killed
            shutil.rmtree(self._data / name, ignore_errors=True)

    def take(self, entry: Entry, case: Case) -> Seat:
        """The contestant of an entry; started if it does not run yet.

        Raises:
            Absent: it cannot be had here.
            Failed: it did not start.
        """
        key = _key(entry, case)
        if key not in self._seats:
            self._seats[key] = self._start(entry, case.cores)
        return self._seats[key]

    def reader(self, name: str) -> Seat:
        """A program that only reads, with a heap that is ample: never the process of a contestant.

        Raises:
            Absent: it cannot be had here.
            Failed: it did not start.
        """
        if name not in self._readers:
            self._readers[name] = self._start(Entry(program=name, ask={}, heap_mb=_READER_HEAP_MB), _READER_CORES)
        return self._readers[name]

    def leave(self, entry: Entry, case: Case, *, kill: bool = False) -> None:
        """End the contestant of an entry, if it runs."""
        _end(self._seats.pop(_key(entry, case), None), kill=kill)

    def leave_reader(self, name: str) -> None:
        """End a reader at once."""
        _end(self._readers.pop(name, None), kill=True)

    def close(self) -> None:
        """End all."""
        for seat in (*self._seats.values(), *self._readers.values()):
            _end(seat, kill=False)
        for name in ("places", "scratch"):
            with suppress(OSError):
                (self._data / name).rmdir()

    def _start(self, entry: Entry, cores: int) -> Seat:
        if entry.program in self._absent:  # and not tried again
            raise self._absent[entry.program]
        program = PROGRAMS[entry.program]
        name = f"{program.name}-{next(self._numbers)}"
        scratch = self._data / "scratch" / name
        scratch.mkdir(parents=True)
        place = Place(self._data / "places" / name)
        try:
            start = Start(
                data=self._data,
                place=place,
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
            place.close()
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        self.versions |= contestant.versions
        return Seat(contestant, place, scratch)


def _end(seat: Seat | None, *, kill: bool) -> None:
    if seat is not None:
        (seat.contestant.kill if kill else seat.contestant.close)()
        seat.place.close()
        shutil.rmtree(seat.scratch, ignore_errors=True)


def _key(entry: Entry, case: Case) -> _Key:
    environment = tuple(sorted(entry.environment.items()))
    return (entry.program, entry.heap_mb, case.cores, entry.arguments, environment)
