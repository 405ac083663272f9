"""The value objects that plan, stage and commit hand to each other: frozen, free of I/O, kept as JSON."""

from __future__ import annotations

import secrets
import time
from enum import StrEnum
from typing import Self
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict

from producer.errors import Reason, Refused


class Value(BaseModel):
    """A frozen value object that knows its JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Operation(StrEnum):
    """The kinds of work."""

    CONVERT = "convert"


class Status(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    PLANNING = "planning"
    STAGING = "staging"
    COMMITTING = "committing"
    COMMITTED = "committed"
    NOTHING_TO_DO = "nothing_to_do"
    PARTIAL = "partial"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self in ENDED


ENDED = frozenset(
    {Status.COMMITTED, Status.NOTHING_TO_DO, Status.PARTIAL, Status.FAILED, Status.REFUSED, Status.CANCELLED}
)

#: What may follow what; a status that is missing here is the end.
TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.PLANNING, Status.CANCELLED, Status.REFUSED, Status.FAILED}),
    Status.PLANNING: frozenset({Status.STAGING, Status.COMMITTING}) | ENDED,
    Status.STAGING: frozenset({Status.COMMITTING, Status.CANCELLED, Status.FAILED}),
    Status.COMMITTING: frozenset({Status.PLANNING, Status.COMMITTED, Status.PARTIAL, Status.FAILED, Status.CANCELLED}),
}


class Request(Value):
    """What is asked for: one operation on one branch of one table."""

    #: Says which table it is about, so that a job can be found again without any register.
    job: str
    operation: Operation = Operation.CONVERT
    catalog: str = "default"
    table: str
    branch: str = "main"
    #: A filter as PyIceberg parses it; it must select whole partitions.
    where: str | None = None
    #: Commit all units or none.
    all_or_nothing: bool = False
    submitted: float = 0.0

    @classmethod
    def new(
        cls,
        table: str,
        *,
        operation: Operation = Operation.CONVERT,
        catalog: str = "default",
        branch: str = "main",
        where: str | None = None,
        all_or_nothing: bool = False,
    ) -> Self:
        """A request with a fresh job id; refuses a table name without a namespace."""
        if "." not in table.strip(".") or not all(table.split(".")):
            raise Refused(Reason.USAGE, f"{table!r} is not a table name: give namespace.table.")
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        names = (quote(catalog, safe=""), quote(table, safe="."))
        return cls(
            job=":".join((operation, *names, f"{stamp}-{secrets.token_hex(4)}")),
            operation=operation,
            catalog=catalog,
            table=table,
            branch=branch,
            where=where,
            all_or_nothing=all_or_nothing,
            submitted=time.time(),
        )

    @property
    def token(self) -> str:
        """The part of the job's id that file names carry."""
        return JobId.parse(self.job).token


class JobId(Value):
    """A job's id taken apart: it names its table, so that storage alone can tell how the job stands."""

    operation: Operation
    catalog: str
    table: str
    token: str

    @classmethod
    def parse(cls, job: str) -> Self:
        """Take ``job`` apart; refuses what is not a job id."""
        parts = job.split(":")
        if len(parts) != 4 or parts[0] not in set(Operation) or not all(parts):
            raise Refused(Reason.UNKNOWN_JOB, f"{job!r} is not a job id: `icefleet jobs` lists them.")
        operation, catalog, table, token = parts
        return cls(operation=Operation(operation), catalog=unquote(catalog), table=unquote(table), token=token)


class Scope(Value):
    """One partition: a partition spec and a tuple of its values, as hexadecimal single values (spec, Appendix D)."""

    spec_id: int
    values: tuple[str | None, ...]
    #: What a person reads, such as ``day=2024-05-01``; empty for an unpartitioned spec.
    label: str


class VectorRef(Value):
    """Where a live deletion vector lies."""

    path: str
    offset: int
    size: int
    cardinality: int


class DataFile(Value):
    """A data file that a unit reads."""

    path: str
    sequence_number: int
    records: int
    size: int
    #: Index into the unit's scopes.
    scope: int
    #: The vector that was live at the plan's snapshot.
    vector: VectorRef | None = None


class EqualityDeleteFile(Value):
    """An equality delete file that a unit applies."""

    path: str
    sequence_number: int
    records: int
    size: int
    #: In ascending order.
    equality_ids: tuple[int, ...]
    #: Index into the unit's scopes; None is global: every spec and partition (spec, Scan Planning).
    scope: int | None


class PositionDeleteFile(Value):
    """A position delete file that is live already."""

    path: str
    sequence_number: int
    scope: int
    #: The one data file that it is about, when that is known.
    referenced: str | None


class UnitHeader(Value):
    """What the plan says of a unit without its files."""

    number: int
    label: str
    files: int
    delete_files: int
    rows: int
    delete_rows: int
    #: Bytes that will be read.
    cost: int
    #: Why it cannot be worked on; nothing is read or written for it then.
    refused: str | None = None


