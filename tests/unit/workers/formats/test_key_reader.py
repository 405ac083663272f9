"""Reading of key columns: by field id, whatever the names, types and shapes of a file."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import FileFormat
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    UUIDType,
)

from workers.arrow.fields import leaves
from workers.formats.format_model import Bounds, format_model
from workers.formats.key_reader import KeyBatch, KeyReader
from workers.model.delete_set import ContentFile, FileSplit, KeyColumn
from workers.runtime.errors import CorruptFile, DataError, UnsupportedFile

IO = PyArrowFileIO()
ID = KeyColumn(1, LongType())


def field(name: str, type_: pa.DataType, field_id: int | None) -> pa.Field:
    return pa.field(name, type_, metadata=None if field_id is None else {"PARQUET:field_id": str(field_id)})


class Files:
    """Writes Parquet files into a folder, and reads keys from them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, fields: list[pa.Field], columns: list[list[Any]], **options: Any) -> str:
        path = str(self.folder / f"{len(list(self.folder.iterdir()))}.parquet")
        arrays = [pa.array(values, f.type) for values, f in zip(columns, fields, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), path, **options)
        return path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def reader(*columns: KeyColumn, mapping: NameMapping | None = None, batch_bytes: int = 1 << 20) -> KeyReader:
    return KeyReader(IO, columns, mapping, batch_bytes)


def key_file(path: str, **constants: Any) -> FileSplit:
    values = {int(name[1:]): value for name, value in constants.items()}
    return FileSplit(ContentFile(0, path, 1, 0, 1, 1, constants=values))


def rows(batches: Any) -> list[tuple[Any, ...]]:
    """All keys of a file, one tuple for each row."""
    return [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]


def read(path: str, *columns: KeyColumn, mapping: NameMapping | None = None, **constants: Any) -> list[tuple[Any, ...]]:
    return rows(reader(*columns, mapping=mapping).read(key_file(path, **constants)))


def failure(path: str, *columns: KeyColumn, required: bool = False) -> DataError:
    with pytest.raises(DataError) as caught:
        rows(reader(*columns or (ID,)).read(key_file(path), required=required))
    assert caught.value.path == path
    assert path in str(caught.value)
    return caught.value


# -- which column ---------------------------------------------------------------------------------------------


def test_columns_are_found_by_id_in_the_order_asked_for(files: Files) -> None:
    path = files.write(
        [field("b", pa.string(), 2), field("other", pa.int64(), 9), field("renamed", pa.int64(), 1)],
        [["x", "y"], [0, 0], [1, 2]],
    )
    assert read(path, ID, KeyColumn(2, StringType())) == [(1, "x"), (2, "y")]
    assert read(path, KeyColumn(2, StringType()), ID) == [("x", 1), ("y", 2)]


def test_the_same_name_with_another_id_is_another_column(files: Files) -> None:
    """Dropped, and added again under its old name."""
    path = files.write([field("id", pa.int64(), 5)], [[1, 2]])
    assert read(path, ID) == [(None,), (None,)]


def test_names_may_repeat(files: Files) -> None:
    path = files.write([field("id", pa.int64(), 7), field("id", pa.int64(), 1)], [[70, 80], [1, 2]])
    assert read(path, ID) == [(1,), (2,)]
    assert read(path, ID, KeyColumn(7, LongType())) == [(1, 70), (2, 80)]


def test_dots_in_names_are_no_structs(files: Files) -> None:
    inner = pa.struct([field("b", pa.int64(), 3)])
    path = files.write(
        [field("a", inner, 2), field("a.b", pa.int64(), 1), field("c.d", pa.int64(), 4)],
        [[{"b": 30}, None], [1, 2], [5, 6]],
    )
    assert read(path, ID) == [(1,), (2,)]
    assert read(path, KeyColumn(3, LongType())) == [(30,), (None,)]
    assert read(path, KeyColumn(4, LongType()), KeyColumn(3, LongType()), ID) == [(5, 30, 1), (6, None, 2)]


def test_nested_keys_are_null_where_a_struct_above_is(files: Files) -> None:
    inner = pa.struct([field("x", pa.string(), 4), field("key", pa.int64(), 1)])
    outer = pa.struct([field("first", pa.int64(), 9), field("inner", inner, 3)])
    path = files.write(
        [field("outer", outer, 2), field("list", pa.list_(field("element", pa.int64(), 6)), 5)],
        [[{"inner": {"key": 1}}, {"inner": {"key": None}}, {"inner": None}, None, {"inner": {"key": 5}}], [None] * 5],
    )
    assert read(path, ID) == [(1,), (None,), (None,), (None,), (5,)]
    assert rows(reader(ID).read(key_file(path)))[1:4] == [(None,)] * 3


