"""The options of a compaction: names, defaults, what is refused, and what they come to at a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import (
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from producer.common.errors import Reason, Refused
from producer.model.plan import Rewrite, SortKey, Strategy
from producer.planning.compact.options import OPTION_FIELDS, JobOrder, Options, Tier, encode_options
from producer.planning.compact.rewrite_options import resolve
from tests.support.livefiles import metadata, spec

MB = 1 << 20
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
    NestedField(4, "place", StructType(NestedField(5, "x", DoubleType(), required=False)), required=False),
    NestedField(6, "tags", ListType(7, StringType()), required=False),
    NestedField(8, "by key", MapType(9, StringType(), 10, LongType()), required=False),
    schema_id=3,
)
TABLE = metadata(SCHEMA)


def table(**changes: Any) -> TableMetadata:
    return TABLE.model_copy(update=changes)


def sorted_by(*orders: SortOrder, default: int) -> TableMetadata:
    return table(sort_orders=[SortOrder(order_id=0), *orders], default_sort_order_id=default)


def parse(**given: str) -> Options:
    return Options.parse({name.replace("_", "-"): text for name, text in given.items()})


def resolved(given: Mapping[str, str], of: TableMetadata = TABLE) -> tuple[Rewrite, Options]:
    options = Options.parse(given)
    return resolve(options, of), options


def refusal(given: Mapping[str, str], of: TableMetadata = TABLE) -> str:
    """The sentence that options are refused with."""
    with pytest.raises(Refused) as refused:
        resolved(given, of)
    assert refused.value.reason == Reason.USAGE
    return str(refused.value)


def key(field_id: int, transform: str = "identity", descending: bool = False, nulls_first: bool = True) -> SortKey:
    return SortKey(field_id=field_id, transform=transform, descending=descending, nulls_first=nulls_first)


class TestParsing:
    """Options come as text, by the names that users know."""

    def test_names_are_those_of_iceberg(self) -> None:
        assert set(OPTION_FIELDS) == {
            "tier",
            "strategy",
            "sort-order",
            "zorder",
            "target-file-size-bytes",
            "min-file-size-bytes",
            "max-file-size-bytes",
            "min-input-files",
            "rewrite-all",
            "max-file-group-size-bytes",
            "max-files-to-rewrite",
            "delete-file-threshold",
            "delete-ratio-threshold",
            "rewrite-job-order",
            "output-spec-id",
            "use-starting-sequence-number",
            "remove-dangling-deletes",
        }
        assert all(field.description for field in OPTION_FIELDS.values())

    @pytest.mark.parametrize("text", ["134217728", "128MB", "128 MiB", "128m", "0.125gb", "131072K"])
    def test_sizes_have_units(self, text: str) -> None:
        assert parse(target_file_size_bytes=text).target_file_size_bytes == 128 * MB
        assert parse(min_file_size_bytes="0").min_file_size_bytes == 0

    def test_sizes_leave_as_bytes(self) -> None:
        """Workers of the release before know no units."""
        given = {"target-file-size-bytes": "128MB", "min-input-files": 2, "max-file-size-bytes": "many"}
        assert encode_options(given) == {
            "target-file-size-bytes": str(128 * MB),
            "min-input-files": "2",
            "max-file-size-bytes": "many",
        }

    @pytest.mark.parametrize("value", ["512", " 64 ", 64, (1 << 16) - 1], ids=repr)
    @pytest.mark.parametrize("name", [name for name in OPTION_FIELDS if name.endswith("-bytes")])
    def test_sizes_whose_unit_was_forgotten(self, name: str, value: str | int) -> None:
        size = str(value).strip()
        with pytest.raises(Refused, match=rf"^{name}={size} is {size} bytes: write {size}MB, or {size}b if that is"):
            encode_options({name: value})
        assert encode_options({name: f"{size}b"}) == {name: size}

    @pytest.mark.parametrize("value", ["0", 0, "65536", 1 << 16, "-5", "1.5", 1.5, True, "²"], ids=repr)
    def test_sizes_that_need_no_unit(self, value: object) -> None:
        """Zero is allowed as the least size; other values are checked with all options."""
        expected = "true" if value is True else str(value)
        assert encode_options({"min-file-size-bytes": value}) == {"min-file-size-bytes": expected}

    def test_every_option(self) -> None:
        options = parse(
            tier="minor",
            strategy="sort",
            sort_order="id",
            target_file_size_bytes="100",
            min_file_size_bytes="0",
            max_file_size_bytes="300",
            min_input_files="1",
            rewrite_all="true",
            max_file_group_size_bytes="1000",
            max_files_to_rewrite="7",
            delete_file_threshold="2",
            delete_ratio_threshold="1",
            rewrite_job_order="bytes-desc",
            output_spec_id="0",
            use_starting_sequence_number="false",
            remove_dangling_deletes="false",
        )
        assert resolve(options, TABLE) == Rewrite(
            strategy=Strategy.SORT,
            target_size=100,
            min_size=0,
            max_size=300,
            spec_id=0,
            schema_id=3,
            keep_sequence_number=False,
            remove_dangling=False,
            order=(key(1),),
        )
        assert (options.tier, options.rewrite_all, options.min_input_files) == (Tier.MINOR, True, 1)
        assert (options.max_file_group_size_bytes, options.max_files_to_rewrite) == (1000, 7)
        assert (options.delete_file_threshold, options.delete_ratio_threshold) == (2, 1.0)
        assert options.rewrite_job_order == JobOrder.BYTES_DESC

    def test_defaults(self) -> None:
        rewrite, options = resolved({})
        assert rewrite == Rewrite(
            strategy=Strategy.BINPACK,
            target_size=512 * MB,
            min_size=384 * MB,
            max_size=512 * MB * 18 // 10,
            spec_id=0,
            schema_id=3,
        )
        assert (options.min_input_files, options.max_file_group_size_bytes) == (5, 100 << 30)
        assert (options.delete_ratio_threshold, options.rewrite_job_order) == (0.3, JobOrder.NONE)
        assert (options.rewrite_all, options.tier) == (False, Tier.MAJOR)
        assert (options.max_files_to_rewrite, options.delete_file_threshold) == (None, None)

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("min-input-file", "There is no option 'min-input-file': did you mean 'min-input-files'?"),
            ("target_file_size_bytes", "did you mean 'target-file-size-bytes'?"),
            ("Rewrite-All", "did you mean 'rewrite-all'?"),
            ("colour", "There is no option 'colour'; there are tier, strategy, "),
            ("partial-progress.enabled", "There is no option 'partial-progress.enabled'"),
        ],
    )
    def test_unknown_ones_are_refused_by_name(self, name: str, says: str) -> None:
        assert says in refusal({name: "1"})
        assert not refusal({name: "1"}).endswith("?.")

    @pytest.mark.parametrize(
        ("name", "value", "says"),
        [
            ("tier", "medium", "tier='medium' is not allowed: one of minor, major, full."),
            ("strategy", "best", "strategy='best' is not allowed: one of binpack, sort, zorder."),
            ("rewrite-job-order", "size", "one of none, bytes-asc, bytes-desc, files-asc, files-desc."),
            ("min-input-files", "0", "min-input-files='0' is not allowed: a whole number from 1 on."),
            ("min-input-files", "many", "min-input-files='many' is not allowed: a whole number from 1 on."),
            ("target-file-size-bytes", "0", "a whole number of bytes above 0, or a size such as 128MB."),
            ("target-file-size-bytes", "512 apples", "a whole number of bytes above 0, or a size such as 128MB."),
            ("target-file-size-bytes", "1.5", "a whole number of bytes above 0, or a size such as 128MB."),
            ("target-file-size-bytes", str(1 << 63), "a whole number of bytes above 0, or a size such as 128MB."),
            ("min-file-size-bytes", "-1", "a whole number of bytes, 0 or more, or a size such as 96MB."),
            ("rewrite-all", "maybe", "rewrite-all='maybe' is not allowed: true or false."),
            ("delete-ratio-threshold", "0", "delete-ratio-threshold='0' is not allowed: a number above 0, 1 at most."),
            ("delete-ratio-threshold", "1.01", "a number above 0, 1 at most."),
            ("delete-ratio-threshold", "nan", "a number above 0, 1 at most."),
            ("delete-file-threshold", "0", "a whole number from 1 on."),
            ("max-files-to-rewrite", "0", "a whole number from 1 on."),
            ("max-file-group-size-bytes", "", "a whole number of bytes above 0, or a size such as 128MB."),
            ("output-spec-id", "x", "output-spec-id='x' is not allowed: the id of a partition spec."),
            ("sort-order", "", "sort-order='' is not allowed: columns, such as id desc nulls last."),
            ("zorder", "id,,at", "zorder='id,,at' is not allowed: names of columns, separated by commas."),
        ],
    )
    def test_values_that_are_not_allowed(self, name: str, value: str, says: str) -> None:
        assert says in refusal({name: value})

    def test_values_of_python_become_text(self) -> None:
        given = {"rewrite-all": True, "min-input-files": 2, "zorder": ["id", "at"], "tier": Tier.FULL, "where": None}
        assert encode_options(given) == {
            "rewrite-all": "true",
            "min-input-files": "2",
            "zorder": "id,at",
            "tier": "full",
        }


class TestSizes:
    """Target, least and most, in this order."""

    def test_the_table_says_what_a_file_measures(self) -> None:
        rewrite, _ = resolved({}, table(properties={"write.target-file-size-bytes": "1000"}))
        assert (rewrite.min_size, rewrite.target_size, rewrite.max_size) == (750, 1000, 1800)

    def test_what_is_asked_for_wins(self) -> None:
        rewrite, _ = resolved(
            {"target-file-size-bytes": "100"}, table(properties={"write.target-file-size-bytes": "1"})
        )
        assert (rewrite.min_size, rewrite.target_size, rewrite.max_size) == (75, 100, 180)

    @pytest.mark.parametrize("value", ["x", "0", "-1", "1.5", "²", str(1 << 63)])
    def test_a_property_that_is_no_size(self, value: str) -> None:
        found = refusal({}, table(properties={"write.target-file-size-bytes": value}))
        assert found == (
            f"The table's property write.target-file-size-bytes={value!r} is no number of bytes: "
            "give target-file-size-bytes."
        )

    @pytest.mark.parametrize(("least", "most"), [("99", "101"), ("0", "1000")])
    def test_just_in_order(self, least: str, most: str) -> None:
        given = {"target-file-size-bytes": "100", "min-file-size-bytes": least, "max-file-size-bytes": most}
        rewrite, _ = resolved(given)
        assert (rewrite.min_size, rewrite.max_size) == (int(least), int(most))

    @pytest.mark.parametrize(
        ("name", "value", "says"),
        [
            ("min-file-size-bytes", "100", "it must be less than target-file-size-bytes, 100."),
            ("max-file-size-bytes", "100", "it must be more than target-file-size-bytes, 100."),
        ],
    )
    def test_out_of_order(self, name: str, value: str, says: str) -> None:
        found = refusal({"target-file-size-bytes": "100", name: value})
        assert found == f"{name}={value} is not allowed: {says}"

    def test_out_of_order_with_the_table(self) -> None:
        found = refusal({"max-file-size-bytes": "50"}, table(properties={"write.target-file-size-bytes": "100"}))
        assert found.endswith("it must be more than the table's write.target-file-size-bytes, 100.")

    def test_the_smallest_target_has_room(self) -> None:
        rewrite, _ = resolved({"target-file-size-bytes": "1"})
        assert rewrite.min_size < rewrite.target_size < rewrite.max_size


class TestTiers:
    """Presets that what is asked for overrules."""

    def test_minor(self) -> None:
        rewrite, options = resolved({"tier": "minor", "target-file-size-bytes": "800"})
        assert (options.tier, options.delete_file_threshold) == (Tier.MINOR, 1)
        assert (rewrite.min_size, rewrite.max_size, options.rewrite_all) == (100, 1440, False)

    def test_full(self) -> None:
        assert resolved({"tier": "full"})[1].rewrite_all
        assert resolved({"tier": "full"})[0] == resolved({})[0]

    def test_major_is_the_default(self) -> None:
        assert resolved({"tier": "major"}) == resolved({})

    def test_what_is_given_wins(self) -> None:
        given = {"tier": "minor", "min-file-size-bytes": "7", "delete-file-threshold": "3"}
        rewrite, options = resolved(given)
        assert (rewrite.min_size, options.delete_file_threshold) == (7, 3)
        assert not resolved({"tier": "full", "rewrite-all": "false"})[1].rewrite_all


class TestStrategies:
    """What a strategy needs, and what goes with no other."""

    @pytest.mark.parametrize(
        ("given", "strategy"),
        [
            ({"sort-order": "id"}, Strategy.SORT),
            ({"zorder": "id,at"}, Strategy.ZORDER),
            ({"strategy": "zorder", "zorder": "id"}, Strategy.ZORDER),
            ({"strategy": "sort", "sort-order": "zorder(id, at)"}, Strategy.ZORDER),
            ({"sort-order": " ZORDER(id,at) "}, Strategy.ZORDER),
        ],
    )
    def test_it_may_follow(self, given: dict[str, str], strategy: Strategy) -> None:
        assert Options.parse(given).strategy is strategy

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"strategy": "binpack", "sort-order": "id"}, "sort-order='id' goes with strategy=sort, not binpack."),
            ({"strategy": "binpack", "zorder": "id"}, "zorder='id' goes with strategy=zorder, not binpack."),
            ({"strategy": "sort", "zorder": "id"}, "zorder='id' goes with strategy=zorder, not sort."),
            ({"sort-order": "id", "zorder": "id"}, "goes with strategy="),
            ({"strategy": "zorder"}, "strategy=zorder needs columns"),
            ({"strategy": "sort"}, "The table has no sort order: give one as sort-order"),
        ],
    )
    def test_what_does_not_go_together(self, given: dict[str, str], says: str) -> None:
        assert says in refusal(given)

    def test_zorder(self) -> None:
        rewrite, _ = resolved({"zorder": "id, `place.x`"})
        assert (rewrite.zorder, rewrite.order, rewrite.sort_order_id) == ((1, 5), (), 0)

    @pytest.mark.parametrize("odd", ["a,b", "a`b", "`q`", " a", "`", ",", "a b", "x)", "`,`"])
    def test_zorder_of_a_list_has_names_as_they_are(self, odd: str) -> None:
        of = metadata(Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, odd, LongType())))
        for names, ids in (([odd], (2,)), ([odd, "id"], (2, 1)), (["id", odd], (1, 2))):
            assert resolved(encode_options({"zorder": names}), of)[0].zorder == ids

    def test_zorder_of_more_columns_than_are_interleaved(self) -> None:
        wide = metadata(Schema(*[NestedField(n, f"c{n}", LongType(), required=False) for n in range(1, 64)]))
        names = wide.schema().column_names
        assert len(resolved({"zorder": ",".join(names[:62])}, wide)[0].zorder) == 62
        assert refusal({"zorder": ",".join(names)}, wide) == "zorder: 63 columns are given, and 62 are allowed."

    @pytest.mark.parametrize(
        ("columns", "says"),
        [
            ("id,nam", "zorder: the table has no column 'nam': did you mean 'name'?"),
            ("id,id", "zorder: 'id' is named twice."),
            ("place", "zorder: 'place' is a struct<5: x: optional double>, which has no order."),
            ("tags.element", "zorder: 'tags.element' lies in a list or a map, which has no order."),
        ],
    )
    def test_zorder_of_other_columns(self, columns: str, says: str) -> None:
        assert refusal({"zorder": columns}).startswith(says)


class TestSortOrders:
    """Text, and the table's own."""

    @pytest.mark.parametrize(
        ("text", "keys"),
        [
            ("id", [key(1)]),
            ("id asc", [key(1)]),
            ("id DESC", [key(1, descending=True, nulls_first=False)]),
            ("id desc nulls first", [key(1, descending=True)]),
            ("id ASC NULLS LAST", [key(1, nulls_first=False)]),
            ("id nulls last , name", [key(1, nulls_first=False), key(2)]),
            ("id desc nulls last, bucket(16, name) asc", [key(1, "identity", True, False), key(2, "bucket[16]")]),
            ("bucket( name,16 )", [key(2, "bucket[16]")]),
            ("truncate(4, name) desc", [key(2, "truncate[4]", True, False)]),
            ("year(at),months(at), days(at),date(at), hour(at)", [
                key(3, name) for name in ("year", "month", "day", "day", "hour")
            ]),
            ("identity(id)", [key(1)]),
            ("`id`, place.x", [key(1), key(5)]),
        ],
    )  # fmt: skip
    def test_text(self, text: str, keys: list[SortKey]) -> None:
        rewrite, _ = resolved({"sort-order": text})
        assert rewrite.order == tuple(keys)
        assert rewrite.sort_order_id == 0

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("id,", "cannot be understood from character 4 on"),
            (" ", "cannot be understood from character 1 on"),
            ("id name", "cannot be understood from character 4 on"),
            ("id desc asc", "cannot be understood from character 9 on"),
            ("id nulls", "cannot be understood from character 4 on"),
            ("bucket(16, name", "cannot be understood from character"),
            ("bucket(name)", "'bucket(name)' is no transform; there are bucket(n, column), "),
            ("bucket(0, name)", "is no transform"),
            ("bucket(², name)", "is no transform"),
            ("shuffle(id)", "'shuffle(id)' is no transform"),
            ("day(id)", "day takes no long such as 'id'."),
            ("ide", "the table has no column 'ide': did you mean 'id'?"),
            ("zzz", "the table has no column 'zzz'; there are id, name"),
            ("tags", "'tags' is a list<string>, which has no order."),
        ],
    )
    def test_text_that_is_refused(self, text: str, says: str) -> None:
        assert says in refusal({"sort-order": text})

    BY_ID = SortOrder(
        SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
        SortField(2, BucketTransform(16), SortDirection.ASC, NullOrder.NULLS_FIRST),
        order_id=1,
    )
    BY_NAME = SortOrder(SortField(2, IdentityTransform()), order_id=2)

    def test_the_tables_own(self) -> None:
        rewrite, _ = resolved({"strategy": "sort"}, sorted_by(self.BY_ID, self.BY_NAME, default=1))
        assert rewrite.order == (key(1, descending=True, nulls_first=False), key(2, "bucket[16]"))
        assert rewrite.sort_order_id == 1

    @pytest.mark.parametrize(
        ("text", "order_id"), [("name", 2), ("id desc, bucket(16, name)", 1), ("name desc", 0), ("name, id", 0)]
    )
    def test_one_that_the_table_has(self, text: str, order_id: int) -> None:
        rewrite, _ = resolved({"sort-order": text}, sorted_by(self.BY_ID, self.BY_NAME, default=1))
        assert rewrite.sort_order_id == order_id

    def test_the_tables_own_without_its_column(self) -> None:
        gone = SortOrder(SortField(99, IdentityTransform()), order_id=1)
        assert "identity of column 99, which cannot be sorted by" in refusal(
            {"strategy": "sort"}, sorted_by(gone, default=1)
        )


class TestSpecs:
    """The spec that files are written under."""

    TABLE = metadata(
        SCHEMA,
        specs=[
            spec(0, (99, IdentityTransform(), "gone")),
            spec(1, (99, VoidTransform(), "void")),
            spec(2, (1, BucketTransform(4), "b")),
        ],
    )

    @pytest.mark.parametrize(("given", "expected"), [({}, 2), ({"output-spec-id": "1"}, 1)])
    def test_one_of_the_table(self, given: dict[str, str], expected: int) -> None:
        assert resolved(given, self.TABLE)[0].spec_id == expected

    def test_another(self) -> None:
        assert refusal({"output-spec-id": "7"}, self.TABLE) == (
            "output-spec-id=7 is not allowed: the table has 0, 1, 2."
        )

    def test_one_that_cannot_be_written(self) -> None:
        assert refusal({"output-spec-id": "0"}, self.TABLE).startswith(
            "Partition spec 0 cannot be written: its field 'gone' is made from a dropped column"
        )
