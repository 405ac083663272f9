"""The commit loop commits a snapshot, metadata without a snapshot, rewritten manifests, or nothing.

The operations are defined here, outside of the packages: a plug is all that the steps of a job need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation as SnapshotOperation
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)

from producer.model.job import Operation, Report, Status
from producer.model.plan import Plan, Unit
from producer.model.staged import Attempt, Staged
from tasks.job.branch_head import BranchHead
from tasks.job.context import JobContext
from tasks.lifecycle.commit import CommitStateUnknown
from tasks.operations.base import (
    Change,
    CommitRules,
    Executor,
    MetadataChange,
    NoChange,
    Replan,
    SnapshotChange,
    TaskOperation,
)
from tasks.operations.registry import OPERATIONS
from tasks.testing import StreamTable
from tests.support import oracle
from tests.support.commits import ROWS, Create, fill, made, rows
from tests.support.faulty import FaultyCatalog, Jobs, lose, meanwhile, unanswered_after, unanswered_before
from tests.support.unreferenced import unreferenced

Decide = Callable[[Table, BranchHead], Change]


class ExpiryCatalog(FaultyCatalog):
    """A catalog that also counts, and fails, commits that expire snapshots."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.expiries = 0

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        commit = super().commit_table
        if not any(isinstance(update, RemoveSnapshotsUpdate) for update in updates):
            return commit(table, requirements, updates)
        self.expiries += 1
        if self.faults:
            return self.faults.popleft()(lambda: commit(table, requirements, updates))
        return commit(table, requirements, updates)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[ExpiryCatalog]:
    catalog = ExpiryCatalog(tmp_path)
    yield catalog
    catalog.close()


@dataclass(frozen=True)
class Rules:
    """Commit rules made of one function."""

    decide: Decide

    def change(self, table: Table, head: BranchHead) -> Change:
        return self.decide(table, head)

    def replans_after(self, table: Table) -> tuple[Replan, ...]:
        return ()


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Callable[[Decide], None]:
    """Registers an operation in place of the conversion."""

    def register(decide: Decide) -> None:
        def executor(context: JobContext, plan: Plan, unit: Unit, attempt: Attempt, budget: Any) -> Executor:
            def read_only(spill: Path | None, scratch: Path, progress: Any) -> Staged:
                progress(1, 1)
                return Staged(unit=attempt.unit, attempt=attempt.number, scopes=())

            return Executor(attempt, read_only)

        def rules(context: JobContext, plan: Plan, staged: Mapping[int, Staged]) -> CommitRules:
            assert all(unit.inputs == () for unit in staged.values())
            return Rules(decide)

        operation = TaskOperation(executor=executor, commit_rules=rules, summarize=lambda staged: "done")
        monkeypatch.setitem(OPERATIONS, Operation.CONVERT, operation)

    return register


@pytest.fixture
def stream(create: Create) -> StreamTable:
    stream = create()
    fill(stream)
    return stream


def expire(table: Table, head: BranchHead) -> Change:
    """Expire every snapshot that no ref points to, and that was there when the job was planned."""
    metadata, refs = table.metadata, table.metadata.refs
    kept = {ref.snapshot_id for ref in refs.values()} | {head.base.snapshot_id}
    old = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in kept and s.timestamp_ms < _planned(head)]
    if not old:
        return NoChange()

    def is_applied(metadata: TableMetadata) -> bool:
        return not any(metadata.snapshot_by_id(snapshot_id) for snapshot_id in old)

    return MetadataChange(
        updates=(RemoveSnapshotsUpdate(snapshot_ids=old),),
        requirements=(
            *(AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in refs.items()),
            *([] if "keep" in refs else [AssertRefSnapshotId(ref="keep", snapshot_id=None)]),
        ),
        is_applied=is_applied,
        counts={"removed_delete_files": len(old)},  # any counter of the report
    )


def _planned(head: BranchHead) -> int:
    return head.base.timestamp_ms


def snapshots(stream: StreamTable) -> int:
    return len(stream.table.metadata.snapshots)


def assert_expired(stream: StreamTable, report: Report, left: int = 1) -> None:
    assert (report.status, report.snapshot_id, report.reason) == (Status.COMMITTED, None, None)
    assert report.removed_delete_files == 3
    assert made(stream, report) == []
    assert snapshots(stream) == left
    assert oracle.rows(stream.table) >= ROWS
    assert not any("_icefleet" in path for path in unreferenced(stream.table))


