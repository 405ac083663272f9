"""Random tables, written the way streams write them: scripts that hypothesis draws, played against a real table."""

from __future__ import annotations

import datetime
import itertools
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from producer.iceberg.manifest_entry import NewFile
from tasks.testing import RowDelta, StreamTable, local_catalog

_NUMBERS = itertools.count()
_DAY = datetime.date(2024, 5, 1)
_NOON = datetime.datetime(2024, 5, 1, 12)

#: Few values of each type, so that keys meet; the awkward ones among them.
KEYS: list[tuple[PrimitiveType, list[Any]]] = [
    (BooleanType(), [True, False]),
    (IntegerType(), [-(2**31), -1, 0, 7]),
    (LongType(), [-(2**63), 0, 1, 2**40]),
    (FloatType(), [0.0, -0.0, math.nan, 1.5]),
    (DoubleType(), [0.0, -0.0, math.nan, -math.inf]),
    (DecimalType(9, 2), [Decimal("0.00"), Decimal("-1.25"), Decimal("9999999.99")]),
    (DecimalType(30, 4), [Decimal("0"), Decimal("-12345678901234567890.1234")]),
    (DateType(), [_DAY, datetime.date(1969, 12, 31), datetime.date(1, 1, 1)]),
    (TimeType(), [datetime.time(0), datetime.time(23, 59, 59, 999999)]),
    (TimestampType(), [_NOON, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    (TimestamptzType(), [_NOON.replace(tzinfo=datetime.UTC), datetime.datetime(1900, 1, 1, tzinfo=datetime.UTC)]),
    (StringType(), ["", "a", "ä", "\U0001f600", "longer than sixteen characters", "longer than sixteen characterz"]),
    (UUIDType(), [bytes(16), b"\xff" * 16, bytes(range(16))]),
    (FixedType(3), [b"\x00\x00\x00", b"abc", b"\xff\xff\xff"]),
    (BinaryType(), [b"", b"\x00", b"\xff" * 20]),
]


@st.composite
def scripts(draw: st.DrawFn) -> dict[str, Any]:
    """A table and what happens to it."""
    kinds = draw(st.lists(st.sampled_from(range(len(KEYS))), min_size=1, max_size=2))
    spec = draw(st.sampled_from(["none", "identity", "bucket", "truncate", "day", "void"]))
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["append", "append", "upsert", "delete", "positions", "mixed", "evolve", "global"]),
                st.integers(0, 2**32),
            ),
            min_size=2,
            max_size=7,
        )
    )
    return {
        "kinds": kinds,
        "nested": draw(st.booleans()),
        "spec": spec,
        "version": draw(st.sampled_from([2, 3])),
        "upgrade": draw(st.booleans()),
        "granularity": draw(st.sampled_from(["file", "partition"])),
        "unit_mb": draw(st.sampled_from([1, 256])),
        "steps": [("append", draw(st.integers(0, 2**32))), *steps],
    }


