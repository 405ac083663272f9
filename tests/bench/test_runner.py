"""The judge: what counts, what does not, and what is said of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.case import Entry, Workload
from bench.command import main
from bench.programs import PROGRAMS
from bench.results import Contest, Outcome, WorkloadResult
from bench.runner import Runner, failures
from bench.workloads import WORKLOADS
from tests.bench.conftest import SIZE, ask, workload, wrong_recipe


def _measure(folder: Path, measured: Workload) -> WorkloadResult:
    with Runner(folder / "data", SIZE, lambda line: None) as runner:
        result = runner.measure(measured)
    assert sorted(path.name for path in (folder / "data").iterdir()) == ["logs", "masters"]
    return result


def _contests(result: WorkloadResult) -> dict[str, Contest]:
    return {contest.name: contest for contest in result.cases[0].contests}


def test_runs_count_when_rows_are_right(tmp_path: Path) -> None:
    result = _measure(tmp_path, workload(ask("touch"), ask("idle", commits=False, expect={"tables": 0})))
    assert failures(result) == []
    assert result.versions["contestant"] == "1"
    for contest in _contests(result).values():
        assert (contest.outcome, len(contest.runs), len(contest.counted)) == (Outcome.RAN, 2, 2)
        assert contest.runs[0].peak_bytes > 1e6
    touched, idle = _contests(result).values()
    assert touched.runs[0].facts == {"tables": 1}
    assert touched.runs[0].added_bytes > 0
    assert idle.runs[0].added_bytes == 0
    assert result.cases[0].rows == 8


@pytest.mark.parametrize("together", [True, False])
def test_queries_are_asked_before_and_after(tmp_path: Path, together: bool) -> None:
    """Of the independent reader, where there is no peer."""
    size = dataclasses.replace(SIZE, queries=2, warmups=0, keep=False)
    asked = workload(ask("touch"), query="select sum(id) as s from {table}", together=together)
    with Runner(tmp_path / "data", size, lambda line: None) as runner:
        (case,) = runner.measure(asked).cases
    assert case.reader == "iceberg-rust"
    assert case.query_seconds is not None
    assert case.contests[0].query_seconds is not None
    assert len(case.contests[0].counted) == 2


def test_the_smallest_heap_that_finishes_is_enough(tmp_path: Path) -> None:
    tried = [("small", 0.001), ("enough", 900.0), ("ample", 900.0)]
    entries = [ask("touch", label=label, limit=limit) for label, limit in tried]
    result = _measure(tmp_path, workload(*entries, ask("idle", commits=False), together=False, stop_at_success=True))
    outcomes = {name: contest.outcome for name, contest in _contests(result).items()}
    assert outcomes == {"small": Outcome.LATE, "enough": Outcome.RAN, "idle": Outcome.RAN}


def test_a_slow_contestant_has_three_runs(tmp_path: Path) -> None:
    size = dataclasses.replace(SIZE, runs=5, warmups=1, queries=1)
    asked = workload(ask("touch"), query="select sum(id) as s from {table}")
    with Runner(tmp_path / "data", size, lambda line: None, patience=0.0) as runner:
        (case,) = runner.measure(asked).cases
    assert len(case.contests[0].counted) == 3
    assert case.contests[0].query_seconds is not None


def test_rows_that_differ_do_not_count(tmp_path: Path) -> None:
    result = _measure(tmp_path, workload(ask("touch"), master="wrong", recipe=wrong_recipe))
    (contest,) = result.cases[0].contests
    assert contest.counted == ()
    assert contest.seconds is None
    assert all("8 rows" in str(run.difference) and "not 10 rows" in str(run.difference) for run in contest.runs)
    assert len(failures(result)) == 3  # the warm-up too


def test_others_go_on_when_one_cannot(tmp_path: Path) -> None:
    entries = [
        ask("fail"),
        ask("die"),
        ask("starve"),
        ask("dawdle", limit=1.0),
        ask("idle"),
        ask("touch", leaves={"equality_deletes": 0}, label="leaver"),
        ask("touch", expect={"tables": 7}, label="liar"),
        ask("touch", arguments=("stillborn",), label="stillborn"),
        Entry(program="absent", ask={"do": "touch"}),
        ask("touch"),
    ]
    result = _measure(tmp_path, workload(*entries))
    contests = _contests(result)
    assert {name: (contest.outcome, contest.reason) for name, contest in contests.items()} == {
        "fail": (Outcome.FAILED, "ValueError: not today"),
        "die": (Outcome.FAILED, "died with exit status 3: java.lang.OutOfMemoryError: Java heap space"),
        "starve": (
            Outcome.FAILED,
            "ConnectionRefusedError: nobody is there: java.lang.OutOfMemoryError: Java heap space",
        ),
        "dawdle": (Outcome.LATE, "did not finish in 1 s"),
        "idle": (Outcome.FAILED, "it committed nothing"),
        "leaver": (Outcome.FAILED, "it left 1 files of the kind equality_deletes, not 0"),
        "liar": (Outcome.FAILED, "it says tables = 1, not 7"),
        "stillborn": (Outcome.FAILED, "did not start: died with exit status 1: it cannot start"),
        "absent": (Outcome.ABSENT, "it is sold out"),
        "touch": (Outcome.RAN, None),
    }
    assert len(contests["touch"].counted) == 2
    assert contests["stillborn"].does == contests["absent"].does == "touch"
    assert failures(result) == []  # nobody of ours


def test_the_bench_fails_when_icefleet_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROGRAMS, "test", dataclasses.replace(PROGRAMS["test"], ours=True))
    assert failures(_measure(tmp_path, workload(ask("fail")))) == ["w0, one, fail: failed, ValueError: not today"]


@pytest.mark.parametrize(("right", "status"), [(True, 0), (False, 1)])
def test_exit_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool, status: int) -> None:
    changes = {} if right else {"recipe": wrong_recipe}
    monkeypatch.setitem(WORKLOADS, "w0", workload(ask("touch"), **changes))
    folders = ["--data", str(tmp_path / "data"), "--report", str(tmp_path / "report")]
    done = CliRunner().invoke(main, ["run", "w0", "--size", "smoke", "--json", *folders])
    assert done.exit_code == status, done.output
    assert ("wrong:" in done.stderr) is not right
    (result,) = json.loads(done.stdout)
    assert (result["cases"][0]["contests"][0]["runs"][0]["difference"] is None) is right
    page = (tmp_path / "report/README.md").read_text()
    assert ("a run does not count" in page) is not right


def test_unknown_programs_are_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["run", "--only", "icefleet,nobody", "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert "--only nobody: choose of icefleet" in " ".join(done.stderr.split())


def test_everything_is_listed() -> None:
    listed = CliRunner().invoke(main, ["list"]).output
    for name in (*WORKLOADS, *PROGRAMS):
        assert f"\n{name}" in f"\n{listed}"
