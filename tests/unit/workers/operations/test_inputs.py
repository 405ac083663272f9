"""Dealing of inputs to tasks: each part once, in order, together by partition."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from producer.model.plan import Scope
from workers.model.rewrite_unit import Input, Sizes
from workers.operations.inputs import balanced, by_partition, jobs

SIZES = Sizes(100, 75, 180)
A, B = Scope(spec_id=0, values=("aa",), label="p=a"), Scope(spec_id=0, values=("bb",), label="p=b")


def inputs(*sizes: int, scope: int = 0) -> list[Input]:
    """Files of these sizes with as many rows."""
    return [Input(index, f"f{scope}-{index:04d}", 1, scope, size, size) for index, size in enumerate(sizes)]


def test_small_partitions_are_one_job_each() -> None:
    work = jobs([(A, inputs(10, 20)), (B, inputs(30, scope=1))], SIZES, 8, lambda file: 0)
    assert [(job.partition, job.size, job.rows) for job in work] == [(A, 30, 30), (B, 30, 30)]


def test_a_job_for_each_file_to_be_written() -> None:
    assert len(jobs([(A, inputs(*[50] * 9))], SIZES, 8, lambda file: 0)) == 4
    assert len(jobs([(A, inputs(*[50] * 9))], SIZES, 3, lambda file: 0)) == 3


def test_what_is_deleted_does_not_count() -> None:
    assert len(jobs([(A, inputs(*[50] * 9))], SIZES, 8, lambda file: 40)) == 1
    [job] = jobs([(A, inputs(0, 50))], SIZES, 8, lambda file: 50 if file.index else 0)
    assert job.rows == 0


def test_a_large_file_is_cut() -> None:
    work = jobs([(A, inputs(450))], SIZES, 8, lambda file: 0)
    assert [part.share for job in work for part in job.parts] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert len(work) == 4


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(0, 500), min_size=1, max_size=30), most=st.integers(1, 9), lanes=st.integers(1, 9))
def test_each_part_once(sizes: list[int], most: int, lanes: int) -> None:
    files = inputs(*sizes)
    work = jobs([(A, files)], SIZES, most, lambda file: 0)
    assert len(work) <= most
    parts = [part for job in work for part in job.parts]
    assert [part.file.path for part in parts] == sorted(part.file.path for part in parts)
    for file in files:
        shares = [part.share for part in parts if part.file == file]
        assert shares == [(n, len(shares)) for n in range(len(shares))]
        assert shares
    found = balanced(work, lanes)
    assert len(found) <= lanes
    assert all(found)
    assert sorted(id(job) for lane in found for job in lane) == sorted(map(id, work))


def test_by_partition() -> None:
    files = [*inputs(1, 2), *inputs(3, scope=1), *inputs(4, scope=2)]
    assert by_partition(files, (A, B, A)) == [(A, [*files[:2], files[3]]), (B, [files[2]])]