class TestMetadataChange:
    """Updates without a snapshot, in one compare-and-swap."""

    @pytest.fixture(autouse=True)
    def operation(self, plug: Callable[[Decide], None]) -> None:
        plug(expire)

    def test_it_is_committed_without_a_snapshot(self, stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs) -> None:
        assert_expired(stream, jobs.run())
        assert (catalog.expiries, len(catalog.asked)) == (1, 0)

    def test_a_conflict_is_tried_again(self, stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs) -> None:
        catalog.faults.append(lose)
        assert_expired(stream, jobs.run())
        assert catalog.expiries == 2

    def test_a_writer_that_moves_the_head_is_a_conflict(
        self, stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs
    ) -> None:
        catalog.faults.append(meanwhile(lambda: stream.append(rows(9))))
        assert_expired(stream, jobs.run(), left=2)
        assert catalog.expiries == 2

    def test_a_tag_made_between_load_and_commit_keeps_its_snapshot(
        self, stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs
    ) -> None:
        first = stream.table.metadata.snapshots[0].snapshot_id

        def tag() -> None:
            stream.table.manage_snapshots().create_tag(first, "keep").commit()

        catalog.faults.append(meanwhile(tag))
        report = jobs.run()
        assert (report.status, report.removed_delete_files) == (Status.COMMITTED, 2)
        assert stream.table.metadata.snapshot_by_name("keep") is not None
        assert catalog.expiries == 2

    def test_an_answer_lost_after_the_commit_is_found_in_the_table(
        self, stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs
    ) -> None:
        catalog.faults.append(unanswered_after)
        assert_expired(stream, jobs.run())
        assert catalog.expiries == 1

    def test_an_answer_lost_before_the_commit_is_tried_again(
        self, stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs
    ) -> None:
        catalog.faults.append(unanswered_before)
        assert_expired(stream, jobs.run())
        assert catalog.expiries == 2

    def test_an_answer_that_never_comes_leaves_the_job_to_be_resumed(
        self, stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs
    ) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 2})
        catalog.faults.extend([unanswered_before] * 2)
        request = jobs.request()
        with pytest.raises(CommitStateUnknown, match="gave no answer to the commit"):
            jobs.end(jobs.start(request))
        assert_expired(stream, jobs.run(request))

    @pytest.mark.parametrize("stop", ["cancel", "close"])
    def test_a_job_that_ends_meanwhile_commits_nothing(
        self, stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs, plug: Callable[[Decide], None], stop: str
    ) -> None:
        request = jobs.request()

        def decide(table: Table, head: BranchHead) -> Change:
            getattr(jobs.context(request).store, stop)()
            return expire(table, head)

        plug(decide)
        report = jobs.run(request)
        assert report.status in (Status.CANCELLED, Status.FAILED)
        assert (catalog.expiries, snapshots(stream)) == (0, 4)


class TestNoChange:
    """Nothing is committed."""

    def test_an_operation_that_only_reads(
        self, stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs, plug: Callable[[Decide], None]
    ) -> None:
        plug(lambda table, head: NoChange())
        before = stream.table.metadata_location
        assert jobs.run().status is Status.NOTHING_TO_DO
        assert stream.table.metadata_location == before
        assert (catalog.expiries, len(catalog.asked)) == (0, 0)
        assert unreferenced(stream.table) == set()

    def test_what_an_earlier_attempt_committed_counts(
        self, stream: StreamTable, jobs: Jobs, plug: Callable[[Decide], None]
    ) -> None:
        plug(lambda table, head: NoChange(is_applied=True, counts={"removed_delete_files": 2}))
        report = jobs.run()
        assert (report.status, report.removed_delete_files) == (Status.COMMITTED, 2)


def test_manifests_are_replaced_and_no_file_changes(
    stream: StreamTable, catalog: ExpiryCatalog, jobs: Jobs, plug: Callable[[Decide], None]
) -> None:
    def rewrite(table: Table, head: BranchHead) -> Change:
        if len(head.manifests) < 3:
            return NoChange()
        return SnapshotChange(operation=SnapshotOperation.REPLACE, rewritten_manifests=tuple(head.manifests))

    def entries() -> set[tuple[object, ...]]:
        files = oracle.live_files(stream.table)
        return {(f.path, f.sequence_number, f.file_sequence_number, f.snapshot_id, f.record_count) for f in files}

    plug(rewrite)
    before = entries()
    catalog.faults.append(lose)
    report = jobs.run()
    assert report.status is Status.COMMITTED
    [snapshot] = made(stream, report)
    assert snapshot.summary is not None
    assert snapshot.summary.operation is SnapshotOperation.REPLACE
    assert entries() == before
    assert len(snapshot.manifests(stream.table.io)) == 2, "one of data files, one of delete files"
    assert oracle.rows(stream.table) == ROWS
    assert unreferenced(stream.table) == set()
