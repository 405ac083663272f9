"""What tests of commits share: a small table, other writers, and what must hold afterwards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from producer.iceberg.manifest_entry import LiveFile
from producer.model.job import Report, Status
from producer.state.commit_history import snapshots_of
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle
from tests.support.livefiles import spec
from tests.support.unreferenced import unreferenced


class Create(Protocol):
    """Makes the empty table, partitioned by ``p``."""

    def __call__(self, version: int = 2, name: str = "db.t", **options: Any) -> StreamTable: ...


SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
BY_P = spec(0, (2, IdentityTransform(), "p"))


def rows(*ids: int, p: str = "a") -> pa.Table:
    """Rows of one partition."""
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([p] * len(ids))})


def fill(stream: StreamTable) -> None:
    """Rows in partitions a and b, some of each deleted by key; 3 came again later."""
    stream.append(rows(1, 2, 3))
    stream.append(rows(1, 2, 3, p="b"))
    stream.delete_where_equal(pa.concat_tables([rows(2, 3), rows(1, p="b")]), ["id"])
    stream.append(rows(3))


#: The rows of that table.
ROWS = Counter({(1, "a"): 1, (3, "a"): 1, (2, "b"): 1, (3, "b"): 1})


def equality(stream: StreamTable, branch: str = "main") -> list[LiveFile]:
    """Live equality deletes, oldest first."""
    return [f for f in stream.delete_files(branch) if f.content == DataFileContent.EQUALITY_DELETES]


def data(stream: StreamTable, p: str = "a") -> list[LiveFile]:
    """Data files of a partition, oldest first."""
    return [file for file in stream.data_files() if file.partition[0] == p]


def made(stream: StreamTable, report: Report) -> list[Snapshot]:
    """The snapshots of a job."""
    return snapshots_of(stream.table.metadata, report.job)


def on_disk(stream: StreamTable) -> set[Path]:
    """Every file below the table, and the folder of jobs."""
    folder = Path(stream.table.location().removeprefix("file://"))
    return {path for path in folder.rglob("*") if path.is_file() or path.name == "_icefleet"}


def compact(stream: StreamTable, files: list[LiveFile], written: pa.Table, sequence_number: int) -> None:
    """What other engines' compactions do."""
    new = stream.write_data(written, sequence_number=sequence_number)
    stream.commit(RowDelta(new, files), operation=Operation.REPLACE)


def recount(table: Table, branch: str = "main") -> dict[str, str]:
    """The totals of a branch's head, file by file."""
    counts = Counter[str]()
    for file in oracle.live_files(table, branch):
        kind = "data" if file.content == DataFileContent.DATA else "delete"
        counts[f"total-{kind}-files"] += 1
        counts["total-files-size"] += file.content_size or file.size
        records = {
            DataFileContent.DATA: "total-records",
            DataFileContent.POSITION_DELETES: "total-position-deletes",
            DataFileContent.EQUALITY_DELETES: "total-equality-deletes",
        }[file.content]
        counts[records] += file.record_count
    names = ("data-files", "delete-files", "files-size", "records", "position-deletes", "equality-deletes")
    return {f"total-{name}": str(counts[f"total-{name}"]) for name in names}


def totals(snapshot: Snapshot) -> dict[str, str]:
    """The totals of a snapshot's summary."""
    assert snapshot.summary is not None
    return {name: text for name, text in snapshot.summary.additional_properties.items() if name.startswith("total-")}


def assert_converted(stream: StreamTable, report: Report, expected: Counter[Any] = ROWS, branch: str = "main") -> None:
    """One snapshot, the same rows, no equality delete, nothing left behind."""
    assert report.status is Status.COMMITTED, report
    assert equality(stream, branch) == []
    assert oracle.rows(stream.table, branch) == expected
    assert len({file.referenced_data_file for file in stream.files(branch) if file.is_vector}) == len(
        [file for file in stream.files(branch) if file.is_vector]
    ), "one vector for each data file"
    assert unreferenced(stream.table) == set()
    [*_, last] = made(stream, report)
    assert totals(last).items() <= recount(stream.table, branch).items() or last.snapshot_id != head(stream, branch)


def assert_untouched(stream: StreamTable, before: set[Path], metadata: str) -> None:
    """Neither the table nor a file below it has changed."""
    assert stream.table.metadata_location == metadata
    assert on_disk(stream) == before
    assert oracle.rows(stream.table) == ROWS


def head(stream: StreamTable, branch: str = "main") -> int:
    """A branch's head."""
    return stream.table.metadata.refs[branch].snapshot_id
