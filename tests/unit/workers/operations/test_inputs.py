"""Groups of a rewrite's inputs: each split once, in order, together by partition."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from producer.model.plan import Scope
from workers.model.delete_set import ContentFile
from workers.model.units import Sizes
from workers.operations.inputs import balance_groups, group_by_partition, group_splits

SIZES = Sizes(100, 75, 180)
A, B = Scope(spec_id=0, values=("aa",), label="p=a"), Scope(spec_id=0, values=("bb",), label="p=b")


def inputs(*sizes: int, scope: int = 0) -> list[ContentFile]:
    """Files of these sizes with as many rows."""
    return [ContentFile(index, f"f{scope}-{index:04d}", 1, scope, size, size) for index, size in enumerate(sizes)]


def test_small_partitions_are_one_group_each() -> None:
    groups = group_splits([(A, inputs(10, 20)), (B, inputs(30, scope=1))], SIZES, 8, lambda file: 0)
    assert [(group.partition, group.size, group.rows) for group in groups] == [(A, 30, 30), (B, 30, 30)]


def test_a_group_for_each_file_to_be_written() -> None:
    assert len(group_splits([(A, inputs(*[50] * 9))], SIZES, 8, lambda file: 0)) == 4
    assert len(group_splits([(A, inputs(*[50] * 9))], SIZES, 3, lambda file: 0)) == 3


def test_what_is_deleted_does_not_count() -> None:
    assert len(group_splits([(A, inputs(*[50] * 9))], SIZES, 8, lambda file: 40)) == 1
    [group] = group_splits([(A, inputs(0, 50))], SIZES, 8, lambda file: 50 if file.index else 0)
    assert group.rows == 0


def test_a_large_file_is_cut() -> None:
    groups = group_splits([(A, inputs(450))], SIZES, 8, lambda file: 0)
    assert [(split.number, split.count) for group in groups for split in group.splits] == [(n, 4) for n in range(4)]
    assert len(groups) == 4


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(0, 500), min_size=1, max_size=30), most=st.integers(1, 9), tasks=st.integers(1, 9))
def test_each_split_once(sizes: list[int], most: int, tasks: int) -> None:
    files = inputs(*sizes)
    groups = group_splits([(A, files)], SIZES, most, lambda file: 0)
    assert len(groups) <= most
    splits = [split for group in groups for split in group.splits]
    assert [split.file.path for split in splits] == sorted(split.file.path for split in splits)
    for file in files:
        shares = [(split.number, split.count) for split in splits if split.file == file]
        assert shares == [(n, len(shares)) for n in range(len(shares))]
        assert shares
    found = balance_groups(groups, tasks)
    assert len(found) <= tasks
    assert all(found)
    assert sorted(id(group) for task in found for group in task) == sorted(map(id, groups))


def test_the_order_of_groups_is_that_of_their_inputs() -> None:
    """Merged files hold sorted rows; where paths begin with a hash, these say nothing of the order."""
    files = [replace(file, path=path) for file, path in zip(inputs(10, 10, 10), ("c", "a", "b"), strict=True)]
    [group] = group_splits([(A, files)], SIZES, 1, lambda file: 0)
    assert [split.file.path for split in group.splits] == ["c", "a", "b"]
    assert group_by_partition(files, (A,)) == [(A, sorted(files, key=lambda file: file.path))]


def test_by_partition() -> None:
    files = [*inputs(1, 2), *inputs(3, scope=1), *inputs(4, scope=2)]
    assert group_by_partition(files, (A, B, A)) == [(A, [*files[:2], files[3]]), (B, [files[2]])]
