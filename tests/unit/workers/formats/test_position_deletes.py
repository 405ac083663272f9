from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType

from producer.model.staged import StagedDeleteFile
from workers.formats.parquet.position_delete_writer import ParquetPositionDeleteWriter
from workers.formats.position_deletes import FILE_PATH_ID, POS_ID, read_position_deletes
from workers.runtime.errors import CorruptFile, UnsupportedFile

FIXTURES = os.environ.get("ICEFLEET_FIXTURES", "")
golden = pytest.mark.skipif(not FIXTURES, reason="ICEFLEET_FIXTURES is unset: no files of other engines to read")

IO = PyArrowFileIO()
Deletes = list[tuple[str, list[int]]]


def write(path: Path, deletes: Deletes, properties: dict[str, str] | None = None) -> StagedDeleteFile:
    with ParquetPositionDeleteWriter(IO, str(path), properties or {}) as writer:
        for data_file, positions in deletes:
            writer.write(data_file, np.array(positions, dtype=np.int64))
        return writer.close(0)


def read(path: Path | str) -> list[tuple[str, int]]:
    batches = list(read_position_deletes(IO, str(path)))
    return [(row["file_path"], row["pos"]) for batch in batches for row in batch.to_pylist()]


def judge(path: Path) -> list[tuple[str, int]]:
    """The rows of a file as pyarrow sees them."""
    table = pq.read_table(path, page_checksum_verification=True)
    return list(zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True))


def reason(path: Path) -> str:
    with pytest.raises(CorruptFile) as caught:
        read(path)
    assert caught.value.path == str(path)
    return caught.value.reason


