"""Units of rewriting over rows of every type, without a table."""

from __future__ import annotations

from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from producer.model.plan import Scope
from workers.model.delete_set import ContentFile, DeleteSet
from workers.model.units import RewriteUnit, Sizes

#: Of :data:`tests.support.rows.EVERYTHING`.
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    *(
        NestedField(number, name, type_, required=False)
        for number, name, type_ in [
            (2, "flag", BooleanType()),
            (3, "int", IntegerType()),
            (4, "long", LongType()),
            (5, "float", FloatType()),
            (6, "double", DoubleType()),
            (7, "decimal", DecimalType(9, 2)),
            (8, "wide", DecimalType(38, 10)),
            (9, "date", DateType()),
            (10, "time", TimeType()),
            (11, "ts", TimestampType()),
            (12, "tstz", TimestamptzType()),
            (13, "ns", TimestampNanoType()),
            (14, "nstz", TimestamptzNanoType()),
            (15, "string", StringType()),
            (16, "uuid", UUIDType()),
            (17, "fixed", FixedType(5)),
            (18, "binary", BinaryType()),
            (19, "unknown", UnknownType()),
            (20, "a.b", StructType(NestedField(21, "", DoubleType(), required=False))),
            (22, "A.B", ListType(23, IntegerType(), element_required=False)),
            (
                24,
                "deep",
                StructType(
                    NestedField(
                        25,
                        "Map",
                        MapType(
                            26,
                            StringType(),
                            27,
                            ListType(
                                28,
                                StructType(
                                    NestedField(29, "x", TimestamptzNanoType(), required=False),
                                    NestedField(30, "X", UUIDType(), required=True),
                                    NestedField(31, "`", DecimalType(20, 3), required=False),
                                ),
                                element_required=False,
                            ),
                            value_required=False,
                        ),
                        required=False,
                    ),
                    NestedField(32, "map", FloatType(), required=False),
                    NestedField(33, "empty", StructType(), required=False),
                ),
            ),
        ]
    ),
)


def rewrite_unit(files: int = 1, **options: Any) -> RewriteUnit:
    """A unit of so many inputs, dealt to its scopes in turn; ``options`` are fields of it."""
    scopes = options.setdefault("scopes", (Scope(spec_id=0, values=(), label=""),))
    inputs = tuple(ContentFile(index, f"file-{index}", 1, index % len(scopes), 1000, 1 << 20) for index in range(files))
    plain: dict[str, Any] = {
        "name": "unit",
        "deletes": DeleteSet(data_files=inputs, equality=(), positions=(), name_mapping=None),
        "schema": SCHEMA,
        "lineage": False,
        "spec": UNPARTITIONED_PARTITION_SPEC,
        "sizes": Sizes(1 << 20, 1 << 19, 1 << 21),
        "location": load_location_provider("file:///nowhere", {}),
        "journal": "",
        "properties": {},
    }
    return RewriteUnit(**(plain | options))
