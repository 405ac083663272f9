"""Memory that does not grow with the deletes: the large path gives what the small one gives, and fits where it must."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from producer.common.settings import Settings
from producer.model.staged import Attempt
from tasks.lifecycle.stage import budget_of
from tasks.operations.convert.execute import conversion_unit
from tasks.testing import RowDelta, StreamTable
from tests.integration.conftest import Create
from tests.support import plainengine
from tests.support.rounds import planned
from workers.deletes.matcher import key_splits
from workers.formats.position_deletes import read_position_deletes
from workers.formats.puffin import read_vector
from workers.model.units import ConversionResult, ConversionUnit
from workers.operations.convert import convert
from workers.runtime.machine import Budget

pytestmark = pytest.mark.spark

MB = 1 << 20
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("x", pa.float64())])


@pytest.fixture
def stream(create: Create, version: int) -> StreamTable:
    """Commits of a stream over 500 keys: null keys, several sets of ids, and rows deleted by position."""
    made = create(SCHEMA, version)
    draw = random.Random(3)

    def rows(count: int, distinct: bool = False) -> pa.Table:
        ids = draw.sample(range(500), count) if distinct else [7, *(draw.randrange(500) for _ in range(count - 1))]
        columns = {
            "id": [None if n % 50 == 0 and not distinct else n for n in ids],
            "name": [None if n % 7 == 0 else f"a name as long as many are {n % 20}" for n in ids],
            "day": [n % 30 for n in ids],
            "x": [None if n % 11 == 0 else n / 3 for n in ids],
        }
        return pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})

    for number in range(6):
        made.append(rows(300), row_group_size=90)
        made.upsert(rows(20, distinct=True), ["id"])
        ids = [["id"], ["name", "day"], ["x", "id"]][number % 3]
        again = pa.table({"id": pa.array([7] * 1000, pa.int64())})  # so often that keys are worth grouping
        made.commit(RowDelta([*made.write_equality_deletes(rows(4), ids), *made.write_equality_deletes(again, ["id"])]))
        if number == 3:
            file = made.data_files()[0]
            if version == 2:
                made.delete_positions({file.path: [0, 5, 100]}, by_partition=True)
            else:
                made.delete_vector({file.path: [0, 5, 100]})
    return made


def unit_of(stream: StreamTable, token: str) -> ConversionUnit:
    """The one unit of a table's conversion, with paths of its own."""
    plan = planned(stream).planned
    (unit,) = plan.units
    attempt = Attempt(unit=unit.header.number, number=0, token=token, host="here", started=0.0)
    return conversion_unit(plan.plan, unit, attempt, stream.table)


def deleted(result: ConversionResult) -> Counter[tuple[str, int]]:
    """Every position that was written."""
    io = PyArrowFileIO()
    found: Counter[tuple[str, int]] = Counter()
    for delete in result.deletes:
        for batch in read_position_deletes(io, delete.path):
            found.update(zip(batch["file_path"].to_pylist(), batch["pos"].to_pylist(), strict=True))
    for vector in result.vectors:
        positions = read_vector(io, vector.ref, vector.target).positions().tolist()
        found.update((vector.target, position) for position in positions)
    return found


def budgets() -> dict[str, Budget]:
    usual = budget_of(Settings(broker_url=""))
    return {
        "indexed": usual,
        "broadcast": dataclasses.replace(usual, index_bytes=0),
        "shuffled": dataclasses.replace(usual, index_bytes=0, broadcast_bytes=8192),
        "in small batches": dataclasses.replace(usual, index_bytes=0, broadcast_bytes=0, batch_bytes=1),
    }


def test_shuffled_deletes_are_what_indexed_ones_are(stream: StreamTable, spark: Any, tmp_path: Path) -> None:
    judged = unit_of(stream, "judged")
    expected = plainengine.convert(judged, stream.table.io)
    assert expected.new_positions > 200
    for token, budget in budgets().items():
        unit = unit_of(stream, token.replace(" ", ""))
        scratch = tmp_path / token
        scratch.mkdir()
        result = convert(unit, stream.table.io, spark, budget, scratch)
        assert deleted(result) == deleted(expected), token
        assert result.new_positions == expected.new_positions
        assert result.rows_read == expected.rows_read


def counting(log: Path) -> PyArrowFileIO:
    """Storage that notes each path that is opened for reading, in whatever process."""

    class Counting(PyArrowFileIO):  # in here, so that Spark's workers get the class itself and import nothing
        def new_input(self, location: str) -> InputFile:
            with log.open("a") as file:
                file.write(f"{location}\n")
            return super().new_input(location)

    return Counting()


