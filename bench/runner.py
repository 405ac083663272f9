"""The judge: has contestants work on the same tables in turns, and looks at what they leave."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.case import Case, Entry, Workload
from bench.contestant import Answer, Failed, Late
from bench.data import Master, master
from bench.machine import machine, versions
from bench.place import NAME, Placed
from bench.results import CaseResult, Contest, Outcome, Run, WorkloadResult
from bench.roster import PROGRAMS, Absent
from bench.seats import Seat, Seats
from bench.sizes import Size
from bench.truth import READER, difference, shortfall
from tasks.testing.reader import Checksum

#: Who is asked the queries; the first that can be had.
_READERS = ("iceberg-spark", READER)
#: Runs that a contestant has in any case, however slow it is.
_FEWEST = 3


@dataclass
class _Turn:
    """An entry while its case runs."""

    entry: Entry
    does: str = ""
    runs: list[Run] = field(default_factory=list)
    outcome: Outcome = Outcome.RAN
    reason: str | None = None
    query_seconds: float | None = None
    #: Seconds of all runs, those for warming up included.
    spent: float = 0.0

    def result(self) -> Contest:
        entry = self.entry
        heap = entry.heap_mb if PROGRAMS[entry.program].jvm else 0
        return Contest(
            entry.name,
            entry.program,
            self.outcome,
            self.reason,
            tuple(self.runs),
            self.does,
            heap,
            self.query_seconds,
        )


class Judge:
    """Measures workloads.

    Args:
        data: Folder of masters, places, logs; kept.
        size: How large, how often.
        say: Told what is going on, a line at a time.
        only: Names of the programs that take part; all when empty.
        fetch: Whether to fetch peers that are not there.
        patience: A contestant that has worked for so many seconds in a case has three runs that count, and no more.
    """

    def __init__(
        self,
        data: Path,
        size: Size,
        say: Callable[[str], None],
        *,
        only: Sequence[str] = (),
        fetch: bool = False,
        patience: float = math.inf,
    ) -> None:
        self._data = data
        self._size = size
        self._say = say
        self._only = frozenset(only)
        self._patience = patience
        self._seats = Seats(data, fetch=fetch)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *error: object) -> None:
        self._seats.close()

    def measure(self, workload: Workload) -> WorkloadResult:
        """Run all cases of a workload."""
        began, started = datetime.now(UTC), time.perf_counter()
        cases = tuple(self._case(workload, case) for case in workload.cases(self._size))
        return WorkloadResult(
            workload.name,
            self._size.name,
            began.isoformat(timespec="seconds"),
            time.perf_counter() - started,
            machine(),
            {**versions(), **self._seats.versions},
            cases,
        )

    def _case(self, workload: Workload, case: Case) -> CaseResult:
        self._say(f"[bold]{workload.name}, {case.name}[/bold]: {case.title}")
        made = master(self._data, case.master, case.recipe)
        turns = [_Turn(entry, _does(entry)) for entry in case.entries if not self._only or entry.program in self._only]
        reader, before = self._ask_before(case, made)
        if case.together:
            self._rounds(turns, case, made, reader)
        else:
            for turn in list(turns):
                if case.stop_at_success and any(_finished(other) and _alike(other, turn) for other in turns):
                    turns.remove(turn)
                    continue
                self._rounds([turn], case, made, reader)
                self._release([turn], case)
        self._release(turns, case)
        return CaseResult(
            case.name,
            case.title,
            case.cores,
            case.changed_bytes(made),
            len(made.tables),
            sum(table.truth.rows for table in made.tables),
            made.files,
            tuple(turn.result() for turn in turns),
            case.query,
            reader,
            before,
        )

    def _release(self, turns: Sequence[_Turn], case: Case) -> None:
        if not self._size.keep:
            for turn in turns:
                self._seats.leave(turn.entry, case)

    def _rounds(self, turns: Sequence[_Turn], case: Case, made: Master, reader: str | None) -> None:
        for turn in turns:
            turn.outcome, turn.reason = self._seated(turn.entry, case)
        warmups = {id(turn): _or(turn.entry.warmups, self._size.warmups) for turn in turns}
        totals = {id(turn): warmups[id(turn)] + _or(turn.entry.runs, self._size.runs) for turn in turns}
        for number in range(max(totals.values(), default=0)):
            shift = number % len(turns)
            for turn in (*turns[shift:], *turns[:shift]):  # nobody is always the first, or always behind the same
                if turn.outcome is Outcome.RAN and number < totals[id(turn)] and not self._enough(turn):
                    counts = number >= warmups[id(turn)]
                    last = reader is not None and turn.query_seconds is None and number >= totals[id(turn)] - _FEWEST
                    self._run(turn, case, made, reader if last else None, counts=counts)

    def _enough(self, turn: _Turn) -> bool:
        return turn.spent >= self._patience and len(turn.runs) >= _FEWEST

    def _seated(self, entry: Entry, case: Case) -> tuple[Outcome, str | None]:
        """Whether an entry can begin."""
        try:
            self._seats.take(entry, case)
        except Absent as absent:
            self._say(f"  {entry.name}: absent, {absent}")
            return Outcome.ABSENT, str(absent)
        except Failed as error:
            self._say(f"  {entry.name}: did not start, {error}")
            return Outcome.FAILED, f"did not start: {error}"
        return Outcome.RAN, None

    def _run(self, turn: _Turn, case: Case, made: Master, reader: str | None, *, counts: bool) -> None:
        entry = turn.entry
        try:
            seat = self._seats.take(entry, case)
            with seat.place.put(made) as placed:
                run = self._measured(seat, turn, case, placed)
                turn.spent += run.seconds
                if counts:
                    turn.runs.append(run)
                elif run.difference:
                    turn.runs.append(run)  # a warm-up that is wrong is wrong too
                if reader is not None:
                    turn.query_seconds = self._query(reader, case, placed.tables()[0].metadata_location)
        except (Failed, Absent) as error:
            turn.outcome, turn.reason = Outcome.LATE if isinstance(error, Late) else Outcome.FAILED, str(error)
            self._seats.leave(entry, case, kill=True)
            self._say(f"  {entry.name}: {turn.outcome}, {error}")
            return
        wrong = f", [red]wrong: {run.difference}[/red]" if run.difference else ""
        peak = f"{run.peak_bytes / 1e6:,.0f} MB"
        self._say(f"  {entry.name}: {run.seconds:.2f} s, {peak}{'' if counts else ' (warm-up)'}{wrong}")

    def _measured(self, seat: Seat, turn: _Turn, case: Case, placed: Placed) -> Run:
        """One run, and what it left; the tables are looked at when its time has been taken.

        Raises:
            Failed: it did not do what it was asked for.
        """
        entry = turn.entry
        asked = entry.ask(placed) if callable(entry.ask) else entry.ask
        turn.does = asked["do"]
        request = {
            **asked,
            "catalog": {"name": NAME, "uri": seat.place.uri, "warehouse": seat.place.warehouse},
            "table": placed.names[0],
            "tables": placed.names,
            "metadata_locations": [table.metadata_location for table in placed.master.tables],
            "output": f"file://{placed.output}",
        }
        truths: Sequence[Checksum] = [table.truth for table in placed.master.tables]
        with case.stream(placed) if case.stream else nullcontext() as stream:
            answer: Answer = seat.contestant.ask(request, entry.limit)
        facts, taken = dict(answer.facts), answer.taken
        if stream is not None:
            truths = stream.truths()
            facts["told"] = stream.told(facts)
            self._say(f"  {entry.name}: {facts['told']}")
        missing = shortfall(placed, entry, facts)
        if missing is not None:
            raise Failed(missing)
        wrong = difference(self._seats, placed, truths) if entry.commits else None
        return Run(
            taken.seconds,
            taken.cpu_seconds,
            taken.peak_bytes,
            taken.read_bytes,
            taken.written_bytes,
            placed.added_bytes(),
            placed.files(),
            facts,
            wrong,
        )

    def _ask_before(self, case: Case, made: Master) -> tuple[str | None, float | None]:
        """Who is asked the case's query, and what it takes before anybody has worked on the table."""
        if case.query is None or not self._size.queries:
            return None, None
        for name in _READERS:
            try:
                self._seats.reader(name)
            except (Absent, Failed):
                continue
            return name, self._query(name, case, made.tables[0].metadata_location)
        return None, None

    def _query(self, reader: str, case: Case, metadata_location: str) -> float | None:
        """Median seconds of the case's query; None when it was stopped or failed."""
        times = []
        try:
            seat = self._seats.reader(reader)
            table = seat.place.register(metadata_location)
            request = {"do": "query", "table": table, "metadata_location": metadata_location, "sql": case.query}
            for _ in range(self._size.queries):
                times.append(float(seat.contestant.ask(request, self._size.query_seconds).facts["seconds"]))
        except (Failed, Absent) as error:
            self._say(f"  {reader}: {error}")
            self._seats.leave_reader(reader)
            return None
        seat.place.catalog.drop_table(table)
        return median(times)


def failures(result: WorkloadResult) -> list[str]:
    """Why a result is not to be trusted: rows that differ, or Icefleet not doing its work; as sentences."""
    broken = [
        f"{result.workload}, {case.name}, {contest.name}: {contest.outcome}, {contest.reason}"
        for case in result.cases
        for contest in case.contests
        if PROGRAMS[contest.program].ours and contest.outcome is not Outcome.RAN
    ]
    return [*result.wrong, *broken]


def _finished(turn: _Turn) -> bool:
    return turn.outcome is Outcome.RAN and bool(turn.runs)


def _alike(one: _Turn, other: _Turn) -> bool:
    return (one.entry.program, one.does) == (other.entry.program, other.does)


def _does(entry: Entry) -> str:
    """What an entry will be asked, as far as that is known before it starts."""
    return "" if callable(entry.ask) else str(entry.ask["do"])


def _or(chosen: int | None, usual: int) -> int:
    return usual if chosen is None else min(chosen, usual)
