"""Files that cannot be used: named, nothing of their unit committed, the other units not held up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from producer.iceberg.manifest_entry import LiveFile, NewFile, new_data_file
from producer.model.job import Report, Status
from tasks.testing import RowDelta, StreamTable
from tests.integration.conftest import Create
from tests.support.scenario import run
from tests.support.unreferenced import unreferenced

pytestmark = pytest.mark.spark

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "part", StringType(), required=False))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
ROWS = [(i, part) for part in "ab" for i in range(100)]


def table(*rows: tuple[int, str]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, t) for c, t in zip(columns, (pa.int64(), pa.string()), strict=True)], ["id", "part"])


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def only(stream: StreamTable, content: DataFileContent, part: str = "a") -> LiveFile:
    (found,) = (f for f in stream.files() if f.content == content and f.data_file.partition[0] == part)
    return found


def convert(stream: StreamTable, **asked: Any) -> Report:
    """One unit for each partition."""
    return run(stream, unit_mb=1, **asked)


def check_partial(stream: StreamTable, report: Report, named: str, *words: str) -> None:
    """Partition a failed and says why, b is converted."""
    assert report.status is Status.PARTIAL, report
    (failure,) = report.failures
    assert local(named).name in failure.reason
    for word in words:
        assert word in failure.reason
    assert failure.partition == "part=a"
    assert report.added_position_deletes == 1
    remaining = [f for f in stream.files() if f.content == DataFileContent.EQUALITY_DELETES]
    assert [file.data_file.partition[0] for file in remaining] == ["a"]
    assert not {path for path in unreferenced(stream.table, metadata_files=False) if "_icefleet" not in path}


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda path: path.unlink(), "missing"),
    "empty": (lambda path: path.write_bytes(b""), "Parquet"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-7]), "Parquet"),
    "another format": (lambda path: path.write_bytes(b"Obj\x01" + path.read_bytes()[4:-4] + b"\0\0\0\0"), "Avro"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("content", [DataFileContent.DATA, DataFileContent.EQUALITY_DELETES], ids=["data", "deletes"])
def test_a_file_that_cannot_be_read(create: Create, content: DataFileContent, damage: str) -> None:
    made = create(SCHEMA, spec=BY_PART)
    made.append(table(*ROWS, *ROWS))
    made.delete_where_equal(table((1, "b")), ["id"])
    made.delete_where_equal(table((1, "a"), (5, "a")), ["id"])
    broken = only(made, content).path
    DAMAGE[damage][0](local(broken))
    report = convert(made, all_or_nothing=True)
    assert report.status is Status.FAILED
    assert broken.removeprefix("file://") in str(report.reason)
    assert {file.content for file in made.delete_files()} == {DataFileContent.EQUALITY_DELETES}
    assert not {path for path in unreferenced(made.table, metadata_files=False) if "_icefleet" in path}


@pytest.mark.parametrize("damage", ["missing", "cut off"])
def test_the_other_units_go_on(create: Create, version: int, damage: str) -> None:
    """Two partitions of more than a megabyte of keys each; the delete file of one is broken, and mended later."""
    stream = create(SCHEMA, version, spec=BY_PART)
    numbers = np.random.default_rng(1).integers(2**62, size=400_000)
    for part, own in zip("ab", np.split(numbers, 2), strict=True):
        stream.append(pa.table({"id": own, "part": [part] * len(own)}))
        stream.delete_where_equal(pa.table({"id": own[:1], "part": [part]}), ["id"])
    delete = only(stream, DataFileContent.EQUALITY_DELETES).path
    kept = local(delete).read_bytes()
    DAMAGE[damage][0](local(delete))
    report = convert(stream)
    assert report.units == 2
    check_partial(stream, report, delete)
    local(delete).write_bytes(kept)
    assert convert(stream).status is Status.COMMITTED
    assert sum(file.record_count for file in stream.delete_files()) == 2
    assert {file.content for file in stream.delete_files()} == {DataFileContent.POSITION_DELETES}
    assert not unreferenced(stream.table, metadata_files=False)


def as_format(file: NewFile, format_: FileFormat, **more: Any) -> NewFile:
    """The same file under another format in its manifest entry."""
    record = file.data_file
    return NewFile(
        new_data_file(
            content=record.content,
            file_path=record.file_path,
            file_format=format_,
            partition=record.partition,
            record_count=record.record_count,
            file_size_in_bytes=record.file_size_in_bytes,
            equality_ids=record.equality_ids,
            **more,
        ),
        file.spec_id,
    )


@pytest.mark.parametrize("format_", [FileFormat.AVRO, FileFormat.ORC])
@pytest.mark.parametrize("kind", ["data", "deletes"])
def test_other_formats_are_refused_before_anything_is_written(create: Create, kind: str, format_: FileFormat) -> None:
    made = create(SCHEMA, 3, spec=BY_PART)
    made.append(table((1, "b"), (2, "b"), (2, "a")))
    if kind == "data":
        (other,) = made.write_data(table((1, "a")))
        made.commit(RowDelta([as_format(other, format_)]))
        deletes = made.write_equality_deletes(table((1, "a"), (1, "b")), ["id"])
        made.commit(RowDelta(deletes))
    else:
        first, second = made.write_equality_deletes(table((2, "a"), (1, "b")), ["id"])
        other = first if first.data_file.partition[0] == "a" else second
        made.commit(RowDelta([as_format(f, format_) if f is other else f for f in (first, second)]))
    report = convert(made)
    check_partial(made, report, other.data_file.file_path, format_.value, "Parquet")
    (vector,) = (file for file in made.delete_files() if file.is_vector)
    assert vector.data_file.partition[0] == "b"


def bare(path: Path, offset: int, size: int) -> None:
    """The blob alone, without the container."""
    path.write_bytes(path.read_bytes()[offset : offset + size])


def flipped(path: Path, offset: int, size: int) -> None:
    """One bit of the bitmap."""
    content = bytearray(path.read_bytes())
    content[offset + size - 6] ^= 1
    path.write_bytes(content)


def cut(path: Path, offset: int, size: int) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def gone(path: Path, offset: int, size: int) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "word"), [(bare, "Puffin"), (flipped, "checksum"), (cut, "Puffin"), (gone, "missing")]
)
def test_a_vector_that_cannot_be_merged(create: Create, damage: Callable[[Path, int, int], None], word: str) -> None:
    made = create(SCHEMA, 3)
    made.append(table(*ROWS))
    made.delete_vector({made.data_files()[0].path: [7, 8]})
    (vector,) = made.delete_files()
    made.delete_where_equal(pa.table({"id": [1]}), ["id"])
    damage(local(vector.path), vector.content_offset or 0, vector.content_size or 0)
    location = made.table.metadata_location
    report = convert(made)
    assert report.status is Status.FAILED
    (failure,) = report.failures
    assert local(vector.path).name in failure.reason
    assert word in failure.reason
    assert made.table.metadata_location == location
    assert not {path for path in unreferenced(made.table, metadata_files=False) if path != str(local(vector.path))}


def test_a_vector_of_another_cardinality(create: Create) -> None:
    made = create(SCHEMA, 3)
    made.append(table(*ROWS))
    (added,) = made.write_vectors({made.data_files()[0].path: [7, 8]}).added
    record = added.data_file
    wrong = new_data_file(
        content=record.content,
        file_path=record.file_path,
        file_format=FileFormat.PUFFIN,
        partition=record.partition,
        record_count=3,
        file_size_in_bytes=record.file_size_in_bytes,
        referenced_data_file=made.data_files()[0].path,
        content_offset=4,
        content_size_in_bytes=_blob_size(made, record.file_path),
    )
    made.commit(RowDelta([NewFile(wrong, added.spec_id)]))
    made.delete_where_equal(pa.table({"id": [1]}), ["id"])
    report = convert(made)
    assert report.status is Status.FAILED
    assert local(record.file_path).name in report.failures[0].reason
    assert "3" in report.failures[0].reason


def _blob_size(stream: StreamTable, path: str) -> int:
    from workers.formats.puffin import read_footer

    (blob,) = read_footer(stream.table.io, path).blobs
    assert blob.offset == 4
    return blob.length


def test_neither_field_ids_nor_a_mapping(create: Create) -> None:
    made = create(SCHEMA)
    made.append(table(*ROWS), field_ids=False)
    with made.table.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    made.delete_where_equal(pa.table({"id": [1]}), ["id"])
    report = convert(made)
    assert report.status is Status.FAILED
    assert made.data_files()[0].path in report.failures[0].reason
    assert "name-mapping" in report.failures[0].reason
