"""Random tables, written the way streams write them: a conversion changes no row, whatever came before it."""

from __future__ import annotations

import datetime
import itertools
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform, VoidTransform
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

from producer.messages import Request, Status
from producer.settings import Settings
from tasks.local import LocalEngine
from tasks.testing import RowDelta, StreamTable, local_catalog, read_rows
from tests.support import oracle
from tests.support.leftovers import leftovers

pytestmark = pytest.mark.spark

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


class _Stream:
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

    def play(self, action: str, seed: int) -> None:
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
        chosen = {
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
        import random

        self._random = random.Random(seed)

    def choice(self, values: list[Any]) -> Any:
        return self._random.choice(values)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def subset(self, names: list[str]) -> list[str]:
        return self._random.sample(names, self._random.randint(1, len(names)))


def _spec(kind: str, schema: Schema) -> PartitionSpec:
    transforms = {
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


@pytest.mark.timeout(900)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    derandomize=True,
)
@given(script=scripts())
def test_a_conversion_changes_no_row(spark: Any, default_catalog: Path, script: dict[str, Any]) -> None:
    stream = _Stream(default_catalog, script)
    for action, seed in script["steps"]:
        stream.play(action, seed)
    if script["upgrade"] and script["version"] == 2:
        stream.table.upgrade()
    _check(stream.table, Settings(unit_mb=script["unit_mb"]))


def _check(stream: StreamTable, settings: Settings) -> None:
    before = oracle.rows(stream.table)
    had = any(file.content == DataFileContent.EQUALITY_DELETES for file in stream.files())

    report = LocalEngine(settings).run(Request.new(stream.identifier))

    assert report.status is (Status.COMMITTED if had else Status.NOTHING_TO_DO), report
    after = stream.table
    live = stream.files()
    assert oracle.rows(after) == before
    assert not [file for file in live if file.content == DataFileContent.EQUALITY_DELETES]
    assert _readable(read_rows(after)) == _readable_rows(before)
    if after.metadata.format_version == 2:  # PyIceberg could not even plan this before
        assert after.scan().to_arrow().num_rows == sum(before.values())
    _check_deletes(live, after.metadata.format_version)
    assert not leftovers(after)

    location = after.metadata_location
    assert LocalEngine(settings).run(Request.new(stream.identifier)).status is Status.NOTHING_TO_DO
    assert stream.table.metadata_location == location


def _check_deletes(live: list[Any], version: int) -> None:
    """Every delete lies in the partition of what it deletes, and a file has one vector at most."""
    data = {file.path: file for file in live if file.content == DataFileContent.DATA}
    vectors = Counter(file.referenced_data_file for file in live if file.is_vector)
    assert not vectors or (version >= 3 and max(vectors.values()) == 1)
    for file in live:
        target = data.get(file.referenced_data_file)
        if file.content == DataFileContent.POSITION_DELETES and target is not None:
            assert file.partition_key == target.partition_key


def _readable(rows: pa.Table) -> Counter[Any]:
    """The serial numbers of the rows: they tell every row from every other."""
    return Counter(rows["value"].to_pylist())


def _readable_rows(rows: Counter[Any]) -> Counter[Any]:
    return Counter(row[-1] for row in rows.elements())
