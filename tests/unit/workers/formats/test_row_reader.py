"""Live rows of data files in the table's current schema, judged row by row by an evaluator of the spec's rules."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from workers.arrow.schema import arrow_schema, data_file_schema
from workers.formats.row_reader import RowReader
from workers.model.delete_set import ContentFile, FileSplit
from workers.runtime.errors import CorruptFile, UnsupportedFile

PROMOTED: dict[type[IcebergType], IcebergType] = {IntegerType: LongType(), FloatType: DoubleType()}
LEAVES: tuple[IcebergType, ...] = (
    *(IntegerType(), LongType(), FloatType(), DoubleType(), StringType(), BooleanType(), DateType(), TimeType()),
    *(TimestampType(), TimestamptzType(), DecimalType(9, 2), DecimalType(30, 4), FixedType(3), UUIDType()),
)
UTC = datetime.UTC


def identified(name: str, field_id: int, type_: pa.DataType | None = None) -> pa.Field:
    """A field of a file, of numbers by default."""
    return pa.field(name, type_ or pa.int64(), metadata={"PARQUET:field_id": str(field_id)})


@dataclass
class Evolving:
    """A schema and what it became; field ids are given out as they are needed."""

    dice: random.Random
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 10_000)))

    def leaf(self) -> IcebergType:
        return self.dice.choice(LEAVES)

    def type(self, depth: int) -> IcebergType:
        kind = self.dice.random() if depth else 1.0
        if kind < 0.2:
            return StructType(*self.fields(depth - 1, self.dice.randint(1, 3)))
        if kind < 0.4:
            return ListType(next(self.ids), self.type(depth - 1), element_required=False)
        if kind < 0.5:
            return MapType(next(self.ids), StringType(), next(self.ids), self.type(depth - 1), value_required=False)
        return self.leaf()

    def fields(self, depth: int, number: int) -> list[NestedField]:
        return [
            NestedField(ident := next(self.ids), f"f{ident}", self.type(depth), required=False) for _ in range(number)
        ]

    def evolved(self, fields: tuple[NestedField, ...]) -> list[NestedField]:
        """Columns dropped, renamed, promoted, moved and added, at every depth."""
        kept = [f for f in fields if self.dice.random() > 0.2] or list(fields[:1])
        changed = [
            NestedField(
                f.field_id,
                f.name if self.dice.random() > 0.3 else f"r{f.field_id}",
                self.evolved_type(f.field_type),
                required=False,
            )
            for f in kept
        ]
        for _ in range(self.dice.randint(0, 2)):
            ident = next(self.ids)
            default = {"initial_default": 7, "write_default": 7} if self.dice.random() < 0.5 else {}
            type_: IcebergType = IntegerType() if default else self.type(1)
            changed.append(NestedField(ident, f"f{ident}", type_, required=False, **default))
        self.dice.shuffle(changed)
        return changed

    def evolved_type(self, type_: IcebergType) -> IcebergType:
        if isinstance(type_, StructType):
            return StructType(*self.evolved(type_.fields))
        if isinstance(type_, ListType):
            return ListType(type_.element_id, self.evolved_type(type_.element_type), element_required=False)
        if isinstance(type_, MapType):
            value = self.evolved_type(type_.value_type)
            return MapType(type_.key_id, type_.key_type, type_.value_id, value, value_required=False)
        if isinstance(type_, DecimalType):
            return DecimalType(min(38, type_.precision + 3), type_.scale)
        return PROMOTED.get(type(type_), type_) if self.dice.random() < 0.5 else type_

    def value(self, type_: IcebergType) -> Any:
        if self.dice.random() < 0.2:
            return None
        if isinstance(type_, StructType):
            return {f.name: self.value(f.field_type) for f in type_.fields}
        if isinstance(type_, ListType):
            return [self.value(type_.element_type) for _ in range(self.dice.randint(0, 3))]
        if isinstance(type_, MapType):
            return [(f"k{n}", self.value(type_.value_type)) for n in range(self.dice.randint(0, 3))]
        number = self.dice.randint(-1000, 1000)
        day = datetime.datetime(1970, 1, 1) + datetime.timedelta(hours=number, microseconds=number)
        return {
            IntegerType: number,
            LongType: number << 32,
            FloatType: number / 4,
            DoubleType: number / 3,
            StringType: "é" * (number % 5),
            BooleanType: number > 0,
            DateType: day.date(),
            TimeType: day.time(),
            TimestampType: day,
            TimestamptzType: day.replace(tzinfo=UTC),
            FixedType: bytes([number % 256] * 3),
            UUIDType: bytes([number % 256] * 16),
        }.get(type(type_), Decimal(number) / 100)


def expected(value: Any, was: IcebergType, now: IcebergType) -> Any:
    """A value as the table's current schema has it."""
    if value is None:
        return None
    if isinstance(now, StructType):
        assert isinstance(was, StructType)
        return project(value, was.fields, now.fields)
    if isinstance(now, ListType):
        assert isinstance(was, ListType)
        return [expected(v, was.element_type, now.element_type) for v in value]
    if isinstance(now, MapType):
        assert isinstance(was, MapType)
        return [(k, expected(v, was.value_type, now.value_type)) for k, v in value]
    return value