@pytest.mark.parametrize("kind", ["indexed", "broadcast", "shuffled"])
def test_each_delete_file_is_read_once(stream: StreamTable, spark: Any, tmp_path: Path, kind: str) -> None:
    """Data files once for each set of ids, position delete files and vectors once."""
    unit = unit_of(stream, f"once{kind}")
    log, scratch = tmp_path / "opened", tmp_path / "scratch"
    scratch.mkdir()
    progress: list[tuple[int, int]] = []
    tell: Callable[[int, int], None] = lambda done, files: progress.append((done, files))  # noqa: E731
    convert(unit, counting(log), spark, budgets()[kind], scratch, tell)
    opened = Counter(log.read_text().splitlines())
    deletes, files = unit.deletes, unit.deletes.data_files
    assert {opened[delete.path] for some in deletes.equality for delete in some.files} == {1}
    assert {opened[position.path] for position in deletes.positions} <= {1}
    assert {opened[file.vector.path] for file in files if file.vector} <= {1}
    reached = [{split.file.path for split in key_splits(some, files)} for some in deletes.equality]
    for file in files:
        assert opened[file.path] == sum(file.path in paths for paths in reached)
    assert progress[0] == (0, len(files))
    assert progress[-1] == (len(files), len(files))
    assert progress == sorted(progress)


def measured(
    keys: int, rows: int, version: int, seconds: int, *, index_mb: int = 16, warm: bool = True
) -> dict[str, Any]:
    """A conversion in a process of its own with a heap of 512 MB; without a warm session it does all work itself."""
    numbers = (keys, rows, 512, index_mb, version, int(warm))
    command = [sys.executable, "-m", "tests.support.measured", *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


#: The heap, and what the JVM, two Python workers and this process take beside it.
BOUND = (512 + 1200) * MB


def test_many_deletes_in_little_memory() -> None:
    """1.2 million keys, of which the budgets for an index and a broadcast hold a fraction: Spark joins them."""
    found = measured(1_200_000, 1_000_000, 2, 280)
    assert found["positions"] == 100_000
    assert found["peak"] < BOUND


#: What four or five million keys more may take: 10 MB of bits in the filter, and what differs from run to run. Their
#: index alone, if tasks kept its pages, would take 112 or 140 MB more.
GROWTH = 60 * MB


def test_five_times_the_deletes_in_the_same_memory() -> None:
    """An index in parts takes 28 MB for the few, and 140 MB for the many; of the large one a part is held at a time.

    All is done in one process, so that neither the JVM's memory nor the number of tasks blurs the difference. Rows are
    looked up more than once, and others are read in between, when no pages of the index may be held.
    """
    few, many = (measured(keys, 4_000_000, 2, 280, index_mb=1024, warm=False) for keys in (1_000_000, 5_000_000))
    assert (few["positions"], many["positions"]) == (400_000, 400_000)
    assert many["peak"] < few["peak"] + GROWTH


@pytest.mark.slow
def test_three_times_the_deletes_in_the_same_memory_of_tasks() -> None:
    """Both are so many that two of Spark's tasks make the index and look rows up in it, in a session that is warm."""
    few, many = (measured(keys, 2_000_000, 2, 280, index_mb=1024) for keys in (2_500_000, 7_500_000))
    assert (few["positions"], many["positions"]) == (200_000, 200_000)
    assert many["peak"] < few["peak"] + GROWTH


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("format_version", [2, 3])
def test_ten_million_deletes_in_the_same_memory(format_version: int) -> None:
    found = measured(10_000_000, 20_000_000, format_version, 1700)
    assert found["positions"] == 2_000_000
    assert found["peak"] < BOUND


def rewritten(rows: int) -> dict[str, Any]:
    """A compaction in a process of its own, with a heap of 512 MB."""
    command = [sys.executable, "-m", "tests.support.measuredrewrite", str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_large_file_is_split_in_little_memory() -> None:
    """A file of seven times the size takes the same memory, for both cores at work: a row group's worth each."""
    small, large = rewritten(700_000), rewritten(5_000_000)
    assert (small["rows"], large["rows"]) == (700_000, 5_000_000)
    assert large["files"] >= 4
    assert large["peak"] < small["peak"] + 200 * MB


def unfolded(kind: str, rows: int) -> dict[str, Any]:
    """Work on files of some hundred kilobytes that are gigabytes of rows, in a process of its own."""
    command = [sys.executable, "-m", "tests.support.measuredwide", kind, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["read"] < 2 * MB
    return found


@pytest.mark.parametrize(("kind", "count"), [("binpack", 60_000), ("data-keys", 6_000), ("paths", 1)])
def test_files_that_unfold_take_little_memory(kind: str, count: int) -> None:
    """Long strings as a column, as the key of data files, and as the paths of position deletes."""
    found = unfolded(kind, 60_000)
    assert found["count"] == count
    assert found["peak"] < 600 * MB


def test_a_long_key_that_many_deletes_repeat_is_in_scratch_a_few_times() -> None:
    found = unfolded("delete-keys", 30_000)
    assert found["count"] == 1_000
    assert found["peak"] < 800 * MB
    assert found["scratch"] < 8 * MB


@pytest.mark.parametrize("kind", ["sort", "zorder"])
def test_long_strings_are_sorted_range_by_range(kind: str) -> None:
    """1.4 GB of rows wait in scratch, as they are in Arrow; what a range of them takes is mapped at a time.

    1.0 to 1.1 GB on a machine that has nothing else to do, up to 1.3 GB on a busy one, where garbage waits longer.
    """
    found = unfolded(kind, 100_000)
    assert found["count"] == 100_000
    assert found["anonymous"] < 1350 * MB
