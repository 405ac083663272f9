"""The report, from results that are made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import text
from bench.case import Workload
from bench.files import Files
from bench.place import SLOW, Traffic
from bench.report import write
from bench.results import CaseResult, Contest, Machine, Outcome, Results, Run, WorkloadResult, save
from bench.targets import targets

_BEFORE = Files(data=30, equality_deletes=10, data_bytes=3 * 10**8, delete_bytes=10**6)
_AFTER = Files(data=30, position_deletes=30, data_bytes=3 * 10**8, delete_bytes=10**5)


def _run(seconds: float, difference: str | None = None, **facts: float) -> Run:
    return Run(seconds, seconds * 2, int(9e8), 10**8, 10**7, 5 * 10**5, _AFTER, dict(facts), difference)


def _contest(name: str, *seconds: float, does: str = "convert", heap_mb: int = 512) -> Contest:
    runs = tuple(_run(one) for one in seconds)
    return Contest(name, name.partition(" ")[0], Outcome.RAN, None, runs, does, heap_mb, 0.25)


def _case(name: str, *contests: Contest) -> CaseResult:
    return CaseResult(name, f"the case {name}", 2, 10**6, 1, 1000, _BEFORE, contests, "select 1", "iceberg-rust", None)


def _result(name: str, *cases: CaseResult, size: str = "full") -> WorkloadResult:
    machine = Machine(2, 24 * 10**9, "A processor", "Linux 6")
    return WorkloadResult(name, size, "2026-01-02T03:04:05+00:00", 100.0, machine, {"icefleet": "0.1.0"}, cases)


def _workload(name: str, plot: str = "bars") -> Workload:
    return Workload(name=name, title=f"Title of {name}", about="About it.", cases=lambda size: [], plot=plot)


def _page(folder: Path, *results: WorkloadResult, plot: str = "bars") -> str:
    for result in results:
        save(folder, result)
    return write(folder, {name: _workload(name, plot) for name in ("w0", "w2", "w6")}).read_text()


def _row(page: str, name: str) -> list[str]:
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_results_are_kept_as_they_are(tmp_path: Path) -> None:
    result = _result("w0", _case("int64", _contest("icefleet", 1.0, 2.0)))
    save(tmp_path, result)
    assert Results.load(tmp_path) == Results({"w0": result})


def test_a_row_of_figures(tmp_path: Path) -> None:
    own, scan = _contest("icefleet", 2.0, 1.0, 1.5), _contest("arrow-scan", 0.5, heap_mb=0)
    page = _page(tmp_path, _result("w0", _case("int64", own, scan)))
    assert _row(page, "**icefleet**") == [
        *("**icefleet**, 512 MB heap", "1.50 s", "1.00 ×", "1.00 s – 2.00 s", "3.00 s", "900 MB", "100 MB", "10 MB"),
        *("0.50", "30 data + 10 eq → 30 data + 30 pos", "stopped → 250 ms", "equal", "3"),
    ]
    assert _row(page, "arrow-scan")[1:4] == ["500 ms", "0.33 ×", text.NOTHING]
    assert "A processor" in page
    assert "2026-01-02T03:04:05+00:00" in page
    assert (tmp_path / "plots/w0.png").read_bytes().startswith(b"\x89PNG")


def test_what_was_not_run_is_named(tmp_path: Path) -> None:
    page = _page(tmp_path)
    assert "Not run: `python -m bench run w0`." in page
    assert {target.verdict for target in targets(Results())} == {"not run"}


def test_what_limits_it_is_said_beside_the_targets(tmp_path: Path) -> None:
    result = _result("w0", _case("int64", _contest("icefleet", 1.0)))
    assert "What limits it" not in _page(tmp_path, result)
    (tmp_path / "limits.md").write_text("The disk.\n")
    page = _page(tmp_path, result)
    assert page.index("## Targets") < page.index("The disk.") < page.index("## Title of w0")


def test_who_is_absent_or_failed_is_named_with_the_reason(tmp_path: Path) -> None:
    absent = Contest("iceberg-spark", "iceberg-spark", Outcome.ABSENT, "no Maven: install it")
    failed = Contest("icefleet", "icefleet", Outcome.FAILED, "a `pipe` | broke", (_run(1.0),))
    late = Contest("arrow-scan", "arrow-scan", Outcome.LATE, "did not finish in 9 s")
    page = _page(tmp_path, _result("w0", _case("int64", failed, absent, late)))
    assert _row(page, "iceberg-spark")[1] == "absent"
    assert "iceberg-spark: absent: `no Maven: install it`." in page
    assert _row(page, "**icefleet**")[1] == "failed"
    assert "icefleet: failed: `a 'pipe' | broke`." in page
    assert _row(page, "arrow-scan")[1] == "did not finish"
    (goal, *_) = targets(Results.load(tmp_path))
    assert (goal.figure, goal.met) == ("icefleet: failed", False)


def test_runs_whose_rows_differ_are_named_and_do_not_count(tmp_path: Path) -> None:
    mixed = Contest("icefleet", "icefleet", Outcome.RAN, None, (_run(1.0), _run(9.0, "t has 7 rows, not 8")))
    wrong = Contest("arrow-scan", "arrow-scan", Outcome.RAN, None, (_run(1.0, "none"),))
    result = _result("w0", _case("int64", mixed, wrong))
    page = _page(tmp_path, result)
    assert _row(page, "**icefleet**")[1] == "1.00 s"
    assert _row(page, "**icefleet**")[-2:] == ["**differ**", "1"]
    assert _row(page, "arrow-scan")[1] == "rows differ"
    assert "icefleet: a run does not count: `t has 7 rows, not 8`." in page
    assert result.wrong == ["w0, int64, icefleet: t has 7 rows, not 8", "w0, int64, arrow-scan: none"]


def test_targets_are_reckoned_from_results() -> None:
    cases = [_case(name, _contest("icefleet", 1.4), _contest("arrow-scan", 0.5)) for name in ("int64", "string")]
    growth = [_case(name, _contest("icefleet", seconds)) for name, seconds in (("100", 1.0), ("400", 5.0))]
    convert, compact = _contest("icefleet convert", 2.0), _contest("icefleet compact", 9.0, does="compact")
    rewrite = _contest("iceberg-spark rewrite", 30.0, does="rewrite")
    steps = _run(40, plan_seconds=12, plan_peak_bytes=2.1e9, commit_seconds=28)
    planning = Contest("icefleet-steps", "icefleet-steps", Outcome.RAN, None, (steps,))
    results = Results(
        {
            "w0": _result("w0", *cases),
            "w3": _result("w3", _case("plain", convert, compact, rewrite)),
            "w6": _result("w6", *growth),
            "planning": _result("planning", _case("one", planning)),
            "two-workers": _result(
                "two-workers", _case("one", _contest("one worker", 17.0), _contest("two workers", 10.0))
            ),
        }
    )
    found = {target.goal: (target.figure, target.verdict) for target in targets(results)}
    assert found["warm, int64: ≤ 3 × the Arrow scan"] == ("2.80 ×", "met")
    assert found["warm, two-columns: ≤ 5 × the Arrow scan"] == (None, "not run")
    assert found["warm: peak of the whole tree ≤ 1 GB with a 512 MB heap"] == ("900 MB", "met")
    assert found["plain: conversion ≥ 10 × faster than Iceberg's procedure"] == ("15.0 ×", "met")
    assert found["plain: compaction ≥ 4 × faster"] == ("3.33 ×", "**missed**")
    assert found["plain: write amplification of a conversion ≤ 1/50 of its"] == ("1/1", "**missed**")
    assert found["linear: time at 400 commits ≤ 4.5 × that at 100"] == ("5.00 ×", "**missed**")
    assert found["100,000 data and 10,000 delete files: planned in ≤ 2 GB"][1] == "**missed**"
    assert found["the commit that follows: ≤ 30 s"] == ("28.0 s", "met")
    assert found["one: W3 in 16 buckets, one core each: ≥ 1.7 × the throughput of one"] == ("1.70 ×", "met")


def test_requests_to_an_object_store_are_reported(tmp_path: Path) -> None:
    def slow(contest: Contest, *counts: int) -> Contest:
        seen = [Traffic({"GET": count, "PUT": 3}, 10**6 * count, 10**5, 0.5) for count in counts]
        runs = tuple(replace(run, traffic=one) for run, one in zip(contest.runs, seen, strict=True))
        return replace(contest, name=f"{contest.name}{SLOW}", runs=runs)

    disk, peer = _contest("icefleet convert", 2.0), _contest("iceberg-spark rewrite", 40.0, does="rewrite")
    store = slow(_contest("icefleet convert", 5.0, 5.0), 2000, 2200)
    result = _result("w8", _case("16 buckets", disk, store, slow(peer, 9)))
    save(tmp_path, result)
    assert Results.load(tmp_path) == Results({"w8": result})
    page = write(tmp_path, {"w8": _workload("w8")}).read_text()
    assert "| requests | GET | PUT | all | down | up | CPU of the store |" in page
    assert f"| icefleet convert{SLOW} | 2,100 | 3 | 2,103 | 2.1 GB | 100 kB | 500 ms |" in page
    found = {target.goal: (target.figure, target.verdict) for target in targets(Results.load(tmp_path))}
    assert found["16 buckets: convert with latency ≤ 2 × its time on the disk"] == ("2.50 ×", "**missed**")
    assert found["16 buckets: convert with latency ≥ 5 × faster than Iceberg's procedure"] == ("8.00 ×", "met")
    assert found["checkpoints: convert with latency ≤ 3 × its time on the disk"] == (None, "not run")


def test_the_smallest_heaps_stand_side_by_side() -> None:
    own = [_contest("icefleet 512", 20.0, does="compact")]
    died = Contest("iceberg-spark 512", "iceberg-spark", Outcome.FAILED, "OutOfMemoryError", (), "rewrite", 512)
    ran = [_contest(f"iceberg-spark {heap}", 90.0, does="rewrite", heap_mb=heap) for heap in (2048, 4096)]
    results = Results({"w2": _result("w2", _case("1000", *own, died, *ran))})
    (target,) = (one for one in targets(results) if one.workload == "W2")
    assert target.met
    assert target.figure == "compact: 20.0 s; the smallest heap that Iceberg's procedure finished with: 2,048 MB"


def test_targets_say_nothing_of_small_sizes(tmp_path: Path) -> None:
    case = _case("int64", _contest("icefleet", 1.4), _contest("arrow-scan", 0.5))
    page = _page(tmp_path, _result("w0", case, size="smoke"))
    assert "| W0 | warm, int64: ≤ 3 × the Arrow scan | 2.80 × | smoke size |" in page


@pytest.mark.parametrize(("plot", "name"), [("bars", "w0"), ("lines", "w6"), ("heap", "w2")])
def test_pictures_stand_what_is_missing(tmp_path: Path, plot: str, name: str) -> None:
    died = Contest("iceberg-spark", "iceberg-spark", Outcome.FAILED, "it died", (), "rewrite", 512)
    cases = [_case("25", _contest("icefleet", 1.0), died), _case("50", died)]
    _page(tmp_path, _result(name, *cases), plot=plot)
    assert (tmp_path / f"plots/{name}.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (text.seconds(0.0123), "12 ms"),
        (text.seconds(3.14159), "3.14 s"),
        (text.seconds(61.23), "61.2 s"),
        (text.seconds(600), "10.0 min"),
        (text.seconds(None), text.NOTHING),
        (text.size(999), "999 B"),
        (text.size(123_456_789), "123 MB"),
        (text.size(1_230_000_000), "1.2 GB"),
        (text.times(0.333), "0.33 ×"),
        (text.times(33.33), "33.3 ×"),
        (text.times(1234), "1,234 ×"),
    ],
)
def test_figures_as_people_read_them(said: str, expected: str) -> None:
    assert said == expected
