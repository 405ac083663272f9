"""Equality deletes whose key is of each type that Parquet and Iceberg have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.bridge import Bridge, Type, eq
from tests.interop.checks import Convert, check_conversion, check_onward

UUIDS = [f"{digit * 8}-{digit * 4}-4{digit * 3}-a{digit * 3}-{digit * 12}" for digit in "017"]
#: Values of each type in single-value JSON; no two are equal, the first and the last get deleted.
VALUES: dict[str, list[Any]] = {
    "int": [-(2**31), 0, 2**31 - 1],
    "long": [-(2**63), -1, 2**63 - 1],
    "float": [1.5, -0.1, 3.4028234663852886e38],
    "double": [0.1, 5e-324, -1.7976931348623157e308],
    "decimal(9, 2)": ["-9999999.99", "0.01", "0.10"],
    "decimal(18, 4)": ["-99999999999999.9999", "0.0001", "12.0000"],
    "decimal(38, 10)": ["-9999999999999999999999999999.9999999999", "0.0000000001", "1.0000000000"],
    "date": ["0001-01-01", "1970-01-01", "2262-04-12"],
    "time": ["00:00:00", "12:34:56.789012", "23:59:59.999999"],
    "timestamp": ["1677-09-21T00:12:43.145224", "1970-01-01T00:00:00", "2300-01-01T00:00:00.000001"],
    "timestamptz": [f"{day}T23:59:59.999999+00:00" for day in ("1969-12-31", "1970-01-01", "2300-01-01")],
    "string": ["", "a", "ä\u0000🧊" * 10],
    "uuid": UUIDS,
    "fixed[3]": ["000000", "7FFF80", "FFFFFF"],
    "binary": ["", "00", "FF" * 20],
    "boolean": [True, None, True],
}
NANOS: dict[str, list[Any]] = {
    "timestamp_ns": ["1969-12-31T23:59:59.999999999", "1970-01-01T00:00:00.000000001", "2261-01-01T00:00:00.123456789"],
    "timestamptz_ns": [f"{day}T23:59:59.999999999+00:00" for day in ("1969-12-31", "1970-01-01", "2261-01-01")],
}


@pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])
def test_each_type(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """For each type the first value is deleted by itself, and the last one together with a null of another column."""
    values = VALUES | (NANOS if version == 3 else {})
    columns = {"id": "int", "none": "string"} | {f"c{i}": type_ for i, type_ in enumerate(values)}
    table = bridge.create(f"{warehouse}/t", version, columns)
    rows = []
    for number, of_type in enumerate(values.values()):
        for place, value in enumerate(of_type):
            keys: list[Any] = [None] * len(values)
            keys[number] = value
            rows.append([10 * number + place, "no" if place == 0 else None, *keys])
    table.commit(*rows)
    deletes = []
    for number, (type_, of_type) in enumerate(values.items()):
        rows_of_one = [["no", of_type[0]], ["no", of_type[2]]]
        # Of several fixed values in a file Java applies only the last one: it reads them all into the same bytes.
        files = [[row] for row in rows_of_one] if type_.startswith("fixed") else [rows_of_one]
        deletes += [eq(f"none, c{number}", *file) for file in files]
        deletes.append(eq(f"c{number}, none", [of_type[2], None]))
    table.commit(deletes=deletes)
    left = [row for row in rows if row[0] % 10 == 1]
    check_conversion(table, convert, left, positions=2 * len(values))
    check_onward(table)


def test_uuids_with_the_high_bit(bridge: Bridge, warehouse: str, convert: Convert) -> None:
    """Java's order of uuids is signed: by the bounds it takes the delete file for one that matches nothing."""
    table = bridge.create(f"{warehouse}/t", 2, {"id": "uuid"})
    low, middle, high = (UUIDS[0], UUIDS[1], UUIDS[1].replace("1", "f"))
    table.commit([low], [middle], [high])
    table.commit(deletes=[eq("id", low, high)])
    check_conversion(table, convert, [[middle]], positions=2, readable=False)


@pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])
def test_floats_are_compared_by_bits(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """NaN equals NaN, and the zeros differ."""
    table = bridge.create(f"{warehouse}/t", version, {"id": "int", "f": "float", "d": "double"})
    keys = ["NaN", "-0.0", 0.0, "Infinity", None, 1.5]
    table.commit(*([i, key, None] for i, key in enumerate(keys)))
    table.commit(*([10 + i, 1.0, key] for i, key in enumerate(keys)))
    table.commit(deletes=[eq("f", "NaN", "-0.0"), eq("d", "NaN", 0.0, "Infinity")])
    left = [[i, keys[i], None] for i in (2, 3, 4, 5)] + [[10 + i, 1.0, keys[i]] for i in (1, 4, 5)]
    check_conversion(table, convert, left, positions=5)


@pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])
def test_nested_keys(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """Fields of structs in structs; a null struct has null fields. Lists and maps are there too."""
    inner = {"type": "struct", "fields": [_field(11, "k", "int"), _field(12, "w", "string")]}
    outer = {"type": "struct", "fields": [_field(8, "a", "string"), _field(9, "in", inner)]}
    tags = {"type": "list", "element-id": 13, "element": "string", "element-required": False}
    counts = {"type": "map", "key-id": 14, "key": "string", "value-id": 15, "value": "long", "value-required": False}
    table = bridge.create(f"{warehouse}/t", version, {"tags": tags, "s": outer, "counts": counts, "id": "int"})
    structs = [["x", [1, "p"]], ["x", [2, "q"]], ["y", None], None, ["y", [None, "r"]], [None, [3, None]]]
    rows = [[["t"] * i, struct, [["k", i]], i] for i, struct in enumerate(structs)]
    table.commit(*rows)
    table.commit(deletes=[eq("s.in.k", [[[1]]], [[[3]]]), eq("s.a, s.in.w", [["x", ["q"]]], [["y", ["q"]]])])
    check_conversion(table, convert, rows[2:5], positions=3)
    # Null where the row has null: of a null struct and a struct of nulls Java says that they differ.
    table.commit(deletes=[eq("s.in.k, id", [[None], 2], [None, 3])])
    check_conversion(table, convert, rows[4:5], positions=2)
    check_onward(table)


def _field(field_id: int, name: str, type_: Type) -> dict[str, Any]:
    return {"id": field_id, "name": name, "type": type_, "required": False}
