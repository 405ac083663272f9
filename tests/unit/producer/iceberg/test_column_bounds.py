"""Pruning by bounds: it may read too much, and never too little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
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
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from producer.iceberg.column_bounds import Interval, file_intervals, may_match, union_intervals


@dataclass
class File:
    """The column metrics of a file."""

    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)


def file_of(values: Sequence[Any], type_: PrimitiveType, *, cut: int | None = None) -> File:
    """The metrics a writer gives for a column's values; strings and binaries cut to ``cut``, upper bounds as well."""
    known = [value for value in values if value is not None]
    nulls = {1: len(values) - len(known)}
    if not known:
        return File(null_value_counts=nulls)
    lower, upper = min(known)[:cut] if cut else min(known), max(known)[:cut] if cut else max(known)
    return File({1: to_bytes(type_, lower)}, {1: to_bytes(type_, upper)}, nulls)


def meet(data: File, deletes: File | Sequence[File], type_: PrimitiveType) -> bool:
    """Whether a row of ``data`` may match one of the deletes."""
    columns = [(1, type_)]
    several = [deletes] if isinstance(deletes, File) else deletes
    deleted = reduce(union_intervals, (file_intervals(file, columns) for file in several))
    return may_match(file_intervals(data, columns), deleted)


KINDS: dict[str, tuple[PrimitiveType, st.SearchStrategy[Any]]] = {
    "int": (IntegerType(), st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1)),
    "long": (LongType(), st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)),
    "date": (DateType(), st.integers(-5, 5)),
    "time": (TimeType(), st.integers(0, 5)),
    "timestamp": (TimestampType(), st.integers(-5, 5)),
    "timestamptz": (TimestamptzType(), st.integers(-5, 5)),
    "timestamp_ns": (TimestampNanoType(), st.integers(-5, 5)),
    "decimal": (DecimalType(9, 2), st.integers(-500, 500).map(lambda cents: Decimal(cents).scaleb(-2))),
    "string": (StringType(), st.text("ab\x7f\x80ÿ𝄞\U0010ffff", max_size=20)),
    "binary": (BinaryType(), st.binary(max_size=20)),
}


@pytest.mark.parametrize("name", KINDS)
def test_no_match_is_ever_lost(name: str) -> None:
    type_, values = KINDS[name]

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.none() | values, min_size=1), st.lists(st.none() | values, min_size=1), st.integers(16, 20))
    def holds(rows: list[Any], keys: list[Any], cut: int) -> None:
        cuts = [None, cut] if isinstance(type_, (StringType, BinaryType)) else [None]
        if set(rows) & set(keys):
            for data_cut in cuts:
                for delete_cut in cuts:
                    assert meet(file_of(rows, type_, cut=data_cut), file_of(keys, type_, cut=delete_cut), type_)

    holds()


@settings(max_examples=200, deadline=None)
@given(
    st.text("ab\x7f\x80ÿ𝄞\U0010ffff", min_size=16, max_size=16),
    st.text("ab\x7f\x80ÿ𝄞\U0010ffff", min_size=1, max_size=3),
    st.text("ab", max_size=3),
)
def test_a_string_above_an_upper_bound_that_was_cut(prefix: str, rest: str, other: str) -> None:
    """Sixteen characters of any number of bytes, cut and not raised: what was cut still matches."""
    data = file_of([other, prefix + rest], StringType(), cut=16)
    assert meet(data, file_of([prefix + rest], StringType()), StringType())
    assert meet(file_of([prefix + rest], StringType()), data, StringType())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1), st.integers(-(2**63), 2**63 - 1))
def test_ints_that_were_promoted_compare_as_longs(rows: list[int], key: int) -> None:
    old = file_of(rows, IntegerType())
    assert len(old.lower_bounds[1]) == 4
    assert meet(old, file_of([key], LongType()), LongType()) == (min(rows) <= key <= max(rows))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-99, 99), min_size=1), st.integers(-(10**17), 10**17))
def test_decimals_that_were_widened_compare_by_value(rows: list[int], key: int) -> None:
    old = file_of([Decimal(cents).scaleb(-2) for cents in rows], DecimalType(9, 2))
    new = file_of([Decimal(key).scaleb(-2)], DecimalType(18, 2))
    assert meet(old, new, DecimalType(18, 2)) == (min(rows) <= key <= max(rows))


def test_dates_that_were_promoted_are_read() -> None:
    """Four bytes are days, and the column's values microseconds."""
    days = file_of([date(2024, 5, 1).toordinal() - date(1970, 1, 1).toordinal()], DateType())
    assert meet(days, file_of([0], TimestampType()), TimestampType())


@pytest.mark.parametrize("type_", [IntegerType(), LongType(), DateType(), TimestampType(), DecimalType(9, 0)], ids=str)
def test_what_cannot_match_is_left_out(type_: PrimitiveType) -> None:
    def of(*numbers: int) -> File:
        return file_of([Decimal(n) if isinstance(type_, DecimalType) else n for n in numbers], type_)

    assert not meet(of(1, 3), of(4, 9), type_)
    assert not meet(of(10, 12), of(4, 9), type_)
    assert meet(of(1, 4), of(4, 9), type_)
    assert meet(of(9, 12), of(4, 9), type_)
    assert not meet(of(-3, -1), of(1, 3), type_), "signs are not lost"


