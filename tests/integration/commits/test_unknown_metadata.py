"""Metadata that PyIceberg does not know is never dropped: such a table is refused, at planning and at the commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from producer.common.errors import Reason, Refused
from producer.iceberg.pyiceberg_metadata import check_no_metadata_is_lost
from producer.model.job import Status
from producer.planning.planner import check_request
from tasks.testing import StreamTable
from tests.support.commits import Create, assert_converted, assert_untouched, on_disk, rows
from tests.support.compacting import asked
from tests.support.faulty import Jobs
from tests.support.unreferenced import unreferenced

Edit = Callable[[dict[str, Any]], object]
#: What another engine may have written, and how the refusal calls it.
EDITS: dict[str, Edit] = {
    "encryption-keys": lambda d: d.update({"encryption-keys": [{"key-id": "k", "encrypted-key-metadata": "eA=="}]}),
    "snapshots[1].key-id": lambda d: d["snapshots"][1].update({"key-id": "k"}),
    "x-of-tomorrow": lambda d: d.update({"x-of-tomorrow": {}}),
    "refs.main.x-lease": lambda d: d["refs"]["main"].update({"x-lease": 5}),
    "schemas[0].fields[0].x-mask": lambda d: d["schemas"][0]["fields"][0].update({"x-mask": "hash"}),
    "partition-specs[0].fields[0].source-ids": lambda d: d["partition-specs"][0]["fields"][0].update(
        {"source-ids": [2, 1]}
    ),
    "statistics[0].x-size": lambda d: d.update(
        {
            "statistics": [
                {
                    "snapshot-id": d["snapshots"][0]["snapshot-id"],
                    "statistics-path": "s3://nowhere/a.puffin",
                    "file-size-in-bytes": 1,
                    "file-footer-size-in-bytes": 1,
                    "blob-metadata": [],
                    "x-size": 1,
                }
            ]
        }
    ),
}


def edit(stream: StreamTable, change: Edit) -> Path:
    """Change the metadata file as another engine's would be."""
    path = Path(stream.table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("name", EDITS)
def test_it_is_refused_at_planning(name: str, stream: StreamTable, jobs: Jobs) -> None:
    path = edit(stream, EDITS[name])
    before, written = on_disk(stream), path.read_text()
    for request in (jobs.request(), asked(jobs)):
        report = jobs.run(request)
        assert report.status is Status.REFUSED, report
        assert f"The table's metadata has {name}, which" in (report.reason or "")
        assert_untouched(stream, before, stream.table.metadata_location)
    assert path.read_text() == written


@pytest.mark.parametrize("name", EDITS)
def test_it_is_refused_at_the_commit(name: str, stream: StreamTable, jobs: Jobs) -> None:
    """Another engine writes it while the job runs."""
    step = jobs.start(jobs.request())
    path = edit(stream, EDITS[name])
    written = path.read_text()
    report = jobs.end(step)
    assert report.status is Status.FAILED, report
    assert name in (report.reason or "")
    assert stream.table.metadata_location.endswith(path.name)
    assert path.read_text() == written
    assert unreferenced(stream.table) == set()


def test_what_is_null_is_no_loss(stream: StreamTable, jobs: Jobs) -> None:
    edit(stream, lambda d: d.update({"x-of-tomorrow": None}))
    assert_converted(stream, jobs.run())


def test_a_server_that_writes_metadata_itself_knows_its_own(stream: StreamTable, jobs: Jobs) -> None:
    edit(stream, EDITS["encryption-keys"])
    table = stream.table
    served = Table(table.name(), table.metadata, table.metadata_location, table.io, RestCatalog.__new__(RestCatalog))
    check_no_metadata_is_lost(served)
    with pytest.raises(Refused) as refused:
        check_request(table, jobs.request())
    assert (refused.value.reason, refused.value.exit_status) == (Reason.UNMODELLED, 2)


def test_of_version_1(create: Create, jobs: Jobs) -> None:
    stream = create(1)
    stream.append(rows(1))
    edit(stream, lambda d: d.update({"x-of-tomorrow": 1}))
    assert jobs.run(asked(jobs)).status is Status.REFUSED
