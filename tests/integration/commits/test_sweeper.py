"""The sweeper finds the jobs at all tables that can be read."""

from __future__ import annotations

from pathlib import Path

from producer.model.job import Status
from tasks.messaging.sweeper import current_jobs
from tests.support.commits import Create, fill
from tests.support.faulty import Jobs


def test_a_table_whose_records_cannot_be_read_hides_no_other(create: Create, jobs: Jobs) -> None:
    tables = {name: create(2, name) for name in ("db.a", "db.t", "db.z")}
    for table in tables.values():
        fill(table)
    step = jobs.start(jobs.request())
    for name in ("db.a", "db.z"):  # a storage that answers with an error
        folder = Path(tables[name].table.location().removeprefix("file://"))
        (folder / "_icefleet" / "current-convert.json").mkdir(parents=True)
    assert [request.table for request, _ in current_jobs(jobs.settings)] == ["db.t"]
    assert jobs.end(step).status is Status.COMMITTED