@pytest.mark.parametrize("type_", [StringType(), BinaryType()], ids=str)
def test_strings_that_cannot_match_are_left_out(type_: PrimitiveType) -> None:
    def of(*texts: str, cut: int | None = None) -> File:
        values = [text if isinstance(type_, StringType) else text.encode() for text in texts]
        return file_of(values, type_, cut=cut)

    assert not meet(of("a", "b"), of("c", "d"), type_)
    assert not meet(of("c", "d"), of("a", "b"), type_)
    assert not meet(of("a" * 15, "b" * 15), of("b" * 15 + "c"), type_), "a short bound is whole"
    assert meet(of("a", "b" * 20, cut=16), of("b" * 16 + "c"), type_)
    assert not meet(of("a", "b" * 20, cut=16), of("c"), type_), "what was cut changes only the end"
    assert meet(of("b" * 20, "d", cut=16), of("b" * 20), type_), "a lower bound that was cut is still below"


def test_an_upper_bound_that_cannot_be_raised_is_open() -> None:
    highest = b"\xff" * 16
    assert meet(file_of([highest], BinaryType()), file_of([highest + b"\x01"], BinaryType()), BinaryType())
    assert not meet(file_of([highest], BinaryType()), file_of([b"\xfe"], BinaryType()), BinaryType())


@pytest.mark.parametrize("type_", [FloatType(), DoubleType(), BooleanType(), UUIDType(), FixedType(2)], ids=str)
def test_types_without_a_common_order_are_always_read(type_: PrimitiveType) -> None:
    """NaN and -0.0 in floats, the signs of halves in uuids: writers disagree."""
    low, high = {
        "float": (1.0, 5.0),
        "double": (1.0, 5.0),
        "boolean": (False, True),
        "uuid": (b"\x01" * 16, b"\xf1" * 16),
        "fixed[2]": (b"\x01\x01", b"\xf1\xf1"),
    }[str(type_)]
    assert meet(file_of([low], type_), file_of([high], type_), type_)
    assert Interval.of(file_of([low], type_), 1, type_) == Interval(None, None, False)


class TestNulls:
    """Null equals null, and lies in no bounds."""

    def test_null_meets_null_whatever_the_bounds(self) -> None:
        assert meet(file_of([1, None], LongType()), file_of([5, None], LongType()), LongType())

    def test_null_on_one_side_meets_nothing(self) -> None:
        assert not meet(file_of([1, None], LongType()), file_of([5], LongType()), LongType())
        assert not meet(file_of([1], LongType()), file_of([5, None], LongType()), LongType())

    def test_a_column_of_nulls_meets_null(self) -> None:
        assert meet(file_of([None], LongType()), file_of([None], LongType()), LongType())

    def test_counts_that_are_not_recorded_may_be_of_nulls(self) -> None:
        one, five = to_bytes(LongType(), 1), to_bytes(LongType(), 5)
        assert meet(File({1: one}, {1: one}), File({1: five}, {1: five}), LongType())


class TestUnknownBounds:
    """A file without metrics for a column, as one from before the column was added, is read."""

    @pytest.mark.parametrize("missing", ["lower_bounds", "upper_bounds", "both"])
    def test_it_is_read(self, missing: str) -> None:
        known = file_of([1], LongType())
        names = ("lower_bounds", "upper_bounds") if missing == "both" else (missing,)
        unknown = File(**{**vars(known), **{name: {} for name in names}})
        assert meet(unknown, file_of([9], LongType()), LongType())
        assert meet(file_of([9], LongType()), unknown, LongType())

    def test_one_file_among_several_makes_all_of_them_unknown(self) -> None:
        known = file_of([1], LongType())
        assert not meet(file_of([9], LongType()), [known, known], LongType())
        assert meet(file_of([9], LongType()), [known, File(null_value_counts={1: 0})], LongType())


class TestSeveralFilesAndColumns:
    """Deletes are looked at together, columns one by one."""

    def test_the_gap_between_two_files_counts_as_theirs(self) -> None:
        deletes = [file_of([1], LongType()), file_of([9], LongType())]
        assert meet(file_of([5], LongType()), deletes, LongType())
        assert not meet(file_of([10], LongType()), deletes, LongType())

    def test_nulls_of_one_are_nulls_of_all(self) -> None:
        deletes = [file_of([1], LongType()), file_of([2, None], LongType())]
        assert meet(file_of([5, None], LongType()), deletes, LongType())

    def test_one_column_that_cannot_match_is_enough(self) -> None:
        def both(first: int, second: int) -> File:
            bounds = {1: to_bytes(LongType(), first), 2: to_bytes(LongType(), second)}
            return File(bounds, bounds, {1: 0, 2: 0})

        columns: list[tuple[int, PrimitiveType]] = [(1, LongType()), (2, LongType())]
        data = file_intervals(both(1, 1), columns)
        assert may_match(data, file_intervals(both(1, 1), columns))
        assert not may_match(data, file_intervals(both(1, 2), columns))
        assert not may_match(data, file_intervals(both(2, 1), columns))
