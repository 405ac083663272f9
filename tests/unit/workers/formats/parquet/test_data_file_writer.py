from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionConfig, SessionContext
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO, pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, LongType, StringType, StructType

from producer.model.staged import StagedDataFile
from tests.support.anyrows import ARROW, SCHEMA, optional, plain, required, tables
from tests.support.memoryio import MemoryIO
from workers.arrow.schema import arrow_schema, cast_uuids
from workers.formats.parquet.data_file_writer import ParquetDataFileWriter

IO = PyArrowFileIO()
ROWS = 50_000

#: Numbers that never repeat, texts that often do, and what is inside a struct.
SIMPLE = Schema(
    required(1, "id", LongType()),
    optional(2, "text", StringType()),
    optional(3, "flag", BooleanType()),
    optional(4, "s", StructType(optional(5, "a.b", LongType()))),
)


def simple(rows: int = ROWS, start: int = 0) -> pa.Table:
    ids = np.random.default_rng(start).permutation(rows) + start
    columns = [
        pa.array(ids),
        pa.array([f"text {number % 1000}" for number in ids]),
        pa.array(ids % 2 == 0),
        pa.StructArray.from_arrays([pa.array(ids * 3)], fields=list(arrow_schema(SIMPLE).field("s").type)),
    ]
    return pa.table(columns, schema=arrow_schema(SIMPLE))


def write(path: Path, *groups: pa.Table, schema: Schema = SIMPLE, **properties: str) -> StagedDataFile:
    path.unlink(missing_ok=True)
    named = {name.replace("__", "."): value for name, value in properties.items()}
    named = {f"write.parquet.{name.replace('_', '-')}": value for name, value in named.items()}
    with ParquetDataFileWriter(IO, str(path), schema, named) as writer:
        for table in groups:
            writer.write(table)
        return writer.close()


def chunks(path: Path) -> dict[str, Any]:
    """Column chunks of the first row group by path."""
    group = pq.read_metadata(path).row_group(0)
    found = [group.column(index) for index in range(group.num_columns)]
    return {chunk.path_in_schema: chunk for chunk in found}


@given(st.lists(tables(least=1), min_size=1, max_size=2), st.sampled_from(["v1", "v2"]))
def test_rows_are_read_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[pa.Table], version: str
) -> None:
    path = tmp_path_factory.mktemp("written") / "a.parquet"
    write(path, *drawn, schema=SCHEMA, page_version=version)
    table = pa.concat_tables(drawn)
    read = pq.read_table(path, page_checksum_verification=True, arrow_extensions_enabled=False)
    assert plain(read) == plain(table)
    # With statistics, DataFusion 54 takes a column of 1.0 and NaN to hold 1.0 only.
    context = SessionContext(SessionConfig().set("datafusion.execution.collect_statistics", "false"))
    context.register_parquet("t", str(path))
    assert plain(context.sql("select * from t").to_arrow_table()) == plain(table)


def test_columns_are_what_the_spec_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    row = {"id": 1, "outer": {"string": ""}, "lists": [[1]]}
    write(path, pa.Table.from_pylist([row], schema=ARROW), schema=SCHEMA)
    with pq.ParquetFile(path) as file:
        # Names, field ids, types, and which of them are required, at every depth.
        assert pyarrow_to_schema(file.schema_arrow, format_version=3).as_struct() == SCHEMA.as_struct()
        schema = file.schema
        leaves = {schema.column(index).path: schema.column(index) for index in range(len(schema))}
        metadata = file.metadata.metadata
    uuids = ["uuid", "outer.uuid", "outer.list.list.element", "map.key_value.value.uuid"]
    assert {leaves[path].logical_type.type for path in uuids} == {"UUID"}
    assert leaves["fixed"].logical_type.type == "NONE"
    assert "lists.list.element.list.element" in leaves
    assert leaves["map.key_value.key"].max_definition_level == 2
    assert [leaves[name].physical_type for name in ("small", "middle", "wide")] == [
        "INT32",
        "INT64",
        "FIXED_LEN_BYTE_ARRAY",
    ]
    assert {
        name: [json.loads(leaves[name].logical_type.to_json())[key] for key in ("isAdjustedToUTC", "timeUnit")]
        for name in ("time", "ts", "tstz", "ns", "nstz", "map.key_value.value.ns")
    } == {
        "time": [False, "microseconds"],
        "ts": [False, "microseconds"],
        "tstz": [True, "microseconds"],
        "ns": [False, "nanoseconds"],
        "nstz": [True, "nanoseconds"],
        "map.key_value.value.ns": [False, "nanoseconds"],
    }
    assert set(metadata) == {b"iceberg.schema"}
    kept = Schema.model_validate(json.loads(metadata[b"iceberg.schema"]))
    assert kept == SCHEMA
    assert kept.schema_id == 7


