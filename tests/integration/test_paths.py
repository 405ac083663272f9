"""Data files whose paths hold emoji: readers find their deletes by the bounds of position delete files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent

from tasks.testing import RowDelta, StreamTable
from tests.integration.conftest import Create
from tests.support.scenario import check, multiset

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("file", pa.string())])
#: In the order of their code points and of their UTF-8 bytes. In UTF-16, by which Java compares strings, an emoji
#: begins with a surrogate and comes before the wide tilde.
NAMES = ("a", "\uff5e", "\U0001f600", "\U0001f600\U0001f680")


@pytest.fixture
def stream(create: Create, monkeypatch: pytest.MonkeyPatch) -> StreamTable:
    """A table of one file for each name, with the ids 0 to 3."""
    stream = create(SCHEMA, properties={"write.delete.granularity": "partition"})
    real = StreamTable._new_path
    for name in NAMES:

        def named(*of: Any, name: str = name) -> str:
            return f"{real(*of).rpartition('/')[0]}/{name}.parquet"

        with monkeypatch.context() as patch:
            patch.setattr(StreamTable, "_new_path", named)
            files = stream.write_data(pa.Table.from_pylist([{"id": n, "file": name} for n in range(4)], SCHEMA))
        stream.commit(RowDelta(files))
    return stream


def test_deletes_of_every_file_are_found(stream: StreamTable) -> None:
    """PyIceberg drops a position delete file whose bounds leave a data file's path out."""
    paths = [file.path for file in stream.data_files()]
    assert [path.rpartition("/")[2] for path in paths] == [f"{name}.parquet" for name in NAMES]
    assert sorted(paths) == sorted(paths, key=str.encode) == paths
    assert sorted(paths, key=lambda path: path.encode("utf-16-be")) != paths
    stream.delete_where_equal(pa.table({"id": [1, 2]}), ["id"])
    expected = [(n, name) for name in NAMES for n in (0, 3)]

    check(stream, expected, positions=8, files=1)

    [delete] = [file for file in stream.files() if file.content == DataFileContent.POSITION_DELETES]
    assert (delete.lower_bounds[2147483546], delete.upper_bounds[2147483546]) == (paths[0].encode(), paths[-1].encode())
    for task in stream.table.scan().plan_files():
        assert {deletes.file_path for deletes in task.delete_files} == {delete.path}, task.file.file_path
    read = stream.table.scan().to_arrow().to_pylist()
    assert multiset(row.values() for row in read) == multiset(expected)


def test_a_file_that_was_read_before_is_read_again(stream: StreamTable) -> None:
    """The position deletes of a first conversion are found when a second one leaves them out of what it writes."""
    stream.delete_where_equal(pa.table({"id": [1]}), ["id"])
    check(stream, [(n, name) for name in NAMES for n in (0, 2, 3)], positions=4, files=1)
    stream.delete_where_equal(pa.table({"id": [1, 2]}), ["id"])
    check(stream, [(n, name) for name in NAMES for n in (0, 3)], positions=4, files=1)
