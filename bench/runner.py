"""The runner: contestants work on the same tables in turns, and their results are checked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.case import Case, Entry, Workload
from bench.catalog import NAME, RunTables
from bench.contestant import Answer, Failed, TimedOut
from bench.data import Master, master
from bench.machine import machine, versions
from bench.place import Where
from bench.pool import ContestantPool, RunningContestant
from bench.programs import PROGRAMS, Absent
from bench.results import CaseResult, Contest, Outcome, Run, WorkloadResult
from bench.sizes import Size
from bench.truth import READER, difference, shortfall
from tasks.testing.reader import Checksum

#: Readers that run the queries; the first that is available.
_READERS = ("iceberg-spark", READER)
#: Runs that a contestant has in any case, however slow it is.
_FEWEST = 3


@dataclass
class _Turn:
    """An entry while its case runs."""

    entry: Entry
    #: None if the place of its tables cannot be had here.
    master: Master | None
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


class Runner:
    """Measures workloads.

    Args:
        data: Folder of masters, catalogs and logs.
        size: How large the tables are, and how often each contestant runs.
        say: Called with each line of progress.
        only: Names of the programs that take part; all if empty.
        fetch: Whether to fetch peers that are not installed.
        patience: Seconds of work in a case after which a contestant has no more than three runs that count.
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
        self._size = size
        self._say = say
        self._only = frozenset(only)
        self._patience = patience
        self._pool = ContestantPool(data, fetch=fetch)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.close()

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
            {**versions(), **self._pool.versions},
            cases,
        )

    def _case(self, workload: Workload, case: Case) -> CaseResult:
        self._say(f"[bold]{workload.name}, {case.name}[/bold]: {case.title}")
        masters = self._masters(case)
        master_tables = masters[Where.DISK]
        turns = [
            _Turn(entry, masters.get(entry.where), _does(entry))
            for entry in case.entries
            if not self._only or entry.program in self._only
        ]
        reader, before = self._query_before(case, master_tables)
        if case.together:
            self._rounds(turns, case, reader)
        else:
            for turn in list(turns):
                if case.stop_at_success and any(_finished(other) and _alike(other, turn) for other in turns):
                    turns.remove(turn)
                    continue
                self._rounds([turn], case, reader)
                self._release([turn], case)
        self._release(turns, case)
        return CaseResult(
            case.name,
            case.title,
            case.cores,
            case.changed_bytes(master_tables),
            len(master_tables.tables),
            sum(table.truth.rows for table in master_tables.tables),
            master_tables.files,
            tuple(turn.result() for turn in turns),
            case.query,
            reader,
            before,
        )

    def _masters(self, case: Case) -> dict[Where, Master]:
        """Return the master of a case on the disk, and in each other place that entries work in and that can be had."""
        masters = {}
        for where in {Where.DISK: None} | {entry.where: None for entry in case.entries}:
            with suppress(Absent):  # contestants say why when they are started
                masters[where] = master(self._pool.places.get(where), case.master, case.recipe)
        return masters

    def _release(self, turns: Sequence[_Turn], case: Case) -> None:
        if not self._size.keep:
            for turn in turns:
                self._pool.stop(turn.entry, case)

    def _rounds(self, turns: Sequence[_Turn], case: Case, reader: str | None) -> None:
        for turn in turns:
            turn.outcome, turn.reason = self._start(turn.entry, case)
        warmups = {id(turn): _or(turn.entry.warmups, self._size.warmups) for turn in turns}
        totals = {id(turn): warmups[id(turn)] + _or(turn.entry.runs, self._size.runs) for turn in turns}
        for number in range(max(totals.values(), default=0)):
            shift = number % len(turns)
            for turn in (*turns[shift:], *turns[:shift]):  # none is always the first, or always behind the same one
                if turn.outcome is Outcome.RAN and number < totals[id(turn)] and not self._enough(turn):
                    counts = number >= warmups[id(turn)]
                    last = reader is not None and turn.query_seconds is None and number >= totals[id(turn)] - _FEWEST
                    self._run(turn, case, reader if last else None, counts=counts)

    def _enough(self, turn: _Turn) -> bool:
        return turn.spent >= self._patience and len(turn.runs) >= _FEWEST

    def _start(self, entry: Entry, case: Case) -> tuple[Outcome, str | None]:
        """Start the contestant of an entry; return how that went, and why it failed."""
        try:
            self._pool.get(entry, case)
        except Absent as absent:
            self._say(f"  {entry.name}: absent, {absent}")
            return Outcome.ABSENT, str(absent)
        except Failed as error:
            self._say(f"  {entry.name}: did not start, {error}")
            return Outcome.FAILED, f"did not start: {error}"
        return Outcome.RAN, None

    def _run(self, turn: _Turn, case: Case, reader: str | None, *, counts: bool) -> None:
        entry = turn.entry
        assert turn.master is not None
        try:
            running = self._pool.get(entry, case)
            with running.catalog.register_master(turn.master) as run_tables:
                run = self._measured(running, turn, case, run_tables)
                turn.spent += run.seconds
                if counts:
                    turn.runs.append(run)
                elif run.difference:
                    turn.runs.append(run)  # a warm-up that is wrong is wrong too
                if reader is not None:
                    turn.query_seconds = self._query(reader, case, run_tables.tables()[0].metadata_location)
        except (Failed, Absent) as error:
            turn.outcome, turn.reason = Outcome.LATE if isinstance(error, TimedOut) else Outcome.FAILED, str(error)
            self._pool.stop(entry, case, kill=True)
            self._say(f"  {entry.name}: {turn.outcome}, {error}")
            return
        wrong = f", [red]wrong: {run.difference}[/red]" if run.difference else ""
        peak = f"{run.peak_bytes / 1e6:,.0f} MB"
        self._say(f"  {entry.name}: {run.seconds:.2f} s, {peak}{'' if counts else ' (warm-up)'}{wrong}")

    def _measured(self, running: RunningContestant, turn: _Turn, case: Case, run_tables: RunTables) -> Run:
        """Measure one run; its tables are checked after the run was timed.

        Raises:
            Failed: It did not do what was requested.
        """
        entry = turn.entry
        arguments = entry.ask(run_tables) if callable(entry.ask) else entry.ask
        turn.does = arguments["do"]
        request = {
            **arguments,
            "catalog": {"name": NAME, "uri": running.catalog.uri, "warehouse": running.catalog.warehouse},
            "table": run_tables.names[0],
            "tables": run_tables.names,
            "metadata_locations": [table.metadata_location for table in run_tables.master.tables],
            "output": f"file://{run_tables.output}",
        }
        truths: Sequence[Checksum] = [table.truth for table in run_tables.master.tables]
        with (
            case.stream(run_tables) if case.stream else nullcontext() as stream,
            self._pool.places.traffic(entry.where) as traffic,
        ):
            answer: Answer = running.contestant.ask(request, entry.limit)
        facts, usage = dict(answer.facts), answer.usage
        if stream is not None:
            truths = stream.truths()
            facts["summary"] = stream.summary(facts)
            self._say(f"  {entry.name}: {facts['summary']}")
        missing = shortfall(run_tables, entry, facts)
        if missing is not None:
            raise Failed(missing)
        wrong = difference(self._pool, run_tables, truths) if entry.commits else None
        return Run(
            usage.seconds,
            usage.cpu_seconds,
            usage.peak_bytes,
            usage.read_bytes,
            usage.written_bytes,
            run_tables.added_bytes(),
            run_tables.files(),
            facts,
            wrong,
            traffic,
        )

    def _query_before(self, case: Case, master_tables: Master) -> tuple[str | None, float | None]:
        """Return the reader that runs the query of a case, and the seconds of the query before any contestant ran."""
        if case.query is None or not self._size.queries:
            return None, None
        for name in _READERS:
            try:
                self._pool.reader(name)
            except (Absent, Failed):
                continue
            return name, self._query(name, case, master_tables.tables[0].metadata_location)
        return None, None

    def _query(self, reader: str, case: Case, metadata_location: str) -> float | None:
        """Return the median seconds of a query, or None if it was stopped or failed."""
        times = []
        try:
            running = self._pool.reader(reader)
            table = running.catalog.register(metadata_location)
            request = {"do": "query", "table": table, "metadata_location": metadata_location, "sql": case.query}
            for _ in range(self._size.queries):
                times.append(float(running.contestant.ask(request, self._size.query_seconds).facts["seconds"]))
        except (Failed, Absent) as error:
            self._say(f"  {reader}: {error}")
            self._pool.stop_reader(reader)
            return None
        running.catalog.pyiceberg.drop_table(table)
        return median(times)


def failures(result: WorkloadResult) -> list[str]:
    """Return what is wrong with a result: rows that differ, or Icefleet failing; as sentences."""
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
    """Return the operation of an entry, as far as it is known before the entry starts."""
    return "" if callable(entry.ask) else str(entry.ask["do"])


def _or(chosen: int | None, usual: int) -> int:
    return usual if chosen is None else min(chosen, usual)
