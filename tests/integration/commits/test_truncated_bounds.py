"""Position delete files whose bounds of ``file_path`` are no whole paths: they delete rows of several data files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from producer.iceberg.manifest_entry import FILE_PATH_ID, NewFile, new_data_file
from producer.model.job import Operation, Status
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle
from tests.support.commits import Create, data, equality, rows
from tests.support.faulty import Jobs
from tests.support.unreferenced import unreferenced

#: What writers make of the bounds of a path that is longer than they like.
CUTS: dict[str, Callable[[str], tuple[bytes | None, bytes | None]]] = {
    "equal": lambda path: (path[:16].encode(), path[:16].encode()),
    "raised": lambda path: (path[:16].encode(), path[:15].encode() + bytes([path.encode()[15] + 1])),
    "within a character": lambda path: (path[:15].encode() + b"\xc3", path[:15].encode() + b"\xc3"),
    "no upper one": lambda path: (path[:16].encode(), None),
    "none": lambda _: (None, None),
}
#: All that is there is rewritten, or nothing is.
OPTIONS = [{"rewrite-all": "true"}, {"delete-ratio-threshold": "1", "min-input-files": "99"}]
LEFT = Counter({(1, "a"): 1, (5, "a"): 1, (6, "a"): 1, (1, "b"): 1, (2, "b"): 1, (3, "b"): 1})


@pytest.fixture(params=list(CUTS))
def stream(request: pytest.FixtureRequest, create: Create) -> StreamTable:
    """Row 2 is deleted by position in one file and row 4 in another; both by one delete file, and 3 by key."""
    stream = create()
    stream.append(rows(1, 2, 3))
    stream.append(rows(4, 5, 6))
    stream.append(rows(1, 2, 3, p="b"))
    first, second = data(stream)
    [delete] = stream.write_position_deletes({first.path: [1], second.path: [0]}, by_partition=True)
    stream.commit(RowDelta([with_bounds(delete, *CUTS[request.param](first.path))]))
    stream.delete_where_equal(rows(3, 2), ["id"])
    assert oracle.rows(stream.table) == LEFT
    return stream


def with_bounds(delete: NewFile, lower: bytes | None, upper: bytes | None) -> NewFile:
    kept = ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes")
    record = new_data_file(
        **{name: getattr(delete.data_file, name) for name in kept},
        lower_bounds=None if lower is None else {FILE_PATH_ID: lower},
        upper_bounds=None if upper is None else {FILE_PATH_ID: upper},
    )
    return replace(delete, data_file=record)


@pytest.mark.parametrize("upgraded", [False, True], ids=["v2", "upgraded"])
class TestCutBounds:
    """By the letter of the specification such a file applies to every data file that it names."""

    def test_a_conversion(self, stream: StreamTable, jobs: Jobs, upgraded: bool) -> None:
        if upgraded:
            stream.upgrade()
        report = jobs.run()
        assert (report.status, report.added_position_deletes) == (Status.COMMITTED, 2 if upgraded else 1)
        assert equality(stream) == []
        assert oracle.rows(stream.table) == LEFT

    @pytest.mark.parametrize("options", OPTIONS, ids=["all", "nothing"])
    def test_a_compaction(self, stream: StreamTable, jobs: Jobs, upgraded: bool, options: dict[str, str]) -> None:
        if upgraded:
            stream.upgrade()
        report = jobs.run(jobs.request(operation=Operation.COMPACT, options=options))
        assert report.status in (Status.COMMITTED, Status.NOTHING_TO_DO)
        assert oracle.rows(stream.table) == LEFT
        assert unreferenced(stream.table) == set()

    @pytest.mark.parametrize("operation", list(Operation))
    def test_one_that_is_removed(self, stream: StreamTable, jobs: Jobs, upgraded: bool, operation: Operation) -> None:
        if upgraded:
            stream.upgrade()
        path = stream.delete_files()[0].path
        pending = [lambda: stream.remove_files([path])]
        options = OPTIONS[0] if operation is Operation.COMPACT else {}
        request = jobs.request(operation=operation, options=options)
        report = jobs.run(request, between=lambda: pending.pop()() if pending else None)
        assert report.status is Status.COMMITTED
        assert oracle.rows(stream.table) == LEFT + Counter({(4, "a"): 1})
        assert equality(stream) == []

    @pytest.mark.parametrize("operation", list(Operation))
    def test_one_that_comes_meanwhile(
        self, stream: StreamTable, jobs: Jobs, upgraded: bool, operation: Operation, request: pytest.FixtureRequest
    ) -> None:
        if upgraded:
            pytest.skip("no new ones come there")
        first, second = data(stream)
        how = CUTS[request.node.callspec.params["stream"]]

        def delete() -> None:
            [more] = stream.write_position_deletes({first.path: [0], second.path: [1]}, by_partition=True)
            stream.commit(RowDelta([with_bounds(more, *how(first.path))]))

        pending = [delete]
        options = OPTIONS[0] if operation is Operation.COMPACT else {}
        asked = jobs.request(operation=operation, options=options)
        report = jobs.run(asked, between=lambda: pending.pop()() if pending else None)
        assert report.status is Status.COMMITTED
        assert oracle.rows(stream.table) == LEFT - Counter({(1, "a"): 1, (5, "a"): 1})
