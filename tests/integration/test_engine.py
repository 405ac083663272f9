"""The conversion engine on Parquet files made by hand, in a real Spark session."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import GeometryType
from pyspark.sql import SparkSession

from tests.support.countingio import counting_io, opened
from tests.support.enginecase import SMALL, TINY, Case
from workers.deletes import matcher
from workers.model.delete_set import KeyColumn
from workers.operations.convert import convert, paths
from workers.runtime import supervisor
from workers.runtime.errors import CorruptFile, TaskFailed, UnsupportedFile
from workers.runtime.scratch import scratch

pytestmark = pytest.mark.spark


@pytest.fixture(params=[(2, "file"), (2, "partition"), (3, "file")], ids=["v2", "v2-partition", "v3"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    version, granularity = request.param
    return Case(tmp_path, version, granularity)


@pytest.fixture
def v2(tmp_path: Path) -> Case:
    return Case(tmp_path, 2)


@pytest.fixture
def v3(tmp_path: Path) -> Case:
    return Case(tmp_path, 3)


LETTERS = [(n, letter, 0) for n, letter in enumerate("abcdefg")]


def test_keys_sequence_numbers_nulls_and_several_sets_of_ids(spark: object, case: Case) -> None:
    case.add(LETTERS, 1)
    case.add([(1, None, 0), (None, None, 0), (4, None, 1), (4, "x", 1), (None, "y", 1)], 2)
    case.add([(n, letter, 0) for n, letter in enumerate("abcdefg", 100)], 3)  # written with the deletes: survives
    case.delete((2,), [("a",), ("d",), ("g",), ("nowhere",)], 3)
    case.delete((1,), [(None,), (3,), (3,)], 3)  # 3 is d: one position for two deletes
    case.delete((1, 2), [(4, None), (3, None)], 3)
    result = case.check(spark)
    assert result.new_positions == 3 + 2 + 1
    assert result.rows_read == 3 * (7 + 5)


def test_a_chain_of_updates_leaves_the_last_version(spark: object, case: Case) -> None:
    for seq in range(1, 6):
        case.add([(7, f"version {seq}", 0), (seq * 100, "other", 0)], seq)
        case.delete((1,), [(7,)], seq)
    assert case.check(spark).new_positions == 4


def test_scopes(spark: object, case: Case) -> None:
    for scope in range(3):
        case.add([(1, "a", scope), (2, "b", scope), (3, "c", scope)], 1, scope)
        case.add([(1, "a", scope), (4, "d", scope)], 3, scope)
    case.delete((1,), [(1,)], 2, scope=0)
    case.delete((1,), [(2,)], 2, scope=2)
    case.delete((1,), [(4,)], 5, scope=1)
    case.delete((1,), [(3,)], 2)  # global
    result = case.check(spark)
    assert result.new_positions == 1 + 1 + 1 + 3
    if case.granularity == "partition":
        assert [Path(staged.path).name for staged in result.deletes] == [f"scope-000{n}.parquet" for n in range(3)]


def test_positions_are_those_of_the_whole_file(spark: object, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.add([(n, "x", 0) for n in range(200)], 1, row_group_size=30)
    case.add([(n, "x", 0) for n in range(90, 120)], 1, row_group_size=7)
    case.delete((1,), [(n,) for n in (97, 98, 99, 101, 103, 107, 109)], 2)
    assert case.check(spark).new_positions == 14
    for name in case.outputs():
        (case.folder / name).unlink()
    monkeypatch.setattr(matcher, "_SPLIT_ROWS", 40)  # splits of a file go to several tasks
    assert case.check(spark).new_positions == 14


@pytest.mark.parametrize("seed", range(2))
def test_random_units_whether_broadcast_or_shuffled(spark: object, case: Case, seed: int) -> None:
    draw = random.Random(seed)
    row = lambda: (draw.choice([None, *range(12)]), draw.choice([None, "", "a", "b", "long " * 20]), draw.randrange(3))  # noqa: E731
    for number in range(9):
        case.add(
            [row() for _ in range(draw.randrange(1, 60))], draw.randrange(1, 9), scope=number // 3, row_group_size=9
        )
    sets = draw.sample([(1,), (2,), (1, 2), (3, 1)], 2)
    for _ in range(16):
        ids = draw.choice(sets)
        rows = [tuple(row()[n - 1] for n in ids) for _ in range(draw.randrange(0, 4))]
        case.delete(ids, rows, draw.randrange(1, 9), draw.choice([-1, 0, 1, 2]))
    for _ in range(3):
        file = draw.choice(case.data)
        positions = draw.sample(range(file.record_count), min(file.record_count, 5))
        case.delete_positions(
            [(file.path, p) for p in positions], draw.randrange(1, 9), file.scope, draw.random() < 0.5
        )
    if case.version == 3:
        for file in draw.sample(case.data, 3):
            case.vector(file.path, range(0, file.record_count, 3))
    case.check(spark)
    for name in case.outputs():
        (case.folder / name).unlink()
    case.check(spark, TINY)


@pytest.mark.parametrize("budget", [SMALL, TINY], ids=["small", "large"])
def test_keys_that_repeat_thousands_of_times(spark: object, v2: Case, budget: Any) -> None:
    v2.add([(n % 50, "x", 0) for n in range(500)], 10)
    v2.add([(n % 50, "x", 0) for n in range(500)], 20)
    for seq in range(5, 25, 5):
        v2.delete((1,), [(n % 10,) for n in range(2000)], seq)
    assert v2.check(spark, budget).new_positions == 100


def test_what_was_deleted_before_is_not_deleted_again(spark: object, case: Case) -> None:
    one, two = case.add(LETTERS, 2, 0), case.add(LETTERS, 2, 1)
    three = case.add(LETTERS, 2, 1)
    case.delete_positions([(one, 0), (one, 6), (two, 3)], 2, scope=0)  # of two's path, but not of its scope
    case.delete_positions([(two, 0), (two, 1), (three, 0), ("elsewhere", 9)], 5, scope=1)
    case.delete_positions([(three, 3)], 1, scope=1)  # older than the file
    case.delete_positions([(three, 6)], 3, scope=1, own=True)
    case.delete((2,), [("a",), ("d",), ("g",)], 3)
    result = case.check(spark)
    assert result.new_positions == 1 + 2 + 1
    if case.version == 3:
        assert result.named == {
            case.positions[0][0].path: tuple(sorted([one, two])),
            case.positions[1][0].path: tuple(sorted([two, three, "elsewhere"])),
            case.positions[2][0].path: (three,),
        }


def test_a_second_conversion_writes_nothing(spark: object, case: Case) -> None:
    path = case.add(LETTERS, 1)
    case.delete((2,), [("a",), ("d",)], 2)
    case.delete_positions([(path, 0), (path, 3)], 3)
    result = case.check(spark)
    assert result.new_positions == 0
    assert case.outputs() == []


def test_vectors_are_merged_and_position_deletes_beside_them_ignored(spark: object, v3: Case) -> None:
    one, two, three = (v3.add(LETTERS, 1) for _ in range(3))
    v3.vector(one, [1, 2])
    v3.vector(two, [0, 3])
    v3.delete_positions([(one, 5), (three, 5)], 2)
    v3.delete((2,), [("a",), ("d",)], 3)
    result = v3.check(spark)
    assert v3.merged(result) == {0: {0, 1, 2, 3}, 2: {0, 3, 5}}  # two had all of them
    assert {vector.path for vector in result.vectors} <= set(paths(v3.unit(), SMALL))


def test_nothing_to_do(spark: object, case: Case) -> None:
    assert case.check(spark).rows_read == 0
    path = case.add(LETTERS, 5)
    case.delete((2,), [("a",)], 5)  # not newer than the data
    assert case.check(spark).rows_read == 0
    case.delete_positions([(path, 1)], 6)
    named = case.check(spark).named
    assert named == ({case.positions[0][0].path: (path,)} if case.version == 3 else {})
    case.delete((1,), [], 9)
    assert case.check(spark).new_positions == 0
    assert case.outputs() == []


def test_every_row_of_every_file(spark: object, case: Case) -> None:
    for scope in range(2):
        case.add([(n, None, 0) for n in range(1000)], 1, scope)
    case.delete((2,), [(None,)], 2)
    assert case.check(spark).new_positions == 2000


def test_each_delete_file_is_read_once(spark: object, case: Case, tmp_path: Path) -> None:
    data = [case.add([(n, "x", 0) for n in range(100)], 1) for _ in range(6)]
    deletes = [case.delete((1,), [(n,)], 2 + n) for n in range(12)]
    deletes.append(case.delete_positions([(data[0], 50), (data[1], 50)], 2))
    case.convert(spark, io=counting_io(tmp_path / "notes"))
    counts = opened(tmp_path / "notes")
    assert {path: counts[path] for path in deletes + data} == dict.fromkeys(deletes + data, 1)


class TestErrors:
    @pytest.mark.parametrize("what", ["data", "delete", "positions"])
    @pytest.mark.parametrize("damage", ["missing", "cut", "avro"])
    def test_damaged_files_are_named(self, spark: object, case: Case, what: str, damage: str) -> None:
        data = [case.add([(n, "x", 0) for n in range(100)], 1) for _ in range(3)]
        deletes = [case.delete((1,), [(n,)], 2) for n in range(3)]
        found = {"data": data[1], "delete": deletes[2], "positions": case.delete_positions([(data[0], 1)], 2)}[what]
        path = Path(found)
        content = path.read_bytes()
        path.unlink()
        if damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "avro":
            path.write_bytes(b"Obj\x01" + content)
        with pytest.raises(UnsupportedFile if damage == "avro" else CorruptFile) as error:
            case.convert(spark)
        assert error.value.path == found

    def test_a_vector_that_is_not_what_the_manifest_says(self, spark: object, v3: Case, tmp_path: Path) -> None:
        path = v3.add(LETTERS, 1)
        v3.vector(path, [1, 2])
        v3.delete((1,), [(5,)], 2)
        unit = v3.unit()
        first = unit.deletes.data_files[0]
        assert first.vector is not None
        reference = first.vector.model_copy(update={"cardinality": 3})
        wrong = replace(unit, deletes=replace(unit.deletes, data_files=(replace(first, vector=reference),)))
        with pytest.raises(CorruptFile) as error:
            _convert(wrong, spark, tmp_path)
        assert error.value.path == reference.path
        assert v3.outputs() == []

    def test_a_type_that_cannot_be_a_key(self, spark: object, v2: Case, tmp_path: Path) -> None:
        v2.add(LETTERS, 1)
        path = v2.delete((1,), [(5,)], 2)
        unit = v2.unit()
        equality = replace(unit.deletes.equality[0], columns=(KeyColumn(1, GeometryType()),))
        with pytest.raises(UnsupportedFile, match="geometry") as error:
            _convert(replace(unit, deletes=replace(unit.deletes, equality=(equality,))), spark, tmp_path)
        assert error.value.path == path

    def test_storage_that_refuses_gives_one_sentence(self, spark: object, case: Case, tmp_path: Path) -> None:
        case.add(LETTERS, 1)
        case.delete((1,), [(5,)], 2)
        for path in paths(case.unit(), SMALL):
            Path(path).mkdir()
        with pytest.raises(TaskFailed, match="Error: "):
            case.convert(spark)


class TestProgress:
    def test_files_are_counted_once(self, spark: object, v2: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(matcher, "_SPLIT_ROWS", 40)
        for _ in range(4):
            v2.add([(n, "x", 0) for n in range(100)], 1, row_group_size=20)
        v2.add(LETTERS, 9)  # no delete is newer
        v2.delete((1,), [(5,)], 2)
        v2.delete((2,), [("x",)], 2)
        seen: list[tuple[int, int]] = []
        v2.convert(spark, progress=lambda done, of: seen.append((done, of)))
        assert (seen[0], seen[-1]) == ((0, 4), (4, 4))
        assert seen == sorted(set(seen))

    def test_progress_is_reported_in_the_callers_thread(self, spark: object, v2: Case) -> None:
        v2.add(LETTERS, 1)
        v2.delete((1,), [(5,)], 2)
        threads = set[int]()
        v2.convert(spark, progress=lambda done, of: threads.add(threading.get_ident()))
        assert threads == {threading.get_ident()}


class TestInterrupts:
    @pytest.mark.parametrize("in_spark", [True, False])
    def test_a_signal_ends_the_work(
        self, spark: object, v2: Case, monkeypatch: pytest.MonkeyPatch, in_spark: bool
    ) -> None:
        assert isinstance(spark, SparkSession)
        if in_spark:
            monkeypatch.setattr(matcher, "_TASK_ROWS", 1)  # so that there is more than one task
        else:
            monkeypatch.setattr(supervisor, "_CANCEL_SECONDS", 1.0)
        pipe = self._endless(v2)

        class TimeIsUp(Exception):
            pass

        def handler(*_: Any) -> None:
            raise TimeIsUp

        previous = signal.signal(signal.SIGUSR1, handler)
        timer = threading.Timer(3, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        started = time.monotonic()
        try:
            with pytest.raises(TimeIsUp):
                v2.convert(spark)
        finally:
            timer.cancel()
            signal.signal(signal.SIGUSR1, previous)
        assert time.monotonic() - started < 40
        self._idle(spark)
        if not in_spark:
            pipe.open("wb").close()  # what waited for it goes on, and finds that it has ended
        assert v2.outputs() == []

    def test_an_error_of_the_progress_ends_it_too(self, spark: object, v2: Case) -> None:
        self._endless(v2)

        def refuse(done: int, of: int) -> None:
            raise ConnectionError("nobody listens")

        with pytest.raises(ConnectionError):
            v2.convert(spark, progress=refuse)
        assert isinstance(spark, SparkSession)
        self._idle(spark)
        assert v2.outputs() == []

    def _endless(self, case: Case) -> Path:
        """A named pipe that nobody writes to, in place of a data file."""
        path = Path(case.add(LETTERS, 1))
        case.add(LETTERS, 1)
        case.delete((1,), [(5,)], 2)
        path.unlink()
        os.mkfifo(path)
        return path

    def _idle(self, spark: SparkSession) -> None:
        tracker = spark.sparkContext.statusTracker()
        deadline = time.monotonic() + 20
        while tracker.getActiveJobsIds() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not tracker.getActiveJobsIds()


def _convert(unit: Any, spark: object, root: Path) -> Any:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    assert isinstance(spark, SparkSession)
    with scratch(root / "scratch") as folder:
        return convert(unit, PyArrowFileIO(), spark, SMALL, folder)
