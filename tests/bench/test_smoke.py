"""The whole bench in its smallest size, as it is typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.contestant import ROOT
from bench.place import SLOW, find_server
from bench.programs import PROGRAMS
from bench.results import Outcome, Results
from bench.workloads import WORKLOADS


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_smoke(tmp_path: Path) -> None:
    """Peers take part where `make bench` has fetched them before."""
    names = WORKLOADS.keys() - {"w8"}
    page = _measured(tmp_path, *sorted(names))
    assert "Not run: `python -m bench run w8`." in page


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_server() is None, reason="no versitygw: scripts/bootstrap stores installs it")
def test_smoke_with_latency(tmp_path: Path) -> None:
    page = _measured(tmp_path, "w8")
    assert "CPU of the store" in page
    for case in Results.load(tmp_path / "report").workloads["w8"].cases:
        for contest in case.contests:
            for run in contest.counted:
                assert (run.traffic is not None) == contest.name.endswith(SLOW)
                assert run.traffic is None or run.traffic.requests["PUT"]


def _measured(folder: Path, *names: str) -> str:
    """Measure workloads, check that nothing failed, and return the report."""
    data, report = folder / "data", folder / "report"
    data.mkdir()
    if (fetched := ROOT / "bench-data/peers").exists():
        (data / "peers").symlink_to(fetched)
    command = [sys.executable, "-m", "bench", "run", *names, "--size", "smoke", "--data", data, "--report", report]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = Results.load(report)
    assert results.workloads.keys() == set(names)
    for result in results.workloads.values():
        assert result.wrong == []
        for case in result.cases:
            assert case.contests
            for contest in case.contests:
                if PROGRAMS[contest.program].ours:
                    assert contest.outcome is Outcome.RAN, contest.reason
                    assert contest.counted
                    assert contest.counted == contest.runs
    page = (report / "README.md").read_text()
    for name in names:
        assert f"plots/{name}.png" in page
        assert (report / f"plots/{name}.png").stat().st_size > 5_000
    return page