def test_fields_of_lists_and_maps_are_no_keys(files: Files) -> None:
    path = files.write([field("list", pa.list_(field("element", pa.int64(), 1)), 5)], [[[1], [2]]])
    assert read(path, ID) == [(None,), (None,)]


# -- columns that are missing ---------------------------------------------------------------------------------


def test_a_missing_column_is_the_partitions_value_then_the_default_then_null(files: Files) -> None:
    path = files.write([field("other", pa.int64(), 2)], [[1, 2]])
    default = KeyColumn(1, LongType(), 7)
    assert read(path, default, c1=5) == [(5,), (5,)]
    assert read(path, default) == [(7,), (7,)]
    assert read(path, ID) == [(None,), (None,)]
    assert read(path, KeyColumn(2, LongType()), default) == [(1, 7), (2, 7)]


def test_a_column_that_is_there_counts_before_partition_and_default(files: Files) -> None:
    path = files.write([field("id", pa.int64(), 1)], [[1, None]])
    assert read(path, KeyColumn(1, LongType(), 7), c1=5) == [(1,), (None,)]


def test_a_null_of_the_partition_is_a_null(files: Files) -> None:
    path = files.write([field("other", pa.int64(), 2)], [[1]])
    assert read(path, KeyColumn(1, LongType(), 7), c1=None) == [(None,)]


