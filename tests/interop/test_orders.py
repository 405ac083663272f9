"""Bounds and summaries hold in every reader's order of values, whatever the type.

Tables are partitioned by a column of the type and hold a second one that is not partitioned; their values are those
that some readers order in other ways than the rest. After Icefleet's work each reader must find with a filter what it
finds without.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table import StaticTable

from tasks.testing.reader import read_rows
from tests.interop.bridge import Bridge, Filter, JavaTable, bag, eq
from tests.interop.checks import Convert, assert_same
from tests.interop.compactions import Compact

#: Values in single-value JSON, ascending by the spec, that are told apart by sign, width, truncation or encoding.
VALUES: dict[str, list[Any]] = {
    "boolean": [False, True],
    "int": [-(2**31), -1, 0, 2**31 - 1],
    "long": [-(2**63), -1, 0, 2**63 - 1],
    "float": [-1.5, -0.0, 0.0, 2.5],
    "double": [-1.5, -0.0, 0.0, 2.5],
    "decimal(9, 2)": ["-327.69", "-1.29", "-1.28", "1.27", "1.28", "327.68"],
    "decimal(18, 2)": ["-327.69", "-1.29", "-1.28", "1.27", "1.28", "327.68"],
    "decimal(38, 2)": ["-92233720368547758.09", "-1.29", "1.27", "1.28", "92233720368547758.08"],
    "date": ["0001-01-01", "1969-12-31", "1970-01-01", "2262-04-12"],
    "time": ["00:00:00", "12:34:56.789012", "23:59:59.999999"],
    "timestamp": ["1677-09-21T00:12:43.145224", "1969-12-31T23:59:59.999999", "2300-01-01T00:00:00.000001"],
    "timestamptz": [f"{day}T23:59:59.999999+00:00" for day in ("1969-12-31", "1970-01-01", "2300-01-01")],
    "string": [
        "a",
        "a" * 15 + "\ud7ff" + "b",
        "a" * 15 + "\uffee" + "b",
        "a" * 15 + "\U0001f600" + "b",
        "\ud7ff" * 17,
        "\ue000",
        "\uffee" * 17,
        "\U0001f600",
        "\U0010ffff" * 17,
    ],
    "uuid": [
        "00000000-0000-0000-0000-000000000001",
        "00000000-0000-0000-f000-000000000001",
        "7fffffff-ffff-ffff-0000-000000000000",
        "80000000-0000-0000-8000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ],
    "fixed[2]": ["0001", "00FF", "7FFF", "8000", "FF00"],
    "binary": ["", "00", "7F", "7F" * 20, "80" * 20, "FF" * 20],
}


@pytest.mark.parametrize("type_", VALUES)
def test_compacted(bridge: Bridge, warehouse: str, compact: Compact, type_: str) -> None:
    table = _table(bridge, warehouse, type_, 2)
    rows = table.rows()
    report = compact(table, options={"rewrite-all": "true"})
    assert str(report.status) == "committed", report
    assert_same(table.rows(), rows)
    _check(table, type_)


@pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])
@pytest.mark.parametrize("type_", VALUES)
def test_converted(bridge: Bridge, warehouse: str, convert: Convert, type_: str, version: int) -> None:
    """The manifest of the deletes is not skipped where rows are read that they delete."""
    table = _table(bridge, warehouse, type_, version)
    partitions = [[value] for value in VALUES[type_]] if _partitioned(type_) else [[]]
    table.commit(deletes=[eq("id", 1, 7, 100, partition=partition) for partition in partitions])
    rows = table.rows()
    report = convert(table)
    assert str(report.status) == "committed", report
    assert_same(table.rows(), rows)
    # Of the files that Java wrote it finds not all rows by a UUID: their footers have the bytes' order.
    _check(table, type_, terms=("p",) if type_ == "uuid" else ("p", "q"), pyiceberg=version == 2)


def _table(bridge: Bridge, warehouse: str, type_: str, version: int) -> JavaTable:
    """Two files in each partition: one with its value in both columns, one with the others' in the second."""
    partition = ("p",) if _partitioned(type_) else ()
    table = bridge.create(f"{warehouse}/t", version, {"id": "int", "p": type_, "q": type_}, *partition)
    values = VALUES[type_]
    table.commit(*([number, value, value] for number, value in enumerate(values)))
    table.commit(*([100 * (p + 1) + q, x, y] for p, x in enumerate(values) for q, y in enumerate(values)))
    return table


def _partitioned(type_: str) -> bool:
    """Whether Java can partition a table by the type: its manifests with fixed values are readable by nobody else."""
    return not type_.startswith("fixed")


def _check(table: JavaTable, type_: str, terms: Sequence[str] = ("p", "q"), *, pyiceberg: bool = True) -> None:
    everything = table.lists()
    kinds = ("eq", "lt", "lt-eq", "gt", "gt-eq") if type_ != "boolean" else ("eq",)
    asked: list[Filter] = [
        {"type": kind, "term": term, "value": value} for term in terms for value in VALUES[type_] for kind in kinds
    ]
    for filter_, found in zip(asked, table.select(*asked), strict=True):
        assert (filter_, bag(found["pruned"])) == (filter_, bag(found["all"]))
        if filter_["type"] == "eq":
            position = 1 if filter_["term"] == "p" else 2
            expected = [row for row in everything if _same(row[position], filter_["value"])]
            assert bag(found["all"]) == bag(expected)
            assert expected
    if pyiceberg and type_ != "uuid":  # PyIceberg finds no partition by a UUID, whoever wrote the table
        _check_pyiceberg(table, type_, everything)
    if type_ != "uuid":  # iceberg-rust reads no partition by a UUID, whoever wrote the table
        rust = read_rows(table.metadata)
        assert sorted(rust["id"].to_pylist()) == sorted(row[0] for row in everything)


def _check_pyiceberg(table: JavaTable, type_: str, everything: list[list[Any]]) -> None:
    read = StaticTable.from_metadata(table.metadata)
    for position, term in ((1, "p"), (2, "q")):
        for place, value in enumerate(VALUES[type_]):
            if type_ in ("float", "double") and value == 0:
                continue  # PyIceberg takes the zeros for equal in a filter, Java does not
            literal = _python(type_, value)
            filters: list[tuple[BooleanExpression, set[int]]] = [(EqualTo(term, literal), {place})]
            if type_ != "boolean":
                filters.append((LessThan(term, literal), set(range(place))))
                filters.append((GreaterThanOrEqual(term, literal), set(range(place, len(VALUES[type_])))))
            for filter_, places in filters:
                expected = [
                    row[0] for row in everything if any(_same(row[position], VALUES[type_][found]) for found in places)
                ]
                found = read.scan(row_filter=filter_, selected_fields=("id",)).to_arrow()["id"].to_pylist()
                assert (str(filter_), sorted(found)) == (str(filter_), sorted(expected))


def _same(one: Any, other: Any) -> bool:
    """Equal as Java writes values to JSON: zeros differ, decimals keep their zeros, bytes are in upper case."""
    text = [str(value).upper() if isinstance(value, str) else repr(value) for value in (one, other)]
    return text[0].strip("'") == text[1].strip("'")


def _python(type_: str, value: Any) -> Any:
    """What PyIceberg makes a literal of."""
    if type_.startswith("decimal"):
        return Decimal(value)
    if type_.startswith(("fixed", "binary")):
        return bytes.fromhex(value)
    if type_ == "time":
        return datetime.time.fromisoformat(value)
    return value
