"""The bench in its smallest size, as it is typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.contestant import ROOT
from bench.programs import PROGRAMS
from bench.results import Outcome, Results


def measure_smoke(folder: Path, *names: str) -> str:
    """Measure workloads, check that nothing failed, and return the report.

    Peers take part where `make bench` has fetched them before.
    """
    data, report = folder / "data", folder / "report"
    data.mkdir()
    if (fetched := ROOT / "bench-data/peers").exists():
        (data / "peers").symlink_to(fetched)
    options = ["--size", "smoke", "--data", str(data), "--report", str(report)]
    command = [sys.executable, "-m", "bench", "run", *names, *options]
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