class Unit(Value):
    """One share of a table: data files of one or more partitions, with every delete that reaches them."""

    header: UnitHeader
    scopes: tuple[Scope, ...]
    data: tuple[DataFile, ...]
    deletes: tuple[EqualityDeleteFile, ...]
    positions: tuple[PositionDeleteFile, ...]


class Retirement(Value):
    """An equality delete file that may leave the table once its whole scope is done."""

    path: str
    sequence_number: int
    #: None is global.
    scope: Scope | None
    #: The units that apply it; it leaves only when all of them are committed.
    units: tuple[int, ...]
    #: False when the request leaves out data files that it reaches: then it stays.
    complete: bool = True


class Plan(Value):
    """What one round of a job does, derived from one snapshot."""

    request: Request
    #: 0, then one more for each time that conflicts sent scopes back to planning.
    round: int
    table_uuid: str
    location: str
    format_version: int
    #: The snapshot planned from: None for an empty branch.
    snapshot_id: int | None
    sequence_number: int
    units: tuple[UnitHeader, ...] = ()
    retirements: tuple[Retirement, ...] = ()
    #: A sentence that says why nothing is selected.
    nothing: str | None = None
    #: What earlier rounds have done.
    before: Report | None = None

    @property
    def marker(self) -> str:
        """What the summary of this round's snapshot carries."""
        return f"{self.request.job}#{self.round}"

    @property
    def empty(self) -> bool:
        """Whether there is nothing to stage and nothing to retire."""
        return not self.units and not any(r.complete for r in self.retirements)


class StagedDeleteFile(Value):
    """A position delete file that was written and is not yet committed."""

    path: str
    size: int
    records: int
    column_sizes: dict[int, int]
    lower: tuple[str, int]
    upper: tuple[str, int]
    split_offsets: tuple[int, ...]
    scope: int
    #: Paths of the data files whose rows it names.
    targets: tuple[str, ...]


class StagedVector(Value):
    """A deletion vector that was written and is not yet committed."""

    path: str
    #: Of the whole Puffin file.
    size: int
    offset: int
    content_size: int
    cardinality: int
    new_positions: int
    scope: int
    target: str
    #: The vector that is part of it, and leaves with the commit.
    merged: VectorRef | None
    #: Paths of file-scoped position delete files that are part of it, and leave with the commit.
    absorbed: tuple[str, ...] = ()


class Staged(Value):
    """The record that a unit is staged; written last of all."""

    unit: int
    attempt: int
    scopes: tuple[Scope, ...]
    deletes: tuple[StagedDeleteFile, ...] = ()
    vectors: tuple[StagedVector, ...] = ()
    #: For partition-scoped position delete files that were read: every data file that each names.
    named: dict[str, tuple[str, ...]] = {}
    new_positions: int = 0
    seconds: float = 0.0

    @property
    def paths(self) -> frozenset[str]:
        """Every file that was written."""
        return frozenset(d.path for d in self.deletes) | frozenset(v.path for v in self.vectors)


class Attempt(Value):
    """A try at a unit, noted before anything else is written."""

    unit: int
    number: int
    #: Tells tries apart that took the same number.
    token: str
    host: str
    started: float
    #: Every path that may be written.
    paths: tuple[str, ...] = ()


class CommitNote(Value):
    """That a committer is at a round's commit, noted before it writes anything and until its fate is known."""

    #: Tells committers apart that took the same number.
    token: str
    #: When the attempt began that is on its way now.
    started: float
    #: The branch's head that this attempt builds on: it cannot happen on another one.
    head: int | None = None
    #: The snapshots that it builds, by the name that their files share.
    snapshots: dict[str, int] = {}
    #: Whether all of it is known to be in the table, or never to come there.
    settled: bool = False
    #: Whether something of it is in the table.
    happened: bool = False


class Failure(Value):
    """A unit that ended without being staged, or staged without being committed."""

    unit: int
    partition: str
    reason: str


class Report(Value):
    """How a job ended, or how far it has come."""

    job: str
    table: str
    catalog: str = "default"
    operation: Operation = Operation.CONVERT
    status: Status
    snapshot_id: int | None = None
    units: int = 0
    failed_units: int = 0
    removed_equality_delete_files: int = 0
    added_position_delete_files: int = 0
    added_dvs: int = 0
    added_position_deletes: int = 0
    seconds: float = 0.0
    #: A sentence for whoever reads the report: why nothing was done, or what went wrong.
    reason: str | None = None
    failures: tuple[Failure, ...] = ()

    @property
    def exit_status(self) -> int:
        """What the command line exits with."""
        return {Status.PARTIAL: 3, Status.REFUSED: 2, Status.FAILED: 1, Status.CANCELLED: 1}.get(self.status, 0)


Plan.model_rebuild()
