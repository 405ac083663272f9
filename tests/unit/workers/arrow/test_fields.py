"""Where the columns of a Parquet file lie, by field id or through a name mapping."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json

from workers.arrow.fields import has_field_ids, leaves


def field(name: str, type_: pa.DataType, field_id: int | None = None) -> pa.Field:
    return pa.field(name, type_, metadata=None if field_id is None else {"PARQUET:field_id": str(field_id)})


STRUCT = pa.struct([field("x", pa.int64(), 3), field("y", pa.int64(), 4)])
INNER = pa.struct([field("a", pa.int64(), 12), field("b", pa.int64(), 13)])
#: Everything that has more column chunks than one lies in front of what is looked for.
WIDE = pa.schema(
    [
        field("list", pa.list_(field("element", STRUCT, 2)), 1),
        field("map", pa.map_(pa.string(), field("value", pa.int64(), 7)), 5),
        field("outer", pa.struct([field("inner", INNER, 11)]), 10),
        field("large", pa.large_list(field("element", pa.int64(), 21)), 20),
        field("c", pa.int64(), 30),
        field("plain", pa.int64()),
    ]
)


def test_leaves_inside_structs_and_their_column_chunks() -> None:
    found = leaves(WIDE, None)
    assert {field_id: (leaf.path, leaf.name, leaf.column) for field_id, leaf in found.items()} == {
        12: ((2, 0, 0), "outer.inner.a", 4),
        13: ((2, 0, 1), "outer.inner.b", 5),
        30: ((4,), "c", 7),
    }


def test_column_numbers_are_those_of_parquet(tmp_path: object) -> None:
    """Parquet itself says which column chunk a leaf has."""
    path = f"{tmp_path}/wide.parquet"
    pq.write_table(WIDE.empty_table(), path)
    with pq.ParquetFile(path) as file:
        for leaf in leaves(file.schema_arrow, None).values():
            assert file.schema.column(leaf.column).path == leaf.name


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_view(pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        pa.large_list_view(pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())]), 2),
        pa.opaque(pa.struct([("a", pa.int64()), ("b", pa.int64())]), "type", "vendor"),
        pa.uuid(),
    ],
    ids=str,
)
def test_columns_of_other_writers_take_as_many_chunks_as_parquet_has(type_: pa.DataType, tmp_path: object) -> None:
    """The statistics of the column after them would be another column's, and rule out rows that are deleted."""
    path = f"{tmp_path}/other.parquet"
    pq.write_table(pa.schema([pa.field("x", type_), field("id", pa.int64(), 1)]).empty_table(), path)
    with pq.ParquetFile(path) as file:
        leaf = leaves(file.schema_arrow, None)[1]
        assert file.schema.column(leaf.column).path == "id"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (WIDE, True),
        (pa.schema([]), False),
        (pa.schema([field("a", pa.int64())]), False),
        (pa.schema([field("a", pa.int64(), -1)]), False),  # Arrow's way to say that there is none
        (pa.schema([field("a", pa.struct([field("b", pa.int64(), 2)]))]), True),
        (pa.schema([field("a", pa.list_(field("element", pa.int64(), 2)))]), True),
        (pa.schema([field("a", pa.map_(pa.string(), field("value", pa.int64(), 2)))]), True),
    ],
)
def test_whether_a_file_has_field_ids(schema: pa.Schema, expected: bool) -> None:
    assert has_field_ids(schema) is expected


def test_name_mapping_reaches_into_structs_and_knows_aliases() -> None:
    schema = pa.schema(
        [
            field("old name", pa.int64()),
            field("s", pa.struct([field("b", pa.int64()), field("other", pa.int64()), field("a", pa.int64())])),
            field("unmapped", pa.struct([field("a", pa.int64())])),
            field("a", pa.int64()),
        ]
    )
    mapping = parse_mapping_from_json(
        """[
            {"field-id": 1, "names": ["name", "old name"]},
            {"field-id": 2, "names": ["s"], "fields": [
                {"field-id": 3, "names": ["a"]}, {"field-id": 4, "names": ["b"]}, {"names": ["other"]}]},
            {"field-id": 9, "names": ["absent"]}
        ]"""
    )
    found = leaves(schema, mapping)
    assert {field_id: leaf.path for field_id, leaf in found.items()} == {1: (0,), 4: (1, 0), 3: (1, 2)}


def test_a_mapping_of_no_names_maps_nothing() -> None:
    assert leaves(pa.schema([field("a", pa.int64(), 1)]), NameMapping([])) == {}
