"""The deletes of a set of columns in scratch: each file read once, and what that says of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import DoubleType, LongType, StringType

from workers.deletes.bloom_filter import KeyFilter
from workers.deletes.delete_spool import Spool, key_hashes, key_names, spool
from workers.deletes.key_index import read_part
from workers.formats.format_model import Bounds
from workers.formats.key_reader import KeyReader
from workers.model.delete_set import ContentFile, EqualityDeletes, KeyColumn
from workers.runtime.context import Cancellation
from workers.runtime.errors import CorruptFile, Stopped
from workers.runtime.machine import Budget

MB = 1 << 20
BUDGET = Budget(2, 512 * MB, broadcast_bytes=32 * MB, batch_bytes=4 * MB, rows_bytes=8 * MB, index_bytes=8 * MB)
COLUMNS = (KeyColumn(1, LongType()), KeyColumn(2, StringType()))


def write(folder: Path, index: int, rows: Sequence[tuple[Any, Any]], seq: int = 2, scope: int = 0) -> ContentFile:
    fields = [pa.field(name, t, metadata={"PARQUET:field_id": n}) for n, name, t in
              [("1", "id", pa.int64()), ("2", "name", pa.string())]]  # fmt: skip
    arrays = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(fields)]
    path = folder / f"delete-{index}.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), path)
    return ContentFile(index, str(path), seq, scope, len(rows), path.stat().st_size)


def spooled(folder: Path, files: Sequence[ContentFile], is_global: bool = True, **options: Any) -> Spool:
    deletes = EqualityDeletes(COLUMNS, is_global, tuple(files))
    reader = KeyReader(PyArrowFileIO(), COLUMNS, None, 1 * MB)
    return spool(
        deletes, reader, folder / "spool", options.get("budget", BUDGET), options.get("cancellation", Cancellation())
    )


def rows_of(spooled: Spool) -> list[tuple[Any, ...]]:
    names = ["scope", "seq", *key_names(COLUMNS)]
    batches = [batch for part in spooled.paths for batch in read_part(part, names)]
    return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)


def test_all_rows_with_their_sequence_numbers_and_scopes(tmp_path: Path) -> None:
    files = [write(tmp_path, n, [(n, "a"), (None, f"b{n}")], seq=n + 5, scope=n % 3) for n in range(20)]
    found = spooled(tmp_path, files)
    expected = [(n % 3, n + 5, key, name) for n in range(20) for key, name in [(n, "a"), (None, f"b{n}")]]
    assert rows_of(found) == sorted(expected, key=repr)
    assert (found.rows, found.distinct, found.repeats) == (40, 40, False)
    assert found.bounds == (Bounds(0, 19, nulls=True), Bounds(b"a", b"b9"))


def test_keys_that_repeat_are_noticed(tmp_path: Path) -> None:
    found = spooled(tmp_path, [write(tmp_path, n, [(k, "x") for k in range(500)]) for n in range(10)])
    assert found.repeats
    assert found.distinct == pytest.approx(500, rel=0.05)
    once = spooled(tmp_path / "b", [write(_made(tmp_path / "b"), 0, [(k, "x") for k in range(5000)])])
    assert not once.repeats
    assert once.broadcast_bytes > 5000 * 64


@pytest.mark.parametrize("is_global", [True, False])
def test_the_filter_knows_scopes(tmp_path: Path, is_global: bool) -> None:
    files = [write(tmp_path, n, [(n, "a")], scope=n) for n in range(5)]
    keys = KeyFilter.open(spooled(tmp_path, files, is_global).filter)
    row = [pa.array([2]), pa.array(["a"])]
    inside, outside = files[2], files[3]
    assert keys.may_contain(key_hashes(is_global, inside, row)).all()
    assert keys.may_contain(key_hashes(is_global, outside, row)).all() == is_global


def test_files_without_rows(tmp_path: Path) -> None:
    found = spooled(tmp_path, [write(tmp_path, n, []) for n in range(3)])
    assert (found.rows, found.paths, found.repeats, found.broadcast_bytes) == (0, (), False, 0)


def test_floats_have_no_bounds(tmp_path: Path) -> None:
    field = pa.field("d", pa.float64(), metadata={"PARQUET:field_id": "3"})
    pq.write_table(pa.table([pa.array([1.0, float("nan")])], schema=pa.schema([field])), tmp_path / "d.parquet")
    column = (KeyColumn(3, DoubleType()),)
    deletes = EqualityDeletes(column, True, (ContentFile(0, str(tmp_path / "d.parquet"), 2, 0, 2, 1),))
    reader = KeyReader(PyArrowFileIO(), column, None, MB)
    assert spool(deletes, reader, tmp_path / "spool", BUDGET, Cancellation()).bounds == (None,)


def test_a_broken_file_ends_it(tmp_path: Path) -> None:
    files = [write(tmp_path, n, [(n, "a")]) for n in range(20)]
    Path(files[7].path).write_bytes(b"")
    with pytest.raises(CorruptFile) as error:
        spooled(tmp_path, files)
    assert error.value.path == files[7].path


def test_it_can_be_stopped(tmp_path: Path) -> None:
    cancellation = Cancellation()
    cancellation.set()
    with pytest.raises(Stopped):
        spooled(tmp_path, [write(tmp_path, 0, [(1, "a")])], cancellation=cancellation)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
