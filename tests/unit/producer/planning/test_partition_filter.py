"""``--where``: whole partitions or nothing, and sentences that a person understands."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestampType, TimestamptzType

from producer.common.errors import Reason, Refused
from producer.planning.partition_filter import PartitionFilter
from tests.support.livefiles import metadata, spec

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "ts", TimestampType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "tz", TimestamptzType()),
)
REGION: tuple[int, Any, str] = (2, IdentityTransform(), "region")
#: Days since 1970.
MAY_1 = 19844


def selected(where: str | None, field: tuple[int, Any, str], *values: Any) -> list[Any]:
    """The values of a table's one partition field that a filter selects; refusals instead of what they refuse."""
    partition_filter = PartitionFilter(where, metadata(SCHEMA, specs=[spec(0, field)]))
    found = []
    for value in values:
        try:
            if partition_filter.selects(0, Record(value)):
                found.append(value)
        except Refused:
            found.append("refused")
    return found


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, ["eu", "us", None]),
        ("true", ["eu", "us", None]),
        ("region = 'eu'", ["eu"]),
        ("region in ('eu', 'us')", ["eu", "us"]),
        ("region is null", [None]),
        ("region is not null", ["eu", "us"]),
        ("region = 'eu' or region is null", ["eu", None]),
        ("region > 'f'", ["us"]),
        ("region like 'e%'", ["eu"]),
        ("region = 'asia'", []),
    ],
)
def test_identity(where: str | None, expected: list[str | None]) -> None:
    assert selected(where, REGION, "eu", "us", None) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("ts >= '2024-05-01T00:00:00'", [MAY_1, MAY_1 + 1]),
        ("ts > '2024-04-30T23:59:59.999999'", [MAY_1, MAY_1 + 1]),
        ("ts >= '2024-05-01T00:00:00' and ts < '2024-05-02T00:00:00'", [MAY_1]),
        ("ts <= '2024-05-01T23:59:59.999999'", [MAY_1 - 1, MAY_1]),
        ("ts is null", [None]),
        ("ts >= '2024-05-01T00:00:00.000001'", ["refused", MAY_1 + 1]),
        ("ts >= '2024-05-01T12:00:00'", ["refused", MAY_1 + 1]),
        ("ts <= '2024-05-01T23:59:59.999998'", [MAY_1 - 1, "refused"]),
        ("ts = '2024-05-01T00:00:00'", ["refused"]),
    ],
)
def test_days(where: str, expected: list[Any]) -> None:
    assert selected(where, (3, DayTransform(), "ts_day"), MAY_1 - 1, MAY_1, MAY_1 + 1, None) == expected


def test_other_parts_of_time() -> None:
    april = 651
    assert selected("day >= '2024-05-01'", (4, MonthTransform(), "m"), april, april + 1) == [april + 1]
    assert selected("day >= '2024-05-02'", (4, MonthTransform(), "m"), april, april + 1) == ["refused"]
    hour = MAY_1 * 24
    where = "tz >= '2024-05-01T01:00:00+00:00'"
    assert selected(where, (5, HourTransform(), "h"), hour, hour + 1) == [hour + 1]
    where = "tz >= '2024-05-01T02:00:00+01:00'"
    assert selected(where, (5, HourTransform(), "h"), hour, hour + 1) == [hour + 1]


def test_buckets_are_cut_in_two_by_every_value() -> None:
    """Bucket 3 is where 5 is, together with others."""
    bucket: tuple[int, Any, str] = (1, BucketTransform(4), "bucket")
    assert selected("id = 5", bucket, 0, 1, 2, None) == []
    assert selected("id = 5", bucket, 3) == ["refused"]
    assert selected("id in (5, 6)", bucket, 1, 3) == ["refused", "refused"]
    assert selected("id is null", bucket, 0, 3, None) == [None]
    assert selected("id is not null", bucket, 0, 3, None) == [0, 3]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("region like 'eu%'", ["eu"]),
        ("region like 'e%'", ["e", "eu"]),
        ("region not like 'eu%'", ["e", "us", None]),
        ("region is null", [None]),
        ("region like 'eur%'", ["refused"]),
        ("region = 'eu'", ["refused"]),
    ],
)
def test_truncated_strings(where: str, expected: list[Any]) -> None:
    assert selected(where, (2, TruncateTransform(2), "prefix"), "e", "eu", "us", None) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id >= 10", [10, 20]),
        ("id >= 10 and id < 20", [10]),
        ("id <= 19", [0, 10]),
        ("id <= 18", [0, "refused"]),
        ("id >= 15", ["refused", 20]),
    ],
)
def test_truncated_numbers(where: str, expected: list[Any]) -> None:
    assert selected(where, (1, TruncateTransform(10), "tens"), 0, 10, 20, None) == expected


def test_the_partition_that_is_cut_in_two_is_named() -> None:
    partition_filter = PartitionFilter(
        "ts >= '2024-05-01T12:00:00'", metadata(SCHEMA, specs=[spec(0, REGION, (3, DayTransform(), "ts_day"))])
    )
    with pytest.raises(Refused, match=r"only a part of partition region=eu/ts_day=2024-05-01: select whole") as refused:
        partition_filter.selects(0, Record("eu", MAY_1))
    assert refused.value.reason == Reason.WHERE


