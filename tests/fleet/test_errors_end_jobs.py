"""Whatever is raised, wherever: the job ends with a reason, its lock is released, and nothing of it is left.

The tasks are the fleet's own, with messages through a real Redis; they run in this process, one after another, and a
step of theirs raises each time it is called.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pydantic
import pytest
from kombu.connection import Connection
from pyiceberg.exceptions import RESTError

from producer.broker.queue import QUEUES, Messenger
from producer.broker.registry import JobRegistry
from producer.cli.jobs import JobLine
from producer.common.errors import Corrupt, Reason, Refused
from producer.common.settings import Settings
from producer.job import Job
from producer.model.job import Request, Status
from producer.storage.errors import StorageBusy
from tasks import app as application
from tasks.messaging.retry_policy import HEADER, FailureCount, RetryPolicy, is_transient
from tasks.testing import StreamTable
from tests.fleet.localfleet import LocalFleet
from tests.support import oracle
from tests.support.commits import BY_P, ROWS, SCHEMA, fill
from tests.support.faulty import FaultyCatalog, Jobs
from tests.support.unreferenced import unreferenced

pytestmark = [pytest.mark.fleet, pytest.mark.redis]


class OfSomebodyElse(Exception):
    """No kind that anybody reckons with."""


def _validation_error() -> Exception:
    try:
        FailureCount.model_validate({"since": "soon"})
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


#: One error of each kind.
ERRORS: dict[str, Callable[[], Exception]] = {
    "ImportError": lambda: ImportError("Snappy support not installed"),
    "KeyError": lambda: KeyError("gone"),
    "AssertionError": lambda: AssertionError("never"),
    "RuntimeError": lambda: RuntimeError("no loop"),
    "NotImplementedError": lambda: NotImplementedError("not yet"),
    "RecursionError": lambda: RecursionError("too deep"),
    "MemoryError": lambda: MemoryError("too much"),
    "UnicodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    "ArrowInvalid": lambda: pa.ArrowInvalid("bad footer"),
    "ArrowNotImplemented": lambda: pa.ArrowNotImplementedError("no such codec"),
    "ValidationError": _validation_error,
    "Corrupt": lambda: Corrupt("A record cannot be read."),
    "Refused": lambda: Refused(Reason.CONFIGURATION, "It is not configured."),
    "OfSomebodyElse": lambda: OfSomebodyElse("who knows"),
    "PermissionError": lambda: PermissionError("denied"),
    "TimeoutError": lambda: TimeoutError("too slow"),
    "ConnectionError": lambda: ConnectionError("away"),
    "StorageBusy": lambda: StorageBusy(errno.EIO, "the store is busy or away", "s3://lake/file"),
    "RESTError": lambda: RESTError("503"),
    "NoAnswer": lambda: Refused(Reason.NO_ANSWER, "The catalog does not answer."),
}
#: Where it is raised.
STEPS = {
    "plan": "tasks.lifecycle.rounds.plan_table",
    "note the plan": "producer.state.job_store.JobStore.write_plan",
    "read a unit": "producer.state.round_store.RoundStore.attempts",
    "stage": "tasks.operations.convert.execute.convert",
    "read the head": "tasks.lifecycle.commit.BranchHead.of",
    "write manifests": "producer.iceberg.snapshot_producer.write_manifests",
    "note the commit": "tasks.lifecycle.commit.PendingCommit.begin_attempt",
    "swap": "tests.support.faulty.InMemoryCatalog.commit_table",
    "clean up": "tasks.lifecycle.ending.clean_up",
    "post the report": "producer.broker.registry.JobRegistry.save_report",
}


class Fleet:
    """The tasks of a fleet, run one after another in this process."""

    def __init__(self, settings: Settings, jobs: Jobs) -> None:
        self.settings = settings
        self.jobs = jobs
        self.done = 0

    def run(self, most: int = 60) -> None:
        """Run tasks until no message is left."""
        with Connection(self.settings.broker_url) as connection:  # type: ignore[no-untyped-call]
            channel = connection.default_channel
            while (message := self._next(channel)) is not None:
                self.done += 1
                assert self.done < most, "it goes on for ever"
                task = application.app.tasks[message.headers["task"]]
                _, named, _ = json.loads(message.body)
                headers = {key: value for key, value in message.headers.items() if key.startswith("icefleet")}
                task.apply(kwargs=named, headers=headers, task_id=message.headers["id"])
                message.ack()

    @staticmethod
    def _next(channel: Any) -> Any:
        for queue in QUEUES.values():
            if (message := channel.basic_get(queue)) is not None:
                return message
        return None


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FaultyCatalog]:
    catalog = FaultyCatalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def stream(catalog: FaultyCatalog) -> StreamTable:
    stream = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_P)
    fill(stream)
    return stream


@pytest.fixture
def fleet(server: LocalFleet, catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    server.redis.flushall()
    jobs = Jobs(catalog, monkeypatch)  # the plain engine
    settings = server.settings.model_copy(update={"max_attempts": 2, "commit_attempts": 2})
    monkeypatch.setattr(application, "settings", settings)
    for name in QUEUES:
        if name in application.app.tasks and hasattr(application.app.tasks[name], "retry_policy"):
            # What may pass is waited for as long: not at all.
            monkeypatch.setattr(type(application.app.tasks[name]), "retry_policy", RetryPolicy(2, 0.0))
    return Fleet(settings, jobs)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ERRORS)
def test_the_job_ends(step: str, kind: str, fleet: Fleet, stream: StreamTable, monkeypatch: pytest.MonkeyPatch) -> None:
    request, registry = Request.new("db.t"), JobRegistry(fleet.settings)
    calls = 0
    with monkeypatch.context() as patch:

        def fault(*_: Any, **__: Any) -> Any:
            nonlocal calls
            calls += 1
            raise ERRORS[kind]()

        patch.setattr(STEPS[step], fault)
        registry.enqueue(request)
        Messenger(fleet.settings).plan(request)
        for _ in range(4):  # the sweeper takes up what has not ended
            fleet.run()
            if not registry.next_requests():
                break
            fleet.jobs.wait(90_000)  # a day and more, after which nobody waits for an answer
            Messenger(fleet.settings).commit(request.job, stream.table.location())
    assert calls > 0
    if step == "post the report":
        assert registry.next_requests() == []  # nobody can be told, and the next job has the table
        return
    report = registry.report(request.job)
    assert report is not None
    committed = step == "clean up"
    assert report.status in ((Status.COMMITTED,) if committed else (Status.FAILED, Status.REFUSED)), report
    if step == "stage" and kind not in ("Corrupt",):
        assert report.failures
    assert report.reason or report.failures
    assert oracle.rows(stream.table) == ROWS
    # The lock is free, and another job has the table.
    following = Request.new("db.t")
    assert registry.lock(following)
    registry.release(following)
    if committed and is_transient(ERRORS[kind]()):
        Messenger(fleet.settings).commit(request.job, stream.table.location())  # by the sweeper, when it has passed
        fleet.run(100)
    if not committed or is_transient(ERRORS[kind]()):
        assert unreferenced(stream.table) == set()


def test_a_job_that_is_tried_again_says_why(fleet: Fleet, stream: StreamTable, monkeypatch: pytest.MonkeyPatch) -> None:
    request, registry = Request.new("db.t"), JobRegistry(fleet.settings)
    kind = type(application.app.tasks["icefleet.plan"])
    monkeypatch.setattr(kind, "retry_policy", RetryPolicy(2, 3600.0))
    monkeypatch.setattr(kind, "registry", registry)
    seen: list[tuple[str, str | None]] = []

    def fault(*_: Any) -> Any:
        line = JobLine.of(Job(request.job, fleet.settings))
        seen.append((line.status, line.reason))
        fleet.jobs.wait(2000)
        raise OSError(errno.ENOSPC, "No space left on device", "/lake/record.json")

    monkeypatch.setattr(STEPS["note the plan"], fault)
    registry.enqueue(request)
    Messenger(fleet.settings).plan(request)
    fleet.run()
    error = "OSError: [Errno 28] No space left on device: '/lake/record.json': this disk is full: free some space"
    assert seen == [("queued", None), *[("queued", f"tried again: {error}")] * 2]
    report = registry.report(request.job)
    assert report is not None
    assert report.reason == f"Planning failed: {error}"


class TestRetryPolicy:
    """How often, and how long."""

    policy = RetryPolicy(3, 3600.0)

    def fails(self, *errors: tuple[Exception, float]) -> list[bool]:
        headers: dict[str, Any] = {}
        ends = []
        for error, now in errors:
            failures = FailureCount.after(headers, error, now)
            headers = {HEADER: json.loads(failures.model_dump_json())}
            ends.append(self.policy.is_exhausted(failures, now))
        return ends

    def test_a_permanent_error_is_tried_three_times(self) -> None:
        assert self.fails(*((KeyError("a"), float(n)) for n in range(3))) == [False, False, True]

    def test_a_transient_error_has_an_hour(self) -> None:
        away = OSError("away")
        assert self.fails((away, 0.0), *((away, 1.0 + n) for n in range(50)), (away, 3599.0)) == [False] * 52
        assert self.fails((away, 0.0), (away, 3600.0)) == [False, True]

    def test_only_a_permanent_error_counts_as_an_attempt(self) -> None:
        away, wrong = OSError("away"), KeyError("a")
        errors: list[Exception] = [wrong, *[away] * 9, wrong, away, wrong]
        assert self.fails(*((error, 1.0 * n) for n, error in enumerate(errors))) == [False] * 12 + [True]

    @pytest.mark.parametrize("header", [None, "soon", {"since": "soon"}, {"since": float("inf")}, [1], {"since": 1e18}])
    def test_a_malformed_header_is_ignored(self, header: Any) -> None:
        failures = FailureCount.after({HEADER: header}, OSError("away"), 100.0)
        assert failures.since == 100.0
        assert not self.policy.is_exhausted(failures, 101.0)
