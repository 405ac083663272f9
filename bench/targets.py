"""The targets, and the figures that results have for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench import text
from bench.place import SLOW
from bench.results import CaseResult, Contest, Outcome, Results, Run

_GB = 1e9
_SMALLEST_HEAP = 512


@dataclass(frozen=True, slots=True)
class Target:
    """One target."""

    workload: str
    goal: str
    #: The figure as text; None if it was not run.
    figure: str | None = None
    met: bool | None = None

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.figure is None:
            return "not run"
        return {True: "met", False: "**missed**", None: "no figure"}[self.met]


def targets(results: Results) -> list[Target]:
    """All targets, in order. Those that were not run are among them."""
    return [target for make in _ALL for target in make(results)]


@dataclass(frozen=True, slots=True)
class _Goal:
    """A target without its figure."""

    workload: str
    text: str
    #: The contestants whose figures it needs; one without a figure is named.
    of: Sequence[Contest | None]

    def at_most(self, value: float | None, most: float, text_of: Callable[[float | None], str]) -> Target:
        return self._target(value, value is not None and value <= most, text_of)

    def at_least(self, value: float | None, least: float) -> Target:
        return self._target(value, value is not None and value >= least, text.times)

    def _target(self, value: float | None, met: bool, text_of: Callable[[float | None], str]) -> Target:
        if value is not None:
            return Target(self.workload, self.text, text_of(value), met)
        for contest in self.of:
            if contest is not None and contest.outcome is not Outcome.RAN:
                ours = contest.program.startswith("icefleet")
                return Target(self.workload, self.text, f"{contest.name}: {contest.outcome}", False if ours else None)
        return Target(self.workload, self.text)


def _w0(results: Results) -> Iterator[Target]:
    for name, most in (("int64", 3), ("string", 5), ("two-columns", 5)):
        pair = _with_scan(_case(results, "w0", name))
        goal = _Goal("W0", f"warm, {name}: ≤ {most} × the Arrow scan", pair)
        yield goal.at_most(_ratio(*pair), most, text.times)
    found = [_of(_case(results, "w0", name), "icefleet") for name in ("int64", "string", "two-columns")]
    peaks = [contest.peak_bytes for contest in found if contest and contest.peak_bytes]
    goal = _Goal("W0", f"warm: peak of the whole tree ≤ 1 GB with a {_SMALLEST_HEAP} MB heap", found)
    yield goal.at_most(max(peaks, default=None), _GB, text.size)
    large = _with_scan(_case(results, "w0", "large"))
    yield _Goal("W0", "ten times the size: ≤ 2 × the Arrow scan", large).at_most(_ratio(*large), 2, text.times)
    peak = large[0].peak_bytes if large[0] else None
    small = found[0].peak_bytes if found[0] else None
    beside = f", {text.times(peak / small)} that of the small one" if peak and small else ""
    goal = _Goal("W0", "ten times the size: the same memory, ≤ 1 GB", large)
    yield goal.at_most(peak, _GB, lambda value: text.size(value) + beside)
    cold = _of(_case(results, "w0", "int64"), "icefleet-cold")
    yield _Goal("W0", "cold, session start included: ≤ 15 s", [cold]).at_most(_seconds(cold), 15, text.seconds)


def _w1(results: Results) -> Iterator[Target]:
    for case in _cases(results, "w1"):
        own = _of(case, "icefleet")
        for program, least, goal in (
            ("iceberg-spark", 3, "≥ 3 × Iceberg's procedure"),
            ("arrow-copy", 0.7, "≥ 0.7 × PyArrow's own copy rate"),
        ):
            other = _of(case, program)
            yield _Goal("W1", f"{_named(case)}{goal}", [own, other]).at_least(_ratio(other, own), least)


def _w2(results: Results) -> Iterator[Target]:
    case = _cases(results, "w2")[-1]
    goal = f"{_named(case)}finishes with a {_SMALLEST_HEAP} MB heap"
    contests = case.contests if case else ()
    own = [one for one in contests if one.program == "icefleet" and one.heap_mb == _SMALLEST_HEAP]
    if not own:
        yield Target("W2", goal)
        return
    summary = ", ".join(f"{one.does}: {text.seconds(one.seconds) if one.counted else one.outcome}" for one in own)
    peers = [one for one in contests if one.program == "iceberg-spark" and one.outcome is not Outcome.ABSENT]
    heaps = [one.heap_mb for one in peers if one.counted]
    if heaps:
        summary += f"; the smallest heap that Iceberg's procedure finished with: {min(heaps):,} MB"
    elif peers:
        summary += f"; Iceberg's procedure did not finish with {max(one.heap_mb for one in peers):,} MB"
    yield Target("W2", goal, summary, all(one.counted for one in own))


def _w3_and_w4(results: Results) -> Iterator[Target]:
    for name in ("w3", "w4"):
        for case in _cases(results, name):
            convert, compact = _of(case, "icefleet", "convert"), _of(case, "icefleet", "compact")
            peer = _of(case, "iceberg-spark")
            label = _named(case)
            goal = _Goal(name.upper(), f"{label}conversion ≥ 10 × faster than Iceberg's procedure", [convert, peer])
            yield goal.at_least(_ratio(peer, convert), 10)
            added, theirs = (_median(contest, lambda run: run.added_bytes) for contest in (convert, peer))
            share = added / theirs if added is not None and theirs else None
            goal = _Goal(name.upper(), f"{label}write amplification of a conversion ≤ 1/50 of its", [convert, peer])
            yield goal.at_most(share, 1 / 50, lambda value: f"1/{1 / value:,.0f}" if value else "0")
            goal = _Goal(name.upper(), f"{label}compaction ≥ 4 × faster", [compact, peer])
            yield goal.at_least(_ratio(peer, compact), 4)


def _w6(results: Results) -> Iterator[Target]:
    many, some = (_of(_case(results, "w6", name), "icefleet") for name in ("400", "100"))
    goal = _Goal("W6", "linear: time at 400 commits ≤ 4.5 × that at 100", [many, some])
    yield goal.at_most(_ratio(many, some), 4.5, text.times)
    yield _Goal("W6", "100 commits, warm: ≤ 5 s", [some]).at_most(_seconds(some), 5, text.seconds)


def _w8(results: Results) -> Iterator[Target]:
    for name in ("files of 1 MB", "16 buckets", "checkpoints"):
        case = _case(results, "w8", name)
        peer = _of(case, "iceberg-spark")
        most = 3 if name == "checkpoints" else 2
        for operation in ("compact",) if name == "files of 1 MB" else ("convert", "compact"):
            disk, store = _on_both(case, f"icefleet {operation}")
            goal = _Goal("W8", f"{name}: {operation} with latency ≤ {most} × its time on the disk", [disk, store])
            yield goal.at_most(_ratio(store, disk), most, text.times)
            goal = _Goal("W8", f"{name}: {operation} with latency ≥ 5 × faster than Iceberg's procedure", [store, peer])
            yield goal.at_least(_ratio(peer, store), 5)
    disk, store = _on_both(_case(results, "w8", "planning"), "icefleet-steps")
    for operation, fact in (("conversion", "plan_seconds"), ("compaction", "plan_compaction_seconds")):
        slow, fast = _fact(store, fact), _fact(disk, fact)
        goal = _Goal("W8", f"plan of a {operation} with latency ≤ 2 × its time on the disk", [disk, store])
        yield goal.at_most(slow / fast if slow and fast else None, 2, text.times)


def _w12(results: Results) -> Iterator[Target]:
    for case in _cases(results, "w12"):
        own, join = _of(case, "icefleet"), _of(case, "arrow-join")
        label = _named(case)
        goal = _Goal("W12", f"{label}≤ 4 × reading both and Arrow's semi join", [own, join])
        yield goal.at_most(_ratio(own, join), 4, text.times)
        peak = own.peak_bytes if own else None
        goal = _Goal("W12", f"{label}peak of the whole tree ≤ 1 GB with a {_SMALLEST_HEAP} MB heap", [own])
        yield goal.at_most(peak, _GB, text.size)


def _small_tables(results: Results) -> Iterator[Target]:
    case = _cases(results, "small-tables")[-1]
    contest = case.contests[0] if case and case.contests else None
    taken = _seconds(contest)
    each = taken / case.tables if case and taken is not None else None
    goal = _Goal("small tables", "200 through Redis and one worker: ≤ 0.5 s per table", [contest])
    yield goal.at_most(each, 0.5, text.seconds)


def _planning(results: Results) -> Iterator[Target]:
    case = _cases(results, "planning")[-1]
    contest = case.contests[0] if case and case.contests else None
    files = "100,000 data and 10,000 delete files"
    goal = _Goal("planning", f"{files}: planned in ≤ 30 s", [contest])
    yield goal.at_most(_fact(contest, "plan_seconds"), 30, text.seconds)
    goal = _Goal("planning", f"{files}: planned in ≤ 2 GB", [contest])
    yield goal.at_most(_fact(contest, "plan_peak_bytes"), 2 * _GB, text.size)
    goal = _Goal("planning", f"{files}: a compaction planned in ≤ 30 s", [contest])
    yield goal.at_most(_fact(contest, "plan_compaction_seconds"), 30, text.seconds)
    goal = _Goal("planning", "the commit that follows: ≤ 30 s", [contest])
    yield goal.at_most(_fact(contest, "commit_seconds"), 30, text.seconds)


def _two_workers(results: Results) -> Iterator[Target]:
    for case in _cases(results, "two-workers"):
        one, two = (case.contest(name) if case else None for name in ("one worker", "two workers"))
        label = f"{_named(case)}W3 in 16 buckets, one core each: ≥ 1.7 × the throughput of one"
        yield _Goal("two workers", label, [one, two]).at_least(_ratio(one, two), 1.7)


_ALL: Sequence[Callable[[Results], Iterator[Target]]] = (
    _w0,
    _w1,
    _w2,
    _w3_and_w4,
    _w6,
    _w8,
    _w12,
    _small_tables,
    _planning,
    _two_workers,
)


def _cases(results: Results, workload: str) -> Sequence[CaseResult | None]:
    """Of a workload; one that is None when it was not run."""
    found = results.workloads.get(workload)
    return found.cases if found and found.cases else (None,)


def _case(results: Results, workload: str, name: str) -> CaseResult | None:
    found = results.workloads.get(workload)
    return found.case(name) if found else None


def _named(case: CaseResult | None) -> str:
    return f"{case.name}: " if case else ""


def _of(case: CaseResult | None, program: str, does: str | None = None) -> Contest | None:
    return case.of(program, does) if case else None


def _on_both(case: CaseResult | None, name: str) -> tuple[Contest | None, Contest | None]:
    """Return a contestant's results on the disk and on the slow store."""
    return (case.contest(name), case.contest(f"{name}{SLOW}")) if case else (None, None)


def _median(contest: Contest | None, figure: Callable[[Run], float]) -> float | None:
    return contest.median(figure) if contest else None


def _ratio(slower: Contest | None, faster: Contest | None) -> float | None:
    """How many times as long the one takes as the other."""
    over, under = (contest.seconds if contest else None for contest in (slower, faster))
    return over / under if over is not None and under else None


def _seconds(contest: Contest | None) -> float | None:
    return contest.seconds if contest else None


def _with_scan(case: CaseResult | None) -> tuple[Contest | None, Contest | None]:
    return _of(case, "icefleet"), _of(case, "arrow-scan")


def _fact(contest: Contest | None, name: str) -> float | None:
    """Return the median of a fact in a contestant's answers."""
    values = [float(run.facts[name]) for run in contest.counted if name in run.facts] if contest else []
    return median(values) if values else None