def test_a_file_is_described_in_full(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.parquet"
    with ParquetDataFileWriter(IO, str(path), SIMPLE, {}) as writer:
        assert (writer.rows, writer.size) == (0, 0)
        assert not path.exists()
        sizes = []
        for number in range(3):
            writer.write(simple(100, start=1000 * number))
            sizes.append(writer.size)
        writer.write(simple(0))
        assert writer.rows == 300
        written = writer.close()
    footer = pq.read_metadata(path)
    assert [footer.row_group(index).num_rows for index in range(footer.num_row_groups)] == [100] * 3
    assert sizes == sorted(set(sizes))
    assert (written.path, written.size, written.records) == (str(path), path.stat().st_size, 300)
    assert sizes[-1] < written.size == writer.size
    assert written.split_offsets == (4, *sizes[:2])
    assert written.value_counts == {1: 300, 2: 300, 3: 300, 5: 300}
    assert written.lower_bounds[5] == bytes(8).hex()
    assert written.upper_bounds[1] == (2099).to_bytes(8, "little").hex()


@pytest.mark.parametrize(
    ("codec", "expected"),
    [(name, name.upper()) for name in ("uncompressed", "Snappy", "gzip", "zstd", "brotli", "lz4")]
    + [("lz4_raw", "LZ4")],
)
def test_codecs_are_those_of_the_table(tmp_path: Path, codec: str, expected: str) -> None:
    write(tmp_path / "a", simple(), compression_codec=codec)
    assert {chunk.compression for chunk in chunks(tmp_path / "a").values()} == {expected}


def test_levels_are_those_of_the_table(tmp_path: Path) -> None:
    sizes = {}
    for codec, levels in (("gzip", "19"), ("zstd", "19")):
        for level in levels:
            sizes[codec, level] = write(tmp_path / "a", simple(), compression_codec=codec, compression_level=level).size
    assert sizes["gzip", "9"] < sizes["gzip", "1"]
    assert sizes["zstd", "9"] < sizes["zstd", "1"]
    assert write(tmp_path / "a", simple()).size == write(tmp_path / "a", simple(), compression_codec="zstd").size


def test_zstd_is_as_strong_as_icebergs_java_writer_has_it(tmp_path: Path) -> None:
    """Its level is 3 where the table names none; Arrow's own is 1."""
    usual, *others = (write(tmp_path / "a", simple(), **p).size for p in ({}, {"compression_level": "3"}))
    assert others == [usual]
    assert write(tmp_path / "a", simple(), compression_level="1").size != usual


@pytest.mark.parametrize(
    ("column", "values", "properties", "pages"),
    [
        ("id", 1, {"page-row-limit": "100"}, 500),
        ("id", 1, {"page-row-limit": "50000", "page-size-bytes": "16384"}, 24),
        # Large values reach a page's size long before they are many.
        ("text", 200, {"page-size-bytes": "20000"}, 100),
    ],
)
def test_pages_are_as_small_as_the_table_says(
    tmp_path: Path, column: str, values: int, properties: dict[str, str], pages: int
) -> None:
    field = SIMPLE.find_field(column)
    table = simple().select([column]) if column == "id" else pa.table({column: ["x" * 10_000] * values})
    named = {f"write.parquet.{name}": value for name, value in properties.items()}
    named |= {"write.parquet.compression-codec": "uncompressed", "parquet.enable.dictionary": "false"}
    with ParquetDataFileWriter(IO, str(tmp_path / "a"), Schema(field), named) as writer:
        writer.write(table)
        writer.close()
    overhead = chunks(tmp_path / "a")[column].total_uncompressed_size - table.nbytes
    # A page has a header of 20 bytes or more.
    assert 20 * pages < overhead < 60 * pages


def test_pages_are_of_the_version_that_the_table_says(tmp_path: Path) -> None:
    kinds = []
    for version in ("v1", "V2"):
        write(tmp_path / "a", simple(), page_version=version)
        start = chunks(tmp_path / "a")["id"].data_page_offset
        kinds.append((tmp_path / "a").read_bytes()[start : start + 2])
    # A page's header begins with its type: DATA_PAGE or DATA_PAGE_V2.
    assert kinds == [b"\x15\x00", b"\x15\x06"]


def test_dictionaries_are_as_the_table_says(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, simple())
    assert chunks(path)["text"].has_dictionary_page
    assert not chunks(path)["id"].has_dictionary_page  # it would only add to values that never repeat
    whole = chunks(path)["text"].total_uncompressed_size
    write(path, simple(), dict_size_bytes="1000")
    assert chunks(path)["text"].total_uncompressed_size != whole
    properties = {"parquet.enable.dictionary": "false"}
    with ParquetDataFileWriter(MemoryIO(), "a", SIMPLE, properties) as writer:
        writer.write(simple())
        plainly = writer.close()
    assert plainly.column_sizes[2] > write(path, simple()).column_sizes[2]


def test_statistics_are_left_out_where_the_table_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a"
    properties = {"stats_enabled__column__text": "false", "stats_enabled__column__s__a__b": "FALSE"}
    written = write(path, simple(), **properties, stats_enabled__column__nobody="false")
    assert {name for name, chunk in chunks(path).items() if not chunk.is_stats_set} == {"text", "s.a.b"}
    assert set(written.upper_bounds) == set(written.null_value_counts) == {1, 2, 3, 5}


def test_bloom_filters_are_there_where_the_table_wants_them(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    enabled = {"bloom_filter_enabled__column__id": "true", "bloom_filter_enabled__column__s__a__b": "True"}
    odd = {f"bloom_filter_enabled__column__{name}": "true" for name in ("flag", "nobody", "s")}
    written = write(path, simple(), simple(), **enabled, **odd, bloom_filter_enabled__column__text="false")
    assert {name for name, chunk in chunks(path).items() if chunk.bloom_filter_offset} == {"id", "s.a.b"}
    without = write(tmp_path / "b", simple(), simple())
    sizes = [chunk.bloom_filter_length for chunk in chunks(path).values() if chunk.bloom_filter_offset]
    assert written.size - without.size == pytest.approx(2 * sum(sizes), abs=500)
    context = SessionContext()
    context.register_parquet("t", str(path))
    for number in range(0, ROWS, 2500):
        assert context.sql(f"select id from t where id = {number}").to_arrow_table().num_rows == 2


@pytest.mark.parametrize(
    ("properties", "size"),
    [
        ({}, 64 << 10),  # 50,000 rows at 1 %
        ({"bloom_filter_fpp__column__id": "0.5"}, 32 << 10),
        ({"bloom_filter_ndv__column__id": "1000"}, 2 << 10),
        ({"bloom_filter_ndv__column__id": "1"}, 32),
        ({"bloom_filter_ndv__column__id": "1", "bloom_filter_fpp__column__id": "0.5"}, 32),
        ({"bloom_filter_max_bytes": "5000"}, 4 << 10),
        ({"bloom_filter_max_bytes": "4096", "bloom_filter_ndv__column__id": "1000000"}, 4 << 10),
        ({"bloom_filter_max_bytes": "1"}, 32),
        ({"bloom_filter_max_bytes": "64", "bloom_filter_fpp__column__id": "1e-30"}, 64),
    ],
)
def test_bloom_filters_are_as_large_as_the_table_lets_them_be(
    tmp_path: Path, properties: dict[str, str], size: int
) -> None:
    properties |= {"bloom_filter_enabled__column__id": "true"}
    write(tmp_path / "a", simple(), **properties)
    assert 0 < chunks(tmp_path / "a")["id"].bloom_filter_length - size < 32
    # The writer counts them before they are in the file.
    named = {f"write.parquet.{key.replace('__', '.').replace('_', '-')}": value for key, value in properties.items()}
    with ParquetDataFileWriter(IO, str(tmp_path / "b"), SIMPLE, named) as writer:
        writer.write(simple())
        counted = writer.size
        assert writer.close().size - counted < 5000
    assert counted > size


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("compression_codec", "lzo", "the Parquet compression codec lzo is not one of uncompressed"),
        ("compression_level", "99", "the Parquet compression codec gzip has no level 99"),
        ("page_version", "v3", "write.parquet.page-version is v3, not v1 or v2"),
        ("page_size_bytes", "0", "write.parquet.page-size-bytes is 0, not a whole number above 0"),
        ("page_row_limit", "many", "write.parquet.page-row-limit is many, not a number"),
        ("dict_size_bytes", "1.5", "write.parquet.dict-size-bytes is 1.5, not a whole number above 0"),
        ("bloom_filter_fpp__column__id", "1", "write.parquet.bloom-filter-fpp.column.id is 1, not between 0 and 1"),
        ("bloom_filter_ndv__column__id", "-1", "bloom-filter-ndv.column.id is -1, not a whole number above 0"),
    ],
)
def test_what_cannot_be_written_is_refused_before_there_is_a_file(
    tmp_path: Path, name: str, value: str, message: str
) -> None:
    properties = {"compression_codec": "gzip", "bloom_filter_enabled__column__id": "true", name: value}
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "a", simple(), **properties)
    assert not list(tmp_path.iterdir())