class FullIO(PyArrowFileIO):
    """Storage that takes some bytes and then no more."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def new_output(self, location: str) -> Any:
        target, full = super().new_output(location), self

        class Full(OutputFile):
            def __len__(self) -> int:
                return len(target)

            def exists(self) -> bool:
                return target.exists()

            def to_input_file(self) -> InputFile:
                return target.to_input_file()

            def create(self, overwrite: bool = False) -> Any:
                stream = target.create(overwrite)

                class Stream:
                    closed = False

                    def write(self, content: Any) -> int:
                        full.room -= len(content)
                        if full.room < 0:
                            raise OSError("no space left")
                        return int(stream.write(content))

                    def tell(self) -> int:
                        return int(stream.tell())

                    def close(self) -> None:
                        self.closed = True
                        stream.close()

                return Stream()

        return Full(location)


def test_a_file_is_described_in_full(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deletes.parquet"
    names = [f"s3://bucket/a-long-path-that-truncation-would-shorten/data-{number}.parquet" for number in range(3)]
    with ParquetPositionDeleteWriter(IO, str(path), {}) as writer:
        writer.write(names[0], np.array([5, 9]))
        writer.write(names[0], np.array([2**40]))
        writer.write(names[1], np.array([], dtype=np.int64))
        writer.write(names[2], np.array([0, 7]))
        staged = writer.close(3)

    footer = pq.read_metadata(path)
    assert judge(path) == [(names[0], 5), (names[0], 9), (names[0], 2**40), (names[2], 0), (names[2], 7)]
    group = footer.row_group(0)
    assert staged == StagedDeleteFile(
        path=str(path),
        size=path.stat().st_size,
        records=5,
        column_sizes={
            FILE_PATH_ID: group.column(0).total_compressed_size,
            POS_ID: group.column(1).total_compressed_size,
        },
        lower=(names[0], 0),
        upper=(names[2], 2**40),
        split_offsets=(4,),
        scope=3,
        targets=(names[0], names[2]),
    )


def test_the_columns_are_what_the_spec_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "deletes.parquet"
    write(path, [("a", [1, 2]), ("b", [1])])
    footer = pq.read_metadata(path)
    file_path, pos = footer.schema.column(0), footer.schema.column(1)
    assert (file_path.name, file_path.physical_type, file_path.logical_type.type) == (
        "file_path",
        "BYTE_ARRAY",
        "STRING",
    )
    assert (pos.name, pos.physical_type) == ("pos", "INT64")
    # Required: neither values nor lists may be missing.
    assert [(column.max_definition_level, column.max_repetition_level) for column in (file_path, pos)] == [(0, 0)] * 2
    fields = pq.read_schema(path)
    assert [field.metadata[b"PARQUET:field_id"] for field in fields] == [b"2147483546", b"2147483545"]
    assert footer.row_group(0).column(0).has_dictionary_page
    assert footer.row_group(0).column(0).compression == "ZSTD"

    assert set(footer.metadata) == {b"delete-type", b"iceberg.schema"}
    assert footer.metadata[b"delete-type"] == b"position"
    schema = Schema.model_validate(json.loads(footer.metadata[b"iceberg.schema"]))
    assert [(field.field_id, field.name, field.field_type, field.required) for field in schema.fields] == [
        (2147483546, "file_path", StringType(), True),
        (2147483545, "pos", LongType(), True),
    ]


def test_millions_of_positions_go_into_several_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "deletes.parquet"
    with ParquetPositionDeleteWriter(IO, str(path), {}) as writer:
        writer.write("a", np.arange(10))
        writer.write("a", np.arange(10, 2_300_000, dtype=np.int64))
        writer.write("b", np.arange(0, 400_000, 2, dtype=np.int64))
        staged = writer.close(0)
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    assert [group.num_rows for group in groups] == [1_000_000, 1_000_000, 500_000]
    assert staged.records == footer.num_rows == 2_500_000
    assert staged.split_offsets == tuple(group.column(0).dictionary_page_offset for group in groups)
    assert staged.column_sizes[POS_ID] == sum(group.column(1).total_compressed_size for group in groups)

    batches = list(read_position_deletes(IO, str(path)))
    assert max(len(batch) for batch in batches) <= 1_000_000
    table = pa.Table.from_batches(batches)
    positions = table["pos"].to_numpy()
    assert np.array_equal(positions[:2_300_000], np.arange(2_300_000))
    assert np.array_equal(positions[2_300_000:], np.arange(0, 400_000, 2))
    assert [entry["counts"] for entry in table["file_path"].value_counts().to_pylist()] == [2_300_000, 200_000]


def test_many_paths_outgrow_the_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "deletes.parquet"
    names = sorted(f"s3://bucket/{'folder/' * 20}{number}.parquet" for number in range(20_000))
    staged = write(path, [(name, [0, 3]) for name in names])
    assert judge(path) == [(name, position) for name in names for position in (0, 3)]
    assert (staged.lower[0], staged.upper[0]) == (names[0], names[-1])


@pytest.mark.parametrize(
    ("properties", "codec"),
    [
        ({}, "ZSTD"),
        ({"write.parquet.compression-codec": "gzip"}, "GZIP"),
        ({"write.parquet.compression-codec": "gzip", "write.delete.parquet.compression-codec": "Snappy"}, "SNAPPY"),
        ({"write.delete.parquet.compression-codec": "uncompressed"}, "UNCOMPRESSED"),
        ({"write.delete.parquet.compression-codec": "brotli", "write.parquet.compression-level": "2"}, "BROTLI"),
        ({"write.parquet.compression-codec": "lz4", "write.parquet.compression-level": "2"}, "LZ4"),
    ],
)
def test_table_properties_choose_the_codec(tmp_path: Path, properties: dict[str, str], codec: str) -> None:
    path = tmp_path / "deletes.parquet"
    write(path, [("a", [1])], properties)
    group = pq.read_metadata(path).row_group(0)
    assert [group.column(number).compression for number in (0, 1)] == [codec, codec]
    assert judge(path) == [("a", 1)]


def test_the_level_of_delete_files_comes_before_that_of_all_files(tmp_path: Path) -> None:
    deletes: Deletes = [("a", list(range(0, 300_000, 3)))]
    weak = write(tmp_path / "weak", deletes, {"write.parquet.compression-level": "1"})
    strong = write(tmp_path / "strong", deletes, {"write.parquet.compression-level": "19"})
    both = {"write.parquet.compression-level": "19", "write.delete.parquet.compression-level": "1"}
    assert write(tmp_path / "both", deletes, both).column_sizes == weak.column_sizes != strong.column_sizes


@pytest.mark.parametrize(
    "properties",
    [
        {"write.delete.parquet.compression-codec": "lzo"},
        {"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": "77"},
        {"write.parquet.compression-level": "high"},
    ],
)
def test_codecs_that_do_not_exist_are_refused_at_once(tmp_path: Path, properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="Parquet compression codec"):
        ParquetPositionDeleteWriter(IO, str(tmp_path / "deletes.parquet"), properties)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("deletes", "expected"),
    [
        ([("b", [1]), ("a", [2])], "paths must ascend"),
        ([("a", [1]), ("b", [1]), ("a", [2])], "paths must ascend"),
        ([("a", [2, 1])], "do not ascend"),
        ([("a", [1, 1])], "do not ascend"),
        ([("a", [-1, 1])], "negative"),
        ([("a", [1, 5]), ("a", [5])], "comes after 5"),
        ([], "no rows"),
        ([("a", [])], "no rows"),
    ],
)
def test_unsorted_input_is_refused_and_leaves_no_file(tmp_path: Path, deletes: Deletes, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        write(tmp_path / "deletes.parquet", deletes)
    assert list(tmp_path.iterdir()) == []


def test_paths_ascend_by_their_bytes(tmp_path: Path) -> None:
    # In UTF-16 the second would come first.
    path = tmp_path / "deletes.parquet"
    write(path, [("\uff5e", [1]), ("\U0001f600", [1])])
    assert read(path) == [("\uff5e", 1), ("\U0001f600", 1)]


@pytest.mark.parametrize("closed", [False, True])
def test_an_error_in_the_block_removes_the_file(tmp_path: Path, closed: bool) -> None:
    path = tmp_path / "deletes.parquet"

    def fail() -> None:
        with ParquetPositionDeleteWriter(IO, str(path), {}) as writer:
            writer.write("a", np.arange(1_000_001))
            assert path.exists()
            if closed:
                writer.close(0)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_not_closed_is_removed(tmp_path: Path) -> None:
    with ParquetPositionDeleteWriter(IO, str(tmp_path / "deletes.parquet"), {}) as writer:
        writer.write("a", np.arange(1_000_001))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="is closed"):
        writer.write("a", np.array([5_000_000]))
    with pytest.raises(ValueError, match="is closed"):
        writer.close(0)


@pytest.mark.parametrize("room", [0, 4, 300, 800])
def test_storage_that_fails_leaves_no_file(tmp_path: Path, room: int) -> None:
    path = tmp_path / "deletes.parquet"

    def fail() -> None:
        with ParquetPositionDeleteWriter(FullIO(room), str(path), {}) as writer:
            writer.write("a", np.arange(100))
            writer.close(0)

    with pytest.raises(OSError, match="no space left"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_stays(tmp_path: Path) -> None:
    path = tmp_path / "deletes.parquet"
    path.write_bytes(b"of another attempt")
    with pytest.raises(FileExistsError):
        write(path, [("a", [1])])
    assert path.read_bytes() == b"of another attempt"


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        st.sets(
            st.one_of(st.integers(0, 50), st.integers(2**31 - 3, 2**32 + 3), st.integers(0, 2**63 - 1)), min_size=1
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_deletes_survive_the_file(tmp_path_factory: pytest.TempPathFactory, deletes: dict[str, set[int]]) -> None:
    path = tmp_path_factory.mktemp("deletes") / "deletes.parquet"
    ordered = [(name, sorted(positions)) for name, positions in sorted(deletes.items())]
    staged = write(path, ordered)
    rows = [(name, position) for name, positions in ordered for position in positions]
    assert read(path) == judge(path) == rows
    assert (staged.lower[0], staged.upper[0]) == (min(deletes), max(deletes))
    positions = [position for _, position in rows]
    assert (staged.lower[1], staged.upper[1], staged.records) == (min(positions), max(positions), len(rows))


@golden
def test_a_stored_row_is_not_read() -> None:
    folder = Path(FIXTURES) / "impala" / "v2" / "iceberg_v2_partitioned_position_deletes" / "data"
    files = sorted(folder.glob("*/*delete*.parquet"))
    assert len(files) == 3
    for path in files:
        assert pq.read_schema(path).names == ["file_path", "pos", "row"]
        assert read(path) == judge(path)
    assert [position for path in files for _, position in read(path)] == [0, 2, 4, 1, 4, 1, 2, 4, 5, 6]


@golden
def test_optional_columns_are_read() -> None:
    folder = Path(FIXTURES) / "impala" / "v2" / "iceberg_v2_delete_both_eq_and_pos" / "data"
    (path,) = folder.glob("delete-*")
    assert pq.read_schema(path).field("pos").nullable
    assert [position for _, position in read(path)] == [0]


def store(path: Path, columns: dict[str, pa.Array], ids: dict[str, int] | None = None) -> Path:
    fields = [
        pa.field(name, column.type, metadata={"PARQUET:field_id": str(ids[name])} if ids and name in ids else None)
        for name, column in columns.items()
    ]
    pq.write_table(pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields)), path)
    return path


def test_columns_are_found_by_id_and_else_by_name(tmp_path: Path) -> None:
    paths, positions, others = pa.array(["a", "b"]), pa.array([3, 4]), pa.array([["x"], ["y"]])
    by_id = {"pos": others, "where": positions, "file_path": others, "what": paths}
    ids = {"pos": 1, "where": POS_ID, "what": FILE_PATH_ID}
    assert read(store(tmp_path / "ids", by_id, ids)) == [("a", 3), ("b", 4)]
    assert read(store(tmp_path / "names", {"pos": positions, "file_path": paths})) == [("a", 3), ("b", 4)]


def test_other_types_of_the_same_values_are_read(tmp_path: Path) -> None:
    columns = {"file_path": pa.array([b"a", b"b"]), "pos": pa.array([3, 4], pa.int32())}
    assert read(store(tmp_path / "plain", columns)) == [("a", 3), ("b", 4)]
    encoded = {"file_path": pa.array(["a", "a"]).dictionary_encode(), "pos": pa.array([3, 4])}
    assert read(store(tmp_path / "dictionary", encoded)) == [("a", 3), ("a", 4)]
    empty = {"file_path": pa.array([], pa.string()), "pos": pa.array([], pa.int64())}
    assert read(store(tmp_path / "empty", empty)) == []


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"file_path": pa.array(["a"])}, "no column pos"),
        ({"pos": pa.array([1])}, "no column file_path"),
        ({"file_path": pa.array(["a", None]), "pos": pa.array([1, 2])}, "no path or no position"),
        ({"file_path": pa.array(["a", "b"]), "pos": pa.array([1, None])}, "no path or no position"),
        ({"file_path": pa.array(["a", "b"]), "pos": pa.array([1, -2])}, "negative"),
        ({"file_path": pa.array([["a"]]), "pos": pa.array([1])}, "no paths and positions"),
        ({"file_path": pa.array([b"\xff"]), "pos": pa.array([1])}, "no paths and positions"),
        ({"file_path": pa.array(["a"]), "pos": pa.array([True])}, "positions are of type bool"),
        ({"file_path": pa.array(["a"]), "pos": pa.array([[1]])}, "positions are of type list"),
    ],
)
def test_wrong_columns_say_what_is_wrong(tmp_path: Path, columns: dict[str, pa.Array], expected: str) -> None:
    assert expected in reason(store(tmp_path / "deletes.parquet", columns))


def test_ids_without_the_two_columns_are_corrupt(tmp_path: Path) -> None:
    columns = {"file_path": pa.array(["a"]), "pos": pa.array([1])}
    path = store(tmp_path / "deletes.parquet", columns, {"file_path": FILE_PATH_ID, "pos": 2})
    assert "field id 2147483545" in reason(path)


def test_missing_and_broken_files_are_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "deletes.parquet"
    assert "missing" in reason(path)
    write(path, [("a", list(range(100)))])
    content = path.read_bytes()
    for length in (0, 3, 4, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert reason(path)
    path.write_bytes(bytes(4) + content[4:300].replace(b"a", b"\xff") + bytes(len(content) - 300))
    assert reason(path)
    path.write_bytes(b"Obj\x01 and so on, as Avro does")
    with pytest.raises(UnsupportedFile, match="Avro"):
        read(path)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_flipped_bits_in_the_pages_are_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("flipped") / "deletes.parquet"
    staged = write(path, [("s3://a", [1, 2, 3]), ("s3://b", list(range(0, 1000, 7)))])
    content = bytearray(path.read_bytes())
    right = judge(path)
    bit = data.draw(st.integers(staged.split_offsets[0] * 8, (4 + sum(staged.column_sizes.values())) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    try:
        rows = judge(path)
    except (OSError, pa.ArrowException):
        return
    # Page headers have statistics that no reader needs.
    assert rows == right