def project(row: dict[str, Any], was: tuple[NestedField, ...], now: tuple[NestedField, ...]) -> dict[str, Any]:
    """A row, or a struct, by field id."""
    before = {f.field_id: f for f in was}
    return {
        f.name: expected(row[before[f.field_id].name], before[f.field_id].field_type, f.field_type)
        if f.field_id in before
        else f.initial_default
        for f in now
    }


def without_ids(type_: pa.DataType) -> pa.DataType:
    """The same type as a writer without field ids makes it."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, without_ids(f.type)) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", without_ids(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, without_ids(type_.item_type))
    return type_


def written(path: Path, table: pa.Table, **options: Any) -> ContentFile:
    pq.write_table(table, path, store_schema=False, **options)
    return ContentFile(0, str(path), 5, 0, table.num_rows, path.stat().st_size)


def read(reader: RowReader, file: ContentFile, **options: Any) -> list[dict[str, Any]]:
    return read_split(reader, FileSplit(file), **options)


def read_split(reader: RowReader, split: FileSplit, **options: Any) -> list[dict[str, Any]]:
    batches = list(reader.read(split, **options))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(reader.schema, check_metadata=True)
    return [row for batch in batches for row in batch.to_pylist()]


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1 << 30), ids=st.booleans())
def test_evolved_tables(tmp_path_factory: pytest.TempPathFactory, seed: int, ids: bool) -> None:
    """Any schema, any change to it at any depth, any deleted rows, row groups of any size."""
    evolving = Evolving(random.Random(seed))
    was = Schema(*evolving.fields(3, 4))
    now = Schema(*evolving.evolved(was.fields))
    rows = [{f.name: evolving.value(f.field_type) for f in was.fields} for _ in range(evolving.dice.randint(0, 40))]
    schema = arrow_schema(was)
    table = pa.Table.from_pylist(rows, schema=schema)
    if not ids:
        plain = pa.schema([pa.field(f.name, without_ids(f.type)) for f in schema])
        table = pa.Table.from_pylist(rows, schema=plain)
    path = tmp_path_factory.mktemp("rows") / "file.parquet"
    file = written(path, table, row_group_size=evolving.dice.randint(1, 50))
    gone = sorted(evolving.dice.sample(range(len(rows)), len(rows) // 3))
    mapping = None if ids else create_mapping_from_schema(was)
    reader = RowReader(PyArrowFileIO(), now, mapping, batch_bytes=evolving.dice.choice([1, 1 << 20]))
    found = read(reader, file, deleted=np.array(gone, np.int64))
    assert found == [project(row, was.fields, now.fields) for n, row in enumerate(rows) if n not in gone]


def table_of(**columns: pa.Array) -> pa.Table:
    """Columns with ids from 1 on."""
    fields = [
        pa.field(name, column.type, metadata={"PARQUET:field_id": str(n)})
        for n, (name, column) in enumerate(columns.items(), 1)
    ]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


LINEAGE = data_file_schema(Schema(NestedField(1, "id", LongType(), required=False)), lineage=True)


def lineage(rows: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return [(row["_row_id"], row["_last_updated_sequence_number"]) for row in rows]


class TestLineage:
    """What rows know of themselves (spec, Row Lineage)."""

    def test_inherited(self, tmp_path: Path) -> None:
        file = written(tmp_path / "a.parquet", table_of(id=pa.array([1, 2, 3])), row_group_size=2)
        first = ContentFile(0, file.path, 5, 0, 3, file.size, first_row_id=100)
        reader = RowReader(PyArrowFileIO(), LINEAGE, None, 1 << 20)
        assert lineage(read(reader, first, deleted=np.array([1]))) == [(100, 5), (102, 5)]
        assert lineage(read_split(reader, FileSplit(first, 1, 2))) == [(102, 5)]

    def test_none_before_version_3(self, tmp_path: Path) -> None:
        file = written(tmp_path / "a.parquet", table_of(id=pa.array([1])))
        assert lineage(read(RowReader(PyArrowFileIO(), LINEAGE, None, 1 << 20), file)) == [(None, None)]

    def test_stored(self, tmp_path: Path) -> None:
        """What is stored stays, what is null is inherited; rows without an id keep none when the file has none."""
        schema = arrow_schema(LINEAGE)
        rows = [(1, 7, 3), (2, None, None), (3, 9, None)]
        table = pa.table([pa.array(column, pa.int64()) for column in zip(*rows, strict=True)], schema=schema)
        file = written(tmp_path / "a.parquet", table)
        reader = RowReader(PyArrowFileIO(), LINEAGE, None, 1 << 20)
        assert lineage(read(reader, file)) == [(7, 3), (None, None), (9, None)]
        known = ContentFile(0, file.path, 5, 0, 3, file.size, first_row_id=40)
        assert lineage(read(reader, known)) == [(7, 3), (41, 5), (9, 5)]


class TestColumns:
    """Where a column's values come from."""

    def test_partition_values_and_defaults(self, tmp_path: Path) -> None:
        file = written(tmp_path / "a.parquet", table_of(id=pa.array([1, 2])))
        schema = Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "day", DateType(), required=False),
            NestedField(3, "n", DecimalType(9, 2), required=True, initial_default=Decimal("1.5")),
            NestedField(4, "u", UnknownType(), required=False),
            NestedField(5, "p", LongType(), required=False, initial_default=7),
        )
        known = ContentFile(0, file.path, 5, 0, 2, file.size, constants={2: 3, 5: None})
        row = read(RowReader(PyArrowFileIO(), data_file_schema(schema, lineage=False), None, 1 << 20), known)[1]
        assert row == {"id": 2, "day": datetime.date(1970, 1, 4), "n": Decimal("1.50"), "p": None}
        other = ContentFile(0, file.path, 5, 0, 2, file.size, constants={2: 3})
        assert (
            read(RowReader(PyArrowFileIO(), data_file_schema(schema, lineage=False), None, 1 << 20), other)[1]["p"] == 7
        )

    def test_values_keep_their_bits(self, tmp_path: Path) -> None:
        bits = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 0x7FF0000000000000], np.uint64)
        file = written(tmp_path / "a.parquet", table_of(x=pa.array(bits.view(np.float64))))
        schema = Schema(NestedField(1, "x", DoubleType(), required=False))
        [batch] = RowReader(PyArrowFileIO(), schema, None, 1 << 20).read(FileSplit(file))
        assert (batch.column(0).to_numpy().view(np.uint64) == bits).all()

    def test_what_other_writers_do(self, tmp_path: Path) -> None:
        """INT96, dictionaries, unsigned and narrow integers, text without its annotation, the uuid type."""
        when = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
        table = table_of(
            t=pa.array([when], pa.timestamp("us")),
            n=pa.array([3], pa.uint16()),
            s=pa.array([b"x"], pa.binary()),
            u=pa.array([b"u" * 16], pa.uuid()),
        )
        file = written(tmp_path / "a.parquet", table, use_deprecated_int96_timestamps=True)
        schema = Schema(
            NestedField(1, "t", TimestampType(), required=False),
            NestedField(2, "n", IntegerType(), required=False),
            NestedField(3, "s", StringType(), required=False),
            NestedField(4, "u", UUIDType(), required=False),
        )
        [row] = read(RowReader(PyArrowFileIO(), schema, None, 1 << 20), file)
        assert row == {"t": when, "n": 3, "s": "x", "u": b"u" * 16}

    @pytest.mark.parametrize("make", [lambda f: pa.list_(f, 2), pa.list_view, pa.large_list_view, pa.large_list])
    @pytest.mark.parametrize("values", [["a", "b", "c"], [1.5, 2.5, None], [{"s": "x"}, None, {"s": None}]])
    def test_lists_of_all_kinds(
        self, tmp_path: Path, make: Callable[[pa.Field], pa.DataType], values: list[Any]
    ) -> None:
        a, b, c = values
        rows = [[a, b], None, [c, a], [b, b], None, [c, c]]
        inner = pa.array(values).type
        if pa.types.is_struct(inner):
            inner = pa.struct([pa.field("s", pa.string(), metadata={"PARQUET:field_id": "3"})])
        element = pa.field("element", inner, metadata={"PARQUET:field_id": "2"})
        file = written(tmp_path / "a.parquet", table_of(v=pa.array(rows, make(element))), row_group_size=4)
        type_: IcebergType = {pa.string(): StringType(), pa.float64(): DoubleType()}.get(
            inner, StructType(NestedField(3, "s", StringType(), required=False))
        )
        schema = Schema(NestedField(1, "v", ListType(2, type_, element_required=False), required=False))
        reader = RowReader(PyArrowFileIO(), schema, None, 1 << 20)
        assert [row["v"] for row in read(reader, file, deleted=np.array([0]))] == rows[1:]

    @pytest.mark.parametrize(
        ("type_", "arrow", "value"),
        [
            (LongType(), pa.int64(), 5),
            (BooleanType(), pa.bool_(), True),
            (StringType(), pa.string(), "x"),
            (UUIDType(), pa.binary(16), b"u" * 16),
            (DecimalType(9, 2), pa.decimal128(9, 2), Decimal("1.50")),
            (TimestampType(), pa.timestamp("us"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6)),
            (
                ListType(4, LongType(), element_required=True),
                pa.list_(identified("element", 4)),
                [1, 2],
            ),
            (
                StructType(NestedField(4, "x", LongType(), required=True)),
                pa.struct([identified("x", 4)]),
                {"x": 7},
            ),
        ],
        ids=lambda value: str(value) if isinstance(value, IcebergType) else "",
    )
    def test_required_fields_of_structs_that_are_null(
        self, tmp_path: Path, type_: IcebergType, arrow: pa.DataType, value: object
    ) -> None:
        """The file does not know that they are required."""
        inner = pa.struct([identified("must", 2, arrow)])
        rows = [{"must": value}, None, {"must": value}]
        file = written(tmp_path / "a.parquet", table_of(s=pa.array(rows, inner)))
        schema = Schema(NestedField(1, "s", StructType(NestedField(2, "must", type_, required=True)), required=False))
        reader = RowReader(PyArrowFileIO(), schema, None, 1 << 20)
        [batch] = reader.read(FileSplit(file))
        assert batch.column(0).to_pylist() == rows
        with pq.ParquetWriter(tmp_path / "b.parquet", reader.schema) as writer:
            writer.write_batch(batch)
        assert pq.read_table(tmp_path / "b.parquet")["s"].to_pylist() == rows