@pytest.mark.parametrize(
    ("type_", "default", "expected"),
    [
        (DateType(), datetime.date(1970, 1, 2), 1),
        (DateType(), "1970-01-02", 1),
        (DecimalType(9, 2), "1.50", Decimal("1.50")),
        (UUIDType(), "f79c3e09-677c-4bbd-a479-3f349cb785e7", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")),
        (TimestampNanoType(), "1970-01-01T00:00:00.000000001", 1),
    ],
    ids=str,
)
def test_defaults_of_every_kind(files: Files, type_: PrimitiveType, default: Any, expected: Any) -> None:
    path = files.write([field("other", pa.int64(), 2)], [[1, 2]])
    assert read(path, KeyColumn(1, type_, default)) == [(expected,)] * 2


def test_a_default_inside_a_struct_counts_where_the_struct_is_not_null(files: Files) -> None:
    inner = pa.struct([field("x", pa.int64(), 4)])
    outer = pa.struct([field("inner", inner, 3)])
    path = files.write(
        [field("outer", outer, 2)], [[{"inner": {"x": None}}, {"inner": None}, None, {"inner": {"x": 1}}]]
    )
    column = KeyColumn(1, LongType(), 7, parent=3)
    assert read(path, column) == [(7,), (None,), (None,), (7,)]
    assert read(path, column, c1=5) == [(5,)] * 4
    assert read(path, KeyColumn(1, LongType(), None, parent=3)) == [(None,)] * 4
    assert read(path, KeyColumn(1, LongType(), 7, parent=2)) == [(7,), (7,), (None,), (7,)]
    assert read(path, KeyColumn(1, LongType(), 7, parent=9), KeyColumn(4, LongType())) == [
        (None, None), (None, None), (None, None), (None, 1)]  # fmt: skip


def test_a_file_of_constants_alone_gives_every_row_and_its_position(files: Files) -> None:
    path = files.write([field("other", pa.int64(), 2)], [list(range(10))], row_group_size=4)
    found = list(reader(ID).read(key_file(path, c1=5)))
    assert [(batch.start, len(batch)) for batch in found] == [(0, 4), (4, 4), (8, 2)]


def test_a_delete_file_must_have_its_key_columns(files: Files) -> None:
    path = files.write([field("other", pa.int64(), 2)], [[1]])
    error = failure(path, required=True)
    assert isinstance(error, CorruptFile)
    assert "without its key column 1" in error.reason
    given = key_file(path, c1=5)
    assert rows(reader(ID).read(given, required=True)) == [(5,)]


# -- files without field ids ----------------------------------------------------------------------------------

MAPPING = parse_mapping_from_json(
    """[
        {"field-id": 1, "names": ["id", "was id"]},
        {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["key"]}]}
    ]"""
)


def test_columns_are_found_through_the_name_mapping(files: Files) -> None:
    struct = pa.struct([field("key", pa.string(), None)])
    path = files.write([field("s", struct, None), field("was id", pa.int64(), None)], [[{"key": "x"}, None], [1, 2]])
    assert read(path, ID, KeyColumn(3, StringType()), mapping=MAPPING) == [(1, "x"), (2, None)]


def test_a_name_that_the_mapping_lacks_is_a_missing_column(files: Files) -> None:
    path = files.write([field("ID", pa.int64(), None)], [[1]])
    assert read(path, ID, mapping=MAPPING) == [(None,)]
    assert read(path, KeyColumn(1, LongType(), 7), mapping=MAPPING) == [(7,)]


def test_the_mapping_is_not_asked_where_there_are_ids(files: Files) -> None:
    path = files.write([field("id", pa.int64(), 9), field("x", pa.int64(), None)], [[1], [1]])
    assert read(path, ID, mapping=MAPPING) == [(None,)]


def test_neither_ids_nor_mapping(files: Files) -> None:
    error = failure(files.write([field("id", pa.int64(), None)], [[1]]))
    assert isinstance(error, UnsupportedFile)
    assert "schema.name-mapping.default" in error.reason


# -- types ----------------------------------------------------------------------------------------------------


def test_promoted_types(files: Files) -> None:
    fields = [field("i", pa.int32(), 1), field("d", pa.date32(), 2), field("f", pa.float32(), 3)]
    path = files.write(fields, [[-7], [datetime.date(1970, 1, 2)], [0.5]])
    assert read(path, ID, KeyColumn(2, TimestampType())) == [(-7, 86_400_000_000)]


def test_a_type_that_promotes_to_nothing_here(files: Files) -> None:
    error = failure(files.write([field("id", pa.string(), 1)], [["1"]]))
    assert isinstance(error, CorruptFile)
    assert "its column 1 holds string where the table has long" in error.reason
    wide = failure(files.write([field("id", pa.int64(), 1)], [[2**31]]), KeyColumn(1, IntegerType()))
    assert isinstance(wide, CorruptFile)


def test_dictionaries_and_large_types(files: Files) -> None:
    text = pa.array(["a", "b", None, "a"])
    table = pa.Table.from_arrays(
        [text.dictionary_encode(), text.cast(pa.large_string())],
        schema=pa.schema([field("d", pa.dictionary(pa.int32(), pa.string()), 1), field("l", pa.large_string(), 2)]),
    )
    path = str(files.folder / "dictionary.parquet")
    pq.write_table(table, path)
    expected = [("a", "a"), ("b", "b"), (None, None), ("a", "a")]
    assert read(path, KeyColumn(1, StringType()), KeyColumn(2, StringType())) == expected


@pytest.mark.parametrize(("type_", "factor"), [(TimestampType(), 1), (TimestampNanoType(), 1000)], ids=str)
def test_timestamps_of_96_bits(files: Files, type_: PrimitiveType, factor: int) -> None:
    """Old Spark and Impala; years that nanoseconds do not reach are read for a microsecond column."""
    moments = [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.datetime(2024, 5, 1)]
    expected = [-1 * factor, 1_714_521_600_000_000 * factor]
    if factor == 1:
        moments.append(datetime.datetime(9999, 1, 1))
        expected.append(253_370_764_800_000_000)
    path = files.write(
        [field("t", pa.timestamp("us"), 1)], [moments], use_deprecated_int96_timestamps=True, store_schema=False
    )
    assert pq.read_metadata(path).schema.column(0).physical_type == "INT96"
    assert read(path, KeyColumn(1, type_)) == [(value,) for value in expected]


# -- positions, batches, shares -------------------------------------------------------------------------------


def positions(batches: Any) -> list[tuple[int, Any]]:
    return [(batch.start + i, key) for batch in batches for i, key in enumerate(batch.columns[0].to_pylist())]


def test_positions_are_those_of_the_file_not_of_the_row_group(files: Files) -> None:
    path = files.write([field("id", pa.int64(), 1)], [list(range(100, 200))], row_group_size=7)
    assert positions(reader(ID).read(key_file(path))) == list(zip(range(100), range(100, 200), strict=True))


@pytest.mark.parametrize("parts", [1, 2, 3, 50])
def test_shares_of_row_groups_are_the_whole_file(files: Files, parts: int) -> None:
    path = files.write([field("id", pa.int64(), 1)], [list(range(100))], row_group_size=7)
    found = [positions(reader(ID).read(replace(key_file(path), number=part, count=parts))) for part in range(parts)]
    assert sorted(pair for share in found for pair in share) == [(n, n) for n in range(100)]
    assert sum(1 for share in found if share) == min(parts, 15)


def test_row_groups_that_are_not_kept_still_count(files: Files) -> None:
    path = files.write([field("id", pa.int64(), 1)], [list(range(100))], row_group_size=10)
    kept = reader(ID).read(key_file(path), bounds=[Bounds(50, 55)])
    assert positions(kept) == [(n, n) for n in range(50, 60)]


def test_batches_hold_about_as_many_bytes_as_allowed(files: Files) -> None:
    path = files.write([field("id", pa.string(), 1)], [[f"{n:0100d}" for n in range(20_000)]], compression="zstd")
    column = KeyColumn(1, StringType())
    few = list(reader(column, batch_bytes=500_000).read(key_file(path)))
    assert max(sum(array.nbytes for array in batch.columns) for batch in few) <= 700_000
    assert [batch.start for batch in few] == [sum(map(len, few[:i])) for i in range(len(few))]
    assert sum(map(len, few)) == 20_000


def test_empty_files(files: Files) -> None:
    assert read(files.write([field("id", pa.int64(), 1)], [[]]), ID) == []
    path = str(files.folder / "none.parquet")
    with pq.ParquetWriter(path, pa.schema([field("id", pa.int64(), 1)])):
        pass
    assert pq.read_metadata(path).num_row_groups == 0
    assert read(path, ID) == []
    assert len(KeyBatch(0, (pa.nulls(3),))) == 3


# -- files that cannot be read --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "name"), [(b"Obj\x01", "an Avro file"), (b"ORC", "an ORC file"), (b"PARE", "an encrypted Parquet file")]
)
def test_other_formats_under_the_name_of_parquet(files: Files, start: bytes, name: str) -> None:
    path = files.folder / "data.parquet"
    path.write_bytes(start + bytes(100))
    error = failure(str(path))
    assert isinstance(error, UnsupportedFile)
    assert name in error.reason