def test_several_fields_select_together() -> None:
    table = metadata(SCHEMA, specs=[spec(0, REGION, (4, IdentityTransform(), "day"))])
    partition_filter = PartitionFilter("region = 'eu' and day >= '2024-05-01'", table)
    assert partition_filter.selects(0, Record("eu", MAY_1))
    assert not partition_filter.selects(0, Record("eu", MAY_1 - 1))
    assert not partition_filter.selects(0, Record("us", MAY_1))
    assert PartitionFilter("region = 'eu'", table).selects(0, Record("eu", None)), "the other field may be anything"


class TestHistoricSpecs:
    """A partition of an older spec is selected when all of its rows are, and left out without a word otherwise."""

    TABLE = metadata(
        SCHEMA,
        specs=[
            spec(0),
            spec(1, (4, MonthTransform(), "month")),
            spec(2, (4, MonthTransform(), "month"), REGION),
            spec(3, (4, IdentityTransform(), "day")),
        ],
    )

    def test_whole_partitions(self) -> None:
        partition_filter = PartitionFilter("day >= '2024-05-01'", self.TABLE)
        assert partition_filter.selects(1, Record(652))
        assert partition_filter.selects(2, Record(652, "eu"))
        assert not partition_filter.selects(1, Record(651))

    def test_a_part_is_left_out_without_a_refusal(self) -> None:
        partition_filter = PartitionFilter("day >= '2024-05-02'", self.TABLE)
        assert not partition_filter.selects(1, Record(652))
        assert partition_filter.selects(1, Record(653))
        assert not partition_filter.selects(0, Record()), "a file without a partition holds any day"

    def test_everything_is_everything(self) -> None:
        for where in (None, "true"):
            partition_filter = PartitionFilter(where, self.TABLE)
            assert partition_filter.selects(0, Record())
            assert partition_filter.selects(1, Record(651))
        assert PartitionFilter(None, self.TABLE).selects_all
        assert not PartitionFilter("true", self.TABLE).selects_all

    def test_a_spec_by_a_column_that_was_dropped(self) -> None:
        later = Schema(*(field for field in SCHEMA.fields if field.name != "region"), schema_id=1)
        table = metadata(
            SCHEMA, later, specs=[spec(0, REGION), spec(1, REGION, (4, IdentityTransform(), "day")), self.TABLE.spec()]
        )
        partition_filter = PartitionFilter("day = '2024-05-01'", table)
        assert not partition_filter.selects(0, Record("eu"))
        assert partition_filter.selects(1, Record("eu", MAY_1))


class TestRefusals:
    """One short line that names the filter and what is wrong with it."""

    @pytest.mark.parametrize(
        ("where", "says"),
        [
            ("", "at its end, character 1: something is missing"),
            ("region =", "at its end, character 9: something is missing"),
            ("region ==== 'eu'", "from character 10 on: \"== 'eu'\""),
            ("region = 'eu", "at its end, character 13"),
            ("(region = 'eu'", "at its end, character 15"),
            ("region = 'eu' region = 'us'", "from character 15 on: \"region = 'us'\""),
            ("region = 'eu' and ts == ", "at its end, character 25"),
            ("(region = 'eu' or (region = ) and true)", "from character 29 on: '[)] and true[)]'"),
            ("ts > 2024-05-01", "from character 10 on: '-05-01'"),
            ("region in 'eu'", "from character 11 on: \"'eu'\""),
            (f"region = eu{'x' * 60}", f"from character 10 on: 'eu{'x' * 38}…'"),
            ("select * from t; drop table t", "from character 8 on: '[*] from t; drop table t'"),
            ("region like '%u'", "cannot be understood: LIKE"),
            ("country = 'eu'", "name country"),
            ("region = 5", "string"),
            ("day = '2024-13-77'", "2024-13-77"),
            ("ts >= '2024-05-01'", "timestamp"),
            ("id = 1", "id does not partition the table; it is partitioned by region, ts"),
            ("region = 'eu' and day = '2024-05-01'", "day does not partition"),
            ("tz >= '2024-05-01'", r"; an example: ts >= '2024-05-01T00:00:00\+00:00'\.$"),
            ("tz >= '2024-05-01T00:00:00'", r"; an example: ts >= '2024-05-01T00:00:00\+00:00'\.$"),
        ],
    )
    def test_it_says_what_is_wrong(self, where: str, says: str) -> None:
        table = metadata(SCHEMA, specs=[spec(0, REGION, (3, DayTransform(), "ts_day"))])
        with pytest.raises(Refused, match=says) as refused:
            PartitionFilter(where, table)
        sentence = str(refused.value)
        assert refused.value.reason == Reason.WHERE
        assert sentence.startswith(f"--where {where!r}")
        assert sentence.endswith(".")
        assert "\n" not in sentence
        assert len(sentence) < 160 + len(where)

    @pytest.mark.parametrize("fields", [[], [(2, VoidTransform(), "region")]], ids=["no field", "void"])
    def test_an_unpartitioned_table_has_nothing_to_select(self, fields: list[tuple[int, Any, str]]) -> None:
        with pytest.raises(Refused, match="region does not partition the table; it is not partitioned"):
            PartitionFilter("region = 'eu'", metadata(SCHEMA, specs=[spec(0, *fields)]))

    def test_a_column_of_an_older_spec_does_not_partition_the_table(self) -> None:
        table = metadata(SCHEMA, specs=[spec(0, REGION), spec(1, (4, IdentityTransform(), "day"))])
        with pytest.raises(Refused, match="region does not partition the table; it is partitioned by day"):
            PartitionFilter("region = 'eu'", table)
