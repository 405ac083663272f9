"""What manifests and manifest lists may leave out (spec, Manifests): no job takes it for granted.

Each field of each file is left out where the specification lets writers do so; both kinds of jobs run on such a table,
beside a commit that makes the committer write its manifests anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.manifest import DATA_FILE_TYPE, DataFileContent, ManifestEntry, ManifestFile

from producer.model.job import Report, Status
from producer.planning.planner import plan
from tasks.job.branch_head import BranchHead
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle
from tests.support.commits import ROWS, Create, assert_converted, compact, data, equality, fill, rows
from tests.support.compacting import asked, assert_compacted
from tests.support.faulty import Jobs
from tests.support.foreign import rewrite_manifests
from tests.support.unreferenced import unreferenced

_NAMES = [field.name for field in DATA_FILE_TYPE[3].fields]
#: What every file may leave out; equality ids, targets and offsets may not be where they matter.
_OPTIONAL = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "key_metadata",
    "split_offsets",
    "sort_order_id",
)
_COUNTS = (
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
)


def without(*names: str) -> Callable[[ManifestEntry], None]:
    """Leaves fields of data files and delete files out."""

    def edit(entry: ManifestEntry) -> None:
        for name in names:
            entry.data_file[_NAMES.index(name)] = None

    return edit


def without_file_number(entry: ManifestEntry) -> None:
    """Leaves out which snapshot's number the file was added with, as Java does where it does not know."""
    entry.file_sequence_number = None


EDITS: dict[str, Callable[[ManifestEntry], None]] = {
    "file_sequence_number": without_file_number,
    **{name: without(name) for name in _OPTIONAL},
    "all": lambda entry: (without(*_OPTIONAL)(entry), without_file_number(entry))[1],
}


@pytest.fixture(params=EDITS)
def foreign(request: pytest.FixtureRequest, stream: StreamTable) -> StreamTable:
    """The filled table, and a field that its manifests leave out."""
    rewrite_manifests(stream, EDITS[request.param])
    assert oracle.rows(stream.table) == ROWS
    return stream


def test_of_an_entry_in_a_conversion(foreign: StreamTable, jobs: Jobs) -> None:
    assert_converted(foreign, jobs.run())


def test_of_an_entry_in_a_compaction(foreign: StreamTable, jobs: Jobs) -> None:
    lineage = oracle.rows(foreign.table, lineage=True)
    assert_compacted(foreign, jobs.run(asked(jobs)), lineage=lineage)


def test_an_unknown_file_number_is_carried_on(stream: StreamTable, jobs: Jobs) -> None:
    rewrite_manifests(stream, without_file_number)
    left = data(stream, "b")
    stream.remove_files([file.path for file in data(stream, "a")[:1]])
    assert [file.file_sequence_number for file in data(stream, "b")] == [None] * len(left)
    assert jobs.run().status is Status.COMMITTED


class TestWhatIsNew:
    """Whether a file was added since the plan, where its entry does not tell when it was."""

    def test_moved_files_are_not(self, stream: StreamTable, jobs: Jobs) -> None:
        step = jobs.start(jobs.request())
        rewrite_manifests(stream, without_file_number)
        assert_converted(stream, jobs.end(step))
        assert jobs.staged, "and nothing was planned again"
        assert len(jobs.staged) == 1

    def test_another_compactions_outputs_are(self, stream: StreamTable, jobs: Jobs) -> None:
        """It kept an old number; then manifests were rewritten, and nobody says when its file was added."""
        step = jobs.start(jobs.request())
        old = data(stream)[:1]
        compact(stream, old, rows(1, 2, 3), sequence_number=old[0].sequence_number)
        rewrite_manifests(stream, without_file_number)
        assert_converted(stream, jobs.end(step))

    def test_the_head_tells_them_apart(self, stream: StreamTable, jobs: Jobs) -> None:
        request = jobs.request()
        planned = plan(stream.table, request, unit_bytes=1 << 28).plan
        old = data(stream)[:1]
        compact(stream, old, rows(1, 2, 3), sequence_number=old[0].sequence_number)
        rewrite_manifests(stream, without_file_number)
        head = BranchHead.of(stream.table, planned)
        known = {old[0].path, *(file.path for file in data(stream, "b"))}
        assert {file.path for file in head.added_data} == {
            file.path for file in data(stream) if file.path not in known and file.sequence_number == 1
        }
        assert head.removed_data == {old[0].path}


class TestManifestLists:
    """What the list of a version 1 table leaves out, in the table's later life."""

    @pytest.mark.parametrize("name", _COUNTS)
    @pytest.mark.parametrize("version", [2, 3])
    def test_a_count(self, name: str, version: int, create: Create, jobs: Jobs) -> None:
        """In version 2 and 3 lists must have it, and row ids are given out by it."""
        stream = create(1)
        stream.append(rows(1, 2, 3))
        stream.append(rows(1, 2, 3, p="b"))
        rewrite_manifests(stream, edit_listed=lambda manifest: _forget(manifest, name))
        stream.upgrade(version)
        stream.append(rows(4))
        stream.delete_where_equal(rows(2, 3), ["id"])
        expected = Counter({(1, "a"): 1, (4, "a"): 1, (1, "b"): 1, (2, "b"): 1, (3, "b"): 1})
        assert oracle.rows(stream.table) == expected
        report = jobs.run()
        assert_converted(stream, report, expected)
        ids = [file.first_row_id for file in sorted(stream.data_files(), key=lambda file: file.first_row_id or 0)]
        if version == 3:
            counts = {file.first_row_id: file.record_count for file in stream.data_files()}
            ends = [(start or 0) + counts[start] for start in ids]
            assert all(end <= (start or 0) for end, start in zip(ends, ids[1:], strict=False)), "no id is given twice"

    @pytest.mark.parametrize("field", ["partitions", "key_metadata"])
    def test_a_summary(self, field: str, stream: StreamTable, jobs: Jobs) -> None:
        rewrite_manifests(stream, edit_listed=lambda manifest: _forget(manifest, field))
        assert_converted(stream, jobs.run())


def test_positions_of_several_files_without_bounds(create: Create, jobs: Jobs) -> None:
    """Which data files a position delete file is for is then told by its rows alone."""
    stream = create(2)
    fill(stream)
    files = {data(stream)[1].path: [0], data(stream)[0].path: [0]}
    stream.commit(RowDelta(stream.write_position_deletes(files, by_partition=True)))
    expected = oracle.rows(stream.table)
    rewrite_manifests(stream, lambda entry: (without(*_OPTIONAL)(entry), without_file_number(entry)))
    assert oracle.rows(stream.table) == expected
    report: Report = jobs.run(asked(jobs, options={"delete-file-threshold": "1"}))
    assert_compacted(stream, report, expected)
    assert equality(stream) == []
    assert not [file for file in stream.delete_files() if file.content == DataFileContent.POSITION_DELETES]
    assert unreferenced(stream.table) == set()


def _forget(manifest: ManifestFile, name: str) -> None:
    positions: dict[str, Any] = {"partitions": 13, "key_metadata": 14} | {c: 7 + n for n, c in enumerate(_COUNTS)}
    manifest[positions[name]] = None