class TestRefusals:
    """Files that cannot be rows of the table."""

    @pytest.mark.parametrize(
        ("arrow", "rows", "type_"),
        [
            (pa.list_(pa.int64()), [[1], [2, None]], ListType(2, LongType(), element_required=True)),
            (pa.struct([("x", pa.int64())]), [{"x": None}], StructType(NestedField(2, "x", LongType(), required=True))),
            (
                pa.map_(pa.string(), pa.int64()),
                [[("a", None)]],
                MapType(2, StringType(), 3, LongType(), value_required=True),
            ),
        ],
        ids=["list", "struct", "map"],
    )
    def test_nulls_in_a_required_field(
        self, tmp_path: Path, arrow: pa.DataType, rows: list[Any], type_: IcebergType
    ) -> None:
        schema = Schema(NestedField(1, "v", type_, required=False))
        mapping = create_mapping_from_schema(schema)
        file = written(tmp_path / "a.parquet", pa.table({"v": pa.array(rows, arrow)}))
        with pytest.raises(CorruptFile, match=rf"{tmp_path}.*has nulls in \w+ \([23]\), for which the table requires"):
            list(RowReader(PyArrowFileIO(), schema, mapping, 1 << 20).read(FileSplit(file)))

    def test_a_missing_required_column(self, tmp_path: Path) -> None:
        file = written(tmp_path / "a.parquet", table_of(id=pa.array([1])))
        schema = Schema(NestedField(9, "must", LongType(), required=True))
        with pytest.raises(CorruptFile, match=r"lacks the required column must \(9\)"):
            list(RowReader(PyArrowFileIO(), schema, None, 1 << 20).read(FileSplit(file)))

    def test_nulls_in_a_required_column(self, tmp_path: Path) -> None:
        """Unless their rows are deleted."""
        file = written(tmp_path / "a.parquet", table_of(id=pa.array([1, None, 3])))
        schema = Schema(NestedField(1, "id", LongType(), required=True))
        reader = RowReader(PyArrowFileIO(), schema, None, 1 << 20)
        with pytest.raises(CorruptFile, match=rf"{tmp_path}.*its column id has nulls, and the table requires values"):
            list(reader.read(FileSplit(file)))
        assert [row["id"] for row in read(reader, file, deleted=np.array([1]))] == [1, 3]

    @pytest.mark.parametrize("type_", [IntegerType(), BooleanType(), ListType(2, LongType()), DateType()])
    def test_a_type_that_is_no_promotions_source(self, tmp_path: Path, type_: IcebergType) -> None:
        file = written(tmp_path / "a.parquet", table_of(id=pa.array([1 << 40])))
        reader = RowReader(PyArrowFileIO(), Schema(NestedField(1, "id", type_, required=False)), None, 1 << 20)
        with pytest.raises(CorruptFile, match=str(tmp_path)):
            list(reader.read(FileSplit(file)))

    def test_no_field_ids_and_no_mapping(self, tmp_path: Path) -> None:
        file = written(tmp_path / "a.parquet", pa.table({"id": [1]}))
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        with pytest.raises(UnsupportedFile, match="no field ids"):
            list(RowReader(PyArrowFileIO(), schema, None, 1 << 20).read(FileSplit(file)))
