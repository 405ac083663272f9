"""Units of about the same cost: where partitions are cut, and how small ones are bundled."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.planning.convert.planner import ConversionFileGroup, split
from producer.planning.units import bundle, bundle_label
from tests.support.livefiles import live


def group(*costs: int, deletes: int = 0, name: str = "p", refused: str | None = None) -> ConversionFileGroup:
    """A group of one file for each cost."""
    files = tuple((live(f"{name}{number}", 1), ()) for number in range(len(costs)))
    return ConversionFileGroup(name, files, sum(costs) + deletes, refused)


def cut(limit: int, *costs: int, deletes: int = 0) -> list[list[int]]:
    """The costs of the files of each group that a partition is cut into."""
    whole = group(*costs, deletes=deletes)
    by_path = {file.path: cost for (file, _), cost in zip(whole.files, costs, strict=True)}
    return [[by_path[file.path] for file, _ in part.files] for part in split(whole, by_path, deletes, limit)]


def bundled(limit: int, *groups: ConversionFileGroup) -> list[list[str]]:
    """The names of the groups in each bundle."""
    return [[part.label for part in together] for together in bundle(groups, limit)]


class TestSplit:
    """Deletes are read again by every group, and count for each."""

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [
            (30, [[10, 10, 10]]),
            (29, [[10, 10], [10]]),
            (20, [[10, 10], [10]]),
            (19, [[10], [10], [10]]),
            (1, [[10], [10], [10]]),
        ],
    )
    def test_the_limit_is_the_last_that_fits(self, limit: int, expected: list[list[int]]) -> None:
        assert cut(limit, 10, 10, 10) == expected

    @pytest.mark.parametrize(("limit", "expected"), [(22, [[10, 10]]), (21, [[10], [10]])])
    def test_deletes_take_their_room(self, limit: int, expected: list[list[int]]) -> None:
        assert cut(limit, 10, 10, deletes=2) == expected

    def test_a_group_has_several_times_the_bytes_of_its_deletes(self) -> None:
        """Otherwise the deletes of a partition that has many would be read again and again, for a few files each."""
        assert cut(100, *[10] * 80, deletes=100) == [[10] * 40, [10] * 40]
        assert cut(1, *[10] * 80, deletes=100) == [[10] * 40, [10] * 40]
        assert cut(256, *[8] * 40, deletes=165) == [[8] * 40], "as many deletes as half of the rows: one unit"

    def test_a_file_is_never_cut(self) -> None:
        assert cut(10, 500) == [[500]]
        assert cut(10, 500, 1, 500) == [[500], [1], [500]]

    def test_labels_and_costs(self) -> None:
        parts = list(split(group(10, 10, deletes=2), {"p0": 10, "p1": 10}, 2, 12))
        assert [(part.label, part.cost) for part in parts] == [("p 1/2", 12), ("p 2/2", 12)]
        [whole] = split(group(10, 10, deletes=2), {"p0": 10, "p1": 10}, 2, 22)
        assert (whole.label, whole.cost) == ("p", 22)

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(0, 60), st.integers(1, 120))
    def test_every_file_comes_once_and_in_order(self, costs: list[int], deletes: int, limit: int) -> None:
        parts = cut(limit, *costs, deletes=deletes)
        assert [cost for part in parts for cost in part] == costs
        room = max(limit - deletes, 4 * deletes, 1)
        assert all(len(part) == 1 or sum(part) <= room for part in parts)
        assert all(sum(a) + b[0] > room for a, b in pairwise(parts)), "none is cut for nothing"


class TestBundle:
    """Small partitions share a unit."""

    GROUPS = tuple(group(10, name=name) for name in "abcd")

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [
            (40, ["abcd"]),
            (39, ["abc", "d"]),
            (20, ["ab", "cd"]),
            (19, ["a", "b", "c", "d"]),
            (1, ["a", "b", "c", "d"]),
        ],
    )
    def test_the_limit_is_the_last_that_fits(self, limit: int, expected: list[str]) -> None:
        assert bundled(limit, *self.GROUPS) == [list(names) for names in expected]

    def test_order_is_kept(self) -> None:
        assert bundled(20, group(15, name="a"), group(10, name="b"), group(5, name="c")) == [["a"], ["b", "c"]]

    def test_what_is_refused_stays_apart(self) -> None:
        refused = group(0, name="r", refused="r0 is ORC.")
        assert bundled(40, *self.GROUPS[:2], refused, *self.GROUPS[2:]) == [["r"], ["a", "b", "c", "d"]]
        assert bundled(40, refused, refused) == [["r"], ["r"]]

    def test_nothing_makes_nothing(self) -> None:
        assert bundled(10) == []

    def test_labels(self) -> None:
        assert bundle_label(self.GROUPS[:1]) == "a"
        assert bundle_label(self.GROUPS[:3]) == "a +2 more"