def test_a_missing_file(files: Files) -> None:
    error = failure(str(files.folder / "gone.parquet"))
    assert isinstance(error, CorruptFile)
    assert error.reason == "the file is missing"


@pytest.mark.parametrize("left", [0, 3, 50, -1])
def test_a_truncated_file(files: Files, left: int) -> None:
    path = Path(files.write([field("id", pa.int64(), 1)], [list(range(1000))]))
    path.write_bytes(path.read_bytes()[:left])
    assert isinstance(failure(str(path)), CorruptFile)


def test_bytes_that_were_flipped(files: Files) -> None:
    """The footer is sound, a page is not, and only its checksum tells."""
    values = [list(range(10_000))]
    written = files.write([field("id", pa.int64(), 1)], values, compression="none", write_page_checksum=True)
    path = Path(written)
    damaged = bytearray(path.read_bytes())
    damaged[5000] ^= 0xFF
    path.write_bytes(damaged)
    assert isinstance(failure(str(path)), CorruptFile)


def test_storage_that_fails_is_no_broken_file(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.write([field("id", pa.int64(), 1)], [[1]])

    def refuse(self: Any, location: str) -> Any:
        raise ConnectionResetError(104, "gone", location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", refuse)
    with pytest.raises(ConnectionResetError):
        read(path, ID)


@pytest.mark.parametrize("number", [0, 1, 7])
def test_statistics_of_another_column_rule_nothing_out(files: Files, number: int) -> None:
    """Should a type before the key have more or fewer column chunks than is known."""
    path = files.write([field("a", pa.int64(), 2), field("id", pa.int64(), 1)], [[100, 200], [1, 2]])
    with format_model(FileFormat.PARQUET).open(IO, path) as data:
        leaf = replace(leaves(data.arrow_schema, None)[1], column=number)
        bounds = Bounds(lower=150, upper=150)  # ruled out by the statistics of id, and not by those of a
        assert data.may_match(0, [ID], [leaf], [bounds]) is (number != 1)
        assert data.may_match(0, [ID], [leaf], [Bounds(lower=1, upper=1)])