def attempt(path: Path, *tables: pa.Table, io: FileIO = IO, close: bool = True, error: Exception | None = None) -> None:
    """Write a file that ends in some way."""
    with ParquetDataFileWriter(io, str(path), SIMPLE, {}) as writer:
        for table in tables:
            writer.write(table)
        if close:
            writer.close()
        if error is not None:
            raise error


@pytest.mark.parametrize("close", [False, True])
def test_nothing_is_left_of_a_file_that_did_not_end_well(tmp_path: Path, close: bool) -> None:
    with pytest.raises(RuntimeError, match="elsewhere"):
        attempt(tmp_path / "a", simple(10), close=close, error=RuntimeError("elsewhere"))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_closed_is_given_up(tmp_path: Path) -> None:
    attempt(tmp_path / "a", simple(10), close=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "bad",
    [
        simple(10).set_column(0, "id", pa.nulls(10, pa.int64())),
        simple(10).drop_columns("id"),
        simple(10).set_column(2, "flag", pa.nulls(10, pa.int32())),
    ],
    ids=["null", "missing", "type"],
)
def test_rows_that_do_not_fit_are_refused_and_end_the_file(tmp_path: Path, bad: pa.Table) -> None:
    with pytest.raises(ValueError, match=r"id|flag|type"):
        attempt(tmp_path / "a", simple(10), bad)
    assert not list(tmp_path.iterdir())
    writer = ParquetDataFileWriter(IO, str(tmp_path / "a"), SIMPLE, {})
    writer.write(simple(10))
    with pytest.raises(ValueError, match=r"id|flag|type"):
        writer.write(bad)
    with pytest.raises(ValueError, match="is closed"):
        writer.close()
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        attempt(tmp_path / "a", simple(10))
    assert (tmp_path / "a").read_bytes() == b"precious"


