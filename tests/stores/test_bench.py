"""The bench's workload on an object store in its smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.place import SLOW, find_server
from bench.results import Results
from tests.support.smoke import measure_smoke


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_server() is None, reason="no versitygw: scripts/bootstrap stores installs it")
def test_requests_of_each_contestant_are_reported(tmp_path: Path) -> None:
    page = measure_smoke(tmp_path, "w8")
    assert "CPU of the store" in page
    for case in Results.load(tmp_path / "report").workloads["w8"].cases:
        for contest in case.contests:
            for run in contest.counted:
                assert (run.traffic is not None) == contest.name.endswith(SLOW)
                assert run.traffic is None or run.traffic.requests["PUT"]
