"""Deletes in many parts: they remove the same rows as deletes in one, whoever makes the parts and looks rows up."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark.sql import SparkSession

from tests.support.enginecase import SMALL, Case
from workers.deletes import key_index, matcher
from workers.deletes.matcher import match_deletes
from workers.deletes.position_runs import PositionRuns
from workers.model.delete_set import EqualityDeletes
from workers.runtime.context import Cancellation, LazySession, UnitContext
from workers.runtime.errors import Stopped

pytestmark = pytest.mark.spark


@pytest.fixture(params=[(2, "file"), (2, "partition"), (3, "file")], ids=["v2", "v2 by partition", "v3"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    version, granularity = request.param
    return Case(tmp_path, version, granularity)


def filled(case: Case, seed: int) -> None:
    """Data files and deletes of several sets of keys, with nulls, long texts, repeats and several scopes."""
    draw = random.Random(seed)

    def row() -> tuple[Any, ...]:
        text = draw.choice([None, "", "a", "b", *("long " * 9 + f"{n}" + " text" * 9 for n in range(3))])
        return draw.choice([None, *range(40)]), text, draw.randrange(3)

    for number in range(9):
        case.add([row() for _ in range(draw.randrange(1, 90))], draw.randrange(1, 9), number // 3, row_group_size=20)
    for ids in draw.sample([(1,), (2,), (1, 2), (3, 1)], 2):
        for _ in range(8):
            rows = [tuple(row()[n - 1] for n in ids) for _ in range(draw.randrange(0, 9))]
            case.delete(ids, rows, draw.randrange(1, 9), draw.choice([-1, 0, 1, 2]))
    case.delete((1,), [(draw.randrange(3),) for _ in range(500)], 4)
    case.delete((1,), [(draw.randrange(3),) for _ in range(500)], 7, 1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_tiny_parts(spark: object, case: Case, monkeypatch: pytest.MonkeyPatch, rows: int, seed: int) -> None:
    monkeypatch.setattr(key_index, "_PART_ROWS", rows)
    monkeypatch.setattr(key_index, "_SEGMENT_ROWS", 2 * rows)
    monkeypatch.setattr(key_index, "_MAPPED_BYTES", 0)
    monkeypatch.setattr(matcher, "_LOOKED_UP_IN_PARTS", 50)
    filled(case, seed)
    assert case.check(spark).new_positions > 50


def test_tasks_of_their_own(spark: object, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_PART_ROWS", 10)
    monkeypatch.setattr(matcher, "_TASK_DELETES", 1)
    monkeypatch.setattr(matcher, "_TASK_ROWS", 1)
    filled(case, 7)
    assert case.check(spark).new_positions > 50


def matched(
    case: Case, spark: object, scratch: Path, cancellation: Cancellation, work: EqualityDeletes
) -> list[PositionRuns]:
    assert isinstance(spark, SparkSession)
    scratch.mkdir()
    context = UnitContext(LazySession(spark), PyArrowFileIO(), SMALL, scratch, cancellation)
    return match_deletes(context, case.unit().deletes, work, "x")


def test_it_stops_between_two_parts(spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_PART_ROWS", 10)
    case, scratch = Case(tmp_path), tmp_path / "scratch"
    case.add([(n, "a", 0) for n in range(100)], 1)
    case.delete((1,), [(n,) for n in range(100)], 2)
    (work,) = case.unit().deletes.equality

    def indexes() -> list[Path]:
        return list(scratch.glob("x/*.index"))

    class AfterThree(Cancellation):
        def is_set(self) -> bool:
            return len(indexes()) >= 3

    with pytest.raises(Stopped):
        matched(case, spark, scratch, AfterThree(), work)
    assert len(indexes()) == 3
    assert not list(scratch.glob("*.positions"))


def test_scratch_holds_each_delete_once(spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that has become an index is gone."""
    monkeypatch.setattr(key_index, "_PART_ROWS", 10)
    case, scratch = Case(tmp_path), tmp_path / "scratch"
    case.add([(n, "a", 0) for n in range(100)], 1)
    case.delete((1,), [(n,) for n in range(100)], 2)
    (work,) = case.unit().deletes.equality
    runs = matched(case, spark, scratch, Cancellation(), work)
    assert sum(int(run.ends[-1]) for run in runs) == 100
    assert len(list(scratch.glob("x/*.index"))) > 5
    assert not list(scratch.glob("x/*.arrows"))