def test_there_is_no_file_without_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="would have no rows"):
        attempt(tmp_path / "a", simple(0))
    assert not list(tmp_path.iterdir())


def test_storage_that_fails_at_the_end_leaves_nothing() -> None:
    storage = MemoryIO()

    def fail() -> None:
        storage.before = lambda: None  # once
        raise OSError("no space left")

    storage.before = fail
    with pytest.raises(OSError, match="no space left"):
        attempt(Path("a"), simple(10), io=storage)
    assert storage.files == {}


def test_a_closed_writer_stays_closed(tmp_path: Path) -> None:
    with ParquetDataFileWriter(IO, str(tmp_path / "a"), SIMPLE, {}) as writer:
        writer.write(simple(10))
        writer.close()
        with pytest.raises(ValueError, match="is closed"):
            writer.write(simple(10))
        with pytest.raises(ValueError, match="is closed"):
            writer.close()
    assert pq.read_metadata(tmp_path / "a").num_rows == 10


@given(tables(least=2))
def test_uuids_are_annotated_without_a_copy(table: pa.Table) -> None:
    half = table.slice(1)
    result = cast_uuids(half, SCHEMA)
    result.validate(full=True)
    assert plain(result) == plain(half)
    assert result.schema == arrow_schema(SCHEMA, pa.uuid())
    for name in ("uuid", "map"):
        before, after = (each[name].chunk(0).buffers()[-1] for each in (half, result))  # the values
        assert not after or not after.size or before.address == after.address
