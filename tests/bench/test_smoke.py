"""The whole bench in its smallest size, as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.workloads import WORKLOADS
from tests.support.smoke import measure_smoke


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_smoke(tmp_path: Path) -> None:
    """All but W8, whose object store `make test-stores` brings."""
    page = measure_smoke(tmp_path, *(WORKLOADS.keys() - {"w8"}))
    assert "Not run: `python -m bench run w8`." in page