class ScriptedTable:
    """Plays a script against a real table."""

    def __init__(self, folder: Path, script: dict[str, Any]) -> None:
        self.kinds = [KEYS[index] for index in script["kinds"]]
        keys = [NestedField(10 + i, f"k{i}", type_, required=False) for i, (type_, _) in enumerate(self.kinds)]
        self.names = [field.name for field in keys]
        self.nested = script["nested"]
        if self.nested:
            inner = StructType(NestedField(31, "key", LongType(), required=False))
            keys.append(NestedField(30, "nest", inner, required=False))
            self.names.append("nest.key")
        schema = Schema(
            *keys,
            NestedField(1, "part", StringType(), required=False),
            NestedField(2, "ts", TimestampType(), required=False),
            NestedField(3, "value", LongType(), required=False),
        )
        created = Schema(*schema.fields)
        self.table = StreamTable.create(
            local_catalog(folder),
            f"property.t{next(_NUMBERS)}",
            created,
            spec=_spec(script["spec"], created),
            format_version=script["version"],
            properties={"write.delete.granularity": script["granularity"]},
        )
        self.version = script["version"]
        self.serial = 0

    @classmethod
    def played(cls, folder: Path, script: dict[str, Any]) -> ScriptedTable:
        """The table at the end of a script."""
        table = cls(folder, script)
        for action, seed in script["steps"]:
            table.play(action, seed)
        if script["upgrade"] and script["version"] == 2:
            table.table.upgrade()
        return table

    def play(self, action: str, seed: int) -> None:
        """One step."""
        draw = _Random(seed)
        if action == "append":
            self.table.append(self._rows(draw), row_group_size=draw.choice([None, 2]))
        elif action == "upsert":
            ids = draw.subset(self.names)
            self.table.upsert(self._distinct(self._rows(draw), ids), ids)
        elif action == "delete":
            self.table.delete_where_equal(self._rows(draw), draw.subset(self.names))
        elif action == "mixed":
            first, second = draw.subset(self.names), draw.subset(self.names)
            data = self.table.write_data(self._rows(draw))
            deletes = self.table.write_equality_deletes(self._rows(draw), first)
            more = self.table.write_equality_deletes(self._rows(draw), second)
            self.table.commit(RowDelta([*data, *deletes, *more]))
        elif action == "positions":
            self._delete_positions(draw)
        elif action == "evolve":
            self._evolve(draw)
        elif action == "global":
            specs = self.table.table.specs().values()
            unpartitioned = [s.spec_id for s in specs if all(isinstance(f.transform, VoidTransform) for f in s.fields)]
            if unpartitioned:
                self.table.delete_where_equal(self._rows(draw), draw.subset(self.names), spec_id=unpartitioned[0])

    def _rows(self, draw: _Random) -> pa.Table:
        count = draw.integer(1, 6)
        schema = self.table.table.schema()
        arrow = schema_to_pyarrow(schema, include_field_ids=False)
        columns: dict[str, list[Any]] = {}
        for field in schema.fields:
            if field.name == "value":
                columns["value"] = [self.serial + i for i in range(count)]
                self.serial += count
            elif field.name == "part":
                columns["part"] = [draw.choice(["a", "b", None, "a long partition name"]) for _ in range(count)]
            elif field.name == "ts":
                columns["ts"] = [draw.choice([_NOON, _NOON + datetime.timedelta(days=1), None]) for _ in range(count)]
            elif field.name == "nest":
                columns["nest"] = [draw.choice([{"key": 1}, {"key": None}, None, {"key": 2}]) for _ in range(count)]
            else:
                values = self.kinds[int(field.name[1:])][1]
                columns[field.name] = [draw.choice([*values, None]) for _ in range(count)]
        return pa.table({name: pa.array(values, arrow.field(name).type) for name, values in columns.items()})

    def _distinct(self, rows: pa.Table, ids: list[str]) -> pa.Table:
        seen, keep = set(), []
        for position, row in enumerate(rows.to_pylist()):
            flat = row | {"nest.key": (row.get("nest") or {}).get("key")}
            key = (repr(row["part"]), repr(row["ts"]), *(repr(flat[name]) for name in ids))
            if key not in seen:
                seen.add(key)
                keep.append(position)
        return rows.take(keep)

    def _delete_positions(self, draw: _Random) -> None:
        files = self.table.data_files()
        chosen: dict[str | NewFile, list[int]] = {
            file.path: sorted({draw.integer(0, file.record_count - 1) for _ in range(2)})
            for file in files
            if draw.integer(0, 1)
        }
        if not chosen:
            return
        if self.table.table.metadata.format_version >= 3:
            self.table.delete_vector(chosen)
        else:
            self.table.delete_positions(chosen, by_partition=bool(draw.integer(0, 1)))

    def _evolve(self, draw: _Random) -> None:
        with self.table.table.update_spec() as update:
            if self.table.table.spec().is_unpartitioned():
                update.add_field("part", draw.choice([IdentityTransform(), BucketTransform(2)]), "part_field")
            else:
                for field in self.table.table.spec().fields:
                    update.remove_field(field.name)


class _Random:
    """A few choices out of one number, so that a script stays small and shrinks well."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choice(self, values: list[Any]) -> Any:
        return self._random.choice(values)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def subset(self, names: list[str]) -> list[str]:
        return self._random.sample(names, self._random.randint(1, len(names)))


def _spec(kind: str, schema: Schema) -> PartitionSpec:
    transforms: dict[str, tuple[str, Transform[Any, Any]]] = {
        "identity": ("part", IdentityTransform()),
        "bucket": ("part", BucketTransform(3)),
        "truncate": ("part", TruncateTransform(2)),
        "day": ("ts", DayTransform()),
        "void": ("part", VoidTransform()),
    }
    if kind == "none":
        return UNPARTITIONED_PARTITION_SPEC
    column, transform = transforms[kind]
    source = schema.find_field(column).field_id
    return PartitionSpec(PartitionField(source, 1000, transform, f"{column}_field"))
