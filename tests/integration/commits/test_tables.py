"""Tables that vanish or change their version while a job runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from producer.model.job import Status
from tasks.testing import StreamTable
from tests.support import oracle
from tests.support.commits import ROWS, SCHEMA, Create, assert_converted, fill, made, on_disk, rows
from tests.support.faulty import FaultyCatalog, Jobs, meanwhile
from tests.support.unreferenced import unreferenced


class TestTablesThatVanish:
    """A sentence, and nothing left where the table was."""

    def test_dropped_before_the_commit(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        before = on_disk(stream)
        folder = Path(stream.table.location().removeprefix("file://"))
        report = jobs.run(between=lambda: catalog.drop_table("db.t"))
        assert (report.status, report.exit_status) == (Status.FAILED, 1)
        assert report.reason == "db.t was dropped while the job ran: nothing was committed."
        assert {path for path in folder.rglob("*") if path.is_file()} == before

    @pytest.mark.parametrize("error", [None, NoSuchTableError("db.t")], ids=["requirement", "no such table"])
    def test_dropped_under_the_commit(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs, error: Exception | None
    ) -> None:
        before = on_disk(stream)
        folder = Path(stream.table.location().removeprefix("file://"))

        def drop(commit: Any) -> Any:
            catalog.drop_table("db.t")
            if error is not None:
                raise error
            return commit()

        catalog.faults.append(drop)
        report = jobs.run()
        assert report.status is Status.FAILED
        assert report.reason == "db.t was dropped while the job ran: nothing was committed."
        found = {path for path in folder.rglob("*") if path.is_file() or path.name == "_icefleet"}
        assert {path for path in found - before if path.parent.name != "metadata"} == set()

    def test_replaced_before_the_commit(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        before = on_disk(stream)
        folder = Path(stream.table.location().removeprefix("file://"))

        def replace() -> None:
            catalog.drop_table("db.t")
            catalog.create_table("db.t", SCHEMA, location=f"{folder}-2")

        report = jobs.run(between=replace)
        assert report.status is Status.FAILED
        assert report.reason == "db.t was replaced by another table while the job ran: nothing was committed."
        assert {path for path in folder.rglob("*") if path.is_file()} == before
        assert catalog.load_table("db.t").metadata.snapshots == []

    def test_replaced_in_the_same_place(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        folder = stream.table.location()

        def replace() -> None:
            catalog.drop_table("db.t")
            catalog.create_table("db.t", SCHEMA, location=folder)
            stream.append(rows(77))

        report = jobs.run(between=replace)
        assert report.status is Status.FAILED
        assert oracle.rows(stream.table) == Counter({(77, "a"): 1})

    def test_a_branch_that_is_dropped(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.append(rows(7), branch="audit")

        def drop() -> None:
            with stream.table.manage_snapshots() as refs:
                refs.remove_branch("audit")

        report = jobs.run(branch="audit", between=drop)
        assert report.status is Status.FAILED
        assert report.reason is not None
        assert "There is no branch 'audit'" in report.reason
        assert unreferenced(stream.table) == set()
        assert oracle.rows(stream.table) == ROWS

    def test_a_rollback_behind_the_plan_is_planned_again(self, stream: StreamTable, jobs: Jobs) -> None:
        first = stream.table.metadata.snapshots[0].snapshot_id
        back: list[int] = []

        def rollback() -> None:
            if not back:
                back.append(first)
                with stream.table.manage_snapshots() as refs:
                    refs.rollback_to_snapshot(first)

        report = jobs.run(between=rollback)
        assert report.status is Status.NOTHING_TO_DO
        assert oracle.rows(stream.table) == Counter({(n, "a"): 1 for n in (1, 2, 3)})
        assert unreferenced(stream.table) == set()


class TestUpgrades:
    """A table of version 3 gets no position delete file, whatever it was when the job began."""

    @pytest.mark.parametrize("when", ["between", "under the commit"])
    def test_it_is_planned_again(self, create: Create, catalog: FaultyCatalog, jobs: Jobs, when: str) -> None:
        stream = create()
        fill(stream)

        def upgrade() -> None:
            if stream.table.metadata.format_version == 2:
                stream.upgrade()

        if when == "between":
            report = jobs.run(between=upgrade)
        else:
            catalog.faults.append(meanwhile(upgrade))
            report = jobs.run()
        assert_converted(stream, report)
        assert len(made(stream, report)) == 1
        assert [file.is_vector for file in stream.delete_files()] == [True, True]
        assert (report.added_dvs, report.added_position_delete_files) == (2, 0)
