"""What tests of the commits of compactions share."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table.snapshots import Operation

from producer.model.job import Operation as Work
from producer.model.job import Report, Request, Status
from tasks.testing import StreamTable
from tests.support import oracle
from tests.support.commits import ROWS, data, made, recount, totals
from tests.support.faulty import Jobs
from tests.support.unreferenced import unreferenced

ALL = {"rewrite-all": "true"}


def asked(jobs: Jobs, **options: Any) -> Request:
    """A compaction of everything."""
    given = {**ALL, **options.pop("options", {})}
    return jobs.request(operation=Work.COMPACT, options=given, **options)


def assert_compacted(
    stream: StreamTable, report: Report, expected: Counter[Any] = ROWS, lineage: Counter[Any] | None = None
) -> None:
    """The same rows, right totals in `replace` snapshots, nothing left behind."""
    assert report.status is Status.COMMITTED, report
    assert not report.failures
    assert oracle.rows(stream.table) == expected
    assert lineage is None or oracle.rows(stream.table, lineage=True) == lineage
    assert unreferenced(stream.table) == set()
    for snapshot in made(stream, report):
        assert snapshot.summary is not None
        assert snapshot.summary.operation is Operation.REPLACE
    current = stream.table.current_snapshot()
    assert current is not None
    assert totals(current) == recount(stream.table)


def touch(stream: StreamTable) -> None:
    """Delete the row 1 of partition a by position, wherever it is; nothing when it is gone."""
    for file in data(stream):
        ids = pq.read_table(file.path.removeprefix("file://"))["id"].to_pylist()
        if 1 in ids:
            delete = stream.delete_positions if stream.table.metadata.format_version == 2 else stream.delete_vector
            delete({file.path: [ids.index(1)]})
