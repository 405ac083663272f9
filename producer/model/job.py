"""Jobs: requests, job ids, states and reports. Frozen values, kept as JSON."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from producer.common.errors import Reason, Refused


class Value(BaseModel):
    """A frozen value object that is kept as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Operation(StrEnum):
    """What can be done to a table.

    The values are the names of commands, queues and task names, and job ids begin with them.
    """

    CONVERT = "convert"
    COMPACT = "compact"


class Status(StrEnum):
    """The state of a job."""

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
        """Whether this is a final state."""
        return self in ENDED


ENDED = frozenset(
    {Status.COMMITTED, Status.NOTHING_TO_DO, Status.PARTIAL, Status.FAILED, Status.REFUSED, Status.CANCELLED}
)

#: The allowed transitions; a status that is missing here is final.
TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.PLANNING, Status.CANCELLED, Status.REFUSED, Status.FAILED}),
    Status.PLANNING: frozenset({Status.STAGING, Status.COMMITTING}) | ENDED,
    Status.STAGING: frozenset({Status.COMMITTING, Status.CANCELLED, Status.FAILED}),
    Status.COMMITTING: frozenset({Status.PLANNING, Status.COMMITTED, Status.PARTIAL, Status.FAILED, Status.CANCELLED}),
}


#: Examples of a request's texts.
_EXAMPLES = {"table": "db.events", "catalog": "default", "branch": "main", "where": "day = '2024-05-01'"}


class Request(Value):
    """A request for one operation on one branch of one table."""

    #: The job's id. It names the table, so that a job can be found again without a register.
    job: str
    operation: Operation = Operation.CONVERT
    catalog: str = "default"
    table: str
    branch: str = "main"
    #: A filter as PyIceberg parses it; it must select whole partitions.
    where: str | None = None
    #: Commit all units or none.
    all_or_nothing: bool = False
    #: Options of the operation, by the names that users know, as they gave them.
    options: dict[str, str] = Field(default_factory=dict)
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
        options: Mapping[str, str] | None = None,
    ) -> Self:
        """Return a request with a new job id.

        Raises:
            Refused: The table name has no namespace, or an argument is no text.
        """
        texts: dict[str, object] = {"table": table, "catalog": catalog, "branch": branch}
        for name, value in (texts if where is None else {**texts, "where": where}).items():
            if not isinstance(value, str):
                given = f"{value!r} is a {type(value).__name__}"
                raise Refused(Reason.USAGE, f"{name} must be text, such as {_EXAMPLES[name]!r}: {given}.")
        if not isinstance(all_or_nothing, bool):
            raise Refused(Reason.USAGE, f"all_or_nothing must be True or False, and is {all_or_nothing!r}.")
        check_table_name(table)
        now = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        milliseconds = int(now % 1 * 1000)
        names = (quote(catalog, safe=""), quote(table, safe="."))
        return cls(
            job=":".join((operation, *names, f"{stamp}-{milliseconds:03x}{secrets.token_hex(3)[1:]}")),
            operation=operation,
            catalog=catalog,
            table=table,
            branch=branch,
            where=where,
            all_or_nothing=all_or_nothing,
            options=dict(options or {}),
            submitted=now,
        )

    @property
    def token(self) -> str:
        """The last part of the job's id, which file names carry."""
        return JobId.parse(self.job).token


def check_table_name(table: str) -> None:
    """Refuse a name of a table without its namespace."""
    if "`" in table:
        sentence = "names are split at dots, and tables and namespaces whose own names have dots cannot be named"
        raise Refused(Reason.USAGE, f"{table!r} is not a table name: {sentence}.")
    if "." not in table.strip(".") or not all(table.split(".")):
        raise Refused(Reason.USAGE, f"{table!r} is not a table name: give namespace.table.")


#: The last part of a job's id, which names of files and folders carry: date and time, three digits of milliseconds,
#: five random ones.
_TOKEN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}")


class JobId(Value):
    """The parts of a job's id. It names the table, so that the job's state can be read from storage alone."""

    operation: Operation
    catalog: str
    table: str
    token: str

    @property
    def submitted(self) -> float | None:
        """When the job was submitted, in seconds since 1970; None if the id holds no valid time."""
        try:
            second = datetime.strptime(f"{self.token[:15]}+0000", "%Y%m%dT%H%M%S%z").timestamp()
        except ValueError:
            return None
        return second + min(int(self.token[16:19], 16), 999) / 1000  # those of 0.1.0 have random digits there

    def matches(self, request: Request) -> bool:
        """Return whether a request has the operation, catalog and table of this id."""
        return (request.operation, request.catalog, request.table) == (self.operation, self.catalog, self.table)

    @classmethod
    def parse(cls, job: str) -> Self:
        """Return the parts of a job id.

        Raises:
            Refused: The text is not a job id.
        """
        parts = job.split(":")
        if len(parts) != 4 or parts[0] not in set(Operation) or not all(parts) or not _TOKEN.fullmatch(parts[3]):
            raise Refused(Reason.UNKNOWN_JOB, f"{job!r:.200} is not a job id: `icefleet jobs` lists them.")
        operation, catalog, table, token = parts
        return cls(operation=Operation(operation), catalog=unquote(catalog), table=unquote(table), token=token)


class Failure(Value):
    """A unit that failed: it was not staged, or not committed."""

    unit: int
    partition: str
    reason: str


class StorageRequests(Value):
    """The requests of a job to object stores, with repetitions."""

    requests: int
    repeated: int
    by_kind: dict[str, int]

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Self | None:
        """Return the requests of these counts, by kind and the repetitions as ``repeated``; None if there are none."""
        kinds = {kind: number for kind, number in sorted(counts.items()) if kind != "repeated"}
        if not kinds:
            return None
        return cls(requests=sum(kinds.values()), repeated=counts.get("repeated", 0), by_kind=kinds)

    @property
    def warning(self) -> str | None:
        """A sentence that says how many requests were repeated; None if none was."""
        if not self.repeated:
            return None
        return f"the storage was busy: {self.repeated:,} of {self.requests:,} requests were repeated"


class Report(Value):
    """The result of a job, or what it has done so far. Counters that do not apply to its operation are 0."""

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
    rewritten_data_files: int = 0
    added_data_files: int = 0
    removed_delete_files: int = 0
    #: Bytes of all files that were removed and added, data and deletes.
    removed_bytes: int = 0
    added_bytes: int = 0
    seconds: float = 0.0
    #: A sentence that says why nothing was done, or what went wrong.
    reason: str | None = None
    failures: tuple[Failure, ...] = ()
    #: None if there were none, or nobody has counted them. No record has it: version 0.1.0 would take it for corrupt.
    storage: StorageRequests | None = None

    @model_serializer(mode="wrap")
    def _leave_out_storage(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        if self.storage is None:
            fields.pop("storage", None)
        return fields

    @property
    def exit_status(self) -> int:
        """The exit status of the command line."""
        return {Status.PARTIAL: 3, Status.REFUSED: 2, Status.FAILED: 1, Status.CANCELLED: 1}.get(self.status, 0)
