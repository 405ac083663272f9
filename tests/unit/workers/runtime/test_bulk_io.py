"""Files that are requested before they are opened: each once, so many at a time, and never too many."""

from __future__ import annotations

import pytest

from tests.support.memoryio import ListingIO
from workers.runtime.bulk_io import opened_soon


class NotingIO(ListingIO):
    """Storage that notes which files are requested ahead."""

    def __init__(self, requests: int) -> None:
        super().__init__()
        self.requests = requests
        self.ahead: list[str] = []

    @property
    def requests_at_a_time(self) -> int:
        return self.requests

    def read_ahead(self, locations: object) -> None:
        self.ahead += locations  # type: ignore[operator]


@pytest.mark.parametrize(("requests", "most"), [(1, 1), (32, 32), (1000, 64)])
def test_as_many_files_as_requests_wait_to_be_opened_but_memory_is_bounded(requests: int, most: int) -> None:
    io, paths = NotingIO(requests), [str(number) for number in range(200)]
    for opened, path in enumerate(opened_soon(io, paths, str)):
        assert path in io.ahead
        assert len(io.ahead) - opened == min(most, len(paths) - opened)
    assert io.ahead == paths
