"""Messages are data: a worker refuses what it does not understand, and leaves to others what is newer than itself.

It runs those of the version before.
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection

from producer import Job
from producer.broker.queue import COMMIT, LOCATION, PLAN, QUEUES, STAGING
from producer.broker.registry import JobRegistry
from producer.model import codec as versions
from producer.model.codec import HEADER
from producer.model.job import Operation, Report, Request, Status
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import equality_deletes, left_behind, rows_of, streamed
from tests.support import oracle
from tests.support.lake_io import lake_properties
from tests.support.repository import REPOSITORY
from tests.support.saved_jobs import ROWS as LIVE_ROWS
from tests.support.saved_jobs import B, SavedJob
from tests.support.saved_messages import Messages, arguments_of, read_messages

CONVERT = STAGING[Operation.CONVERT]
pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

EVERYTHING = ("--queues", "plan,commit,sweep,convert,compact", "--concurrency", "1")
RECORDS = REPOSITORY / "tests" / "records"
SAVED = sorted(RECORDS.glob("*/*.messages.json"))


@pytest.fixture(scope="module")
def own(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A fleet of one worker that does everything."""
    with LocalFleet(tmp_path_factory.mktemp("messages"), spark=False, cores=1, heap_mb=512) as fleet:
        fleet.catalog.properties |= lake_properties(fleet.root / "lake")
        fleet.catalog.create_namespace_if_not_exists("db")
        fleet.start_redis()
        fleet.start_worker("old", *EVERYTHING)
        fleet.answering("old")
        yield fleet


@pytest.fixture
def fleet(own: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> LocalFleet:
    """The same, known to this process."""
    own.attach(monkeypatch)
    return own


class Boom:
    """Makes a file while it is being read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def publish(fleet: LocalFleet, task: str, body: bytes, kind: str = "application/json", **headers: Any) -> str:
    """Put a message on the queue of a task as anybody can who has the broker's address; its id."""
    number = str(uuid.uuid4())
    with Connection(fleet.broker_url) as connection, connection.channel() as channel:  # type: ignore[no-untyped-call]
        connection.Producer(channel).publish(
            body,
            routing_key=QUEUES.get(task, "plan"),
            content_type=kind,
            content_encoding="utf-8" if kind == "application/json" else "binary",
            headers={"lang": "py", "task": task, "id": number, "root_id": number, "retries": 0, **headers},
            correlation_id=number,
            reply_to="",
        )
    return number


def arguments(*unnamed: Any, **named: Any) -> bytes:
    return json.dumps([unnamed, named, {}]).encode()


def is_empty(fleet: LocalFleet) -> bool:
    """Whether no message is left, neither queued nor handed out."""
    return not fleet.redis.hlen("unacked") and not any(fleet.redis.llen(queue) for queue in QUEUES.values())


def has_logged(fleet: LocalFleet, text: str, worker: str = "old") -> bool:
    return text in fleet.processes.log(worker).read_text()


def converted(fleet: LocalFleet, name: str) -> None:
    """A normal job goes through."""
    table = streamed(fleet.catalog, f"db.{name}", partitions=1, rows=500, upserts=1)
    rows = rows_of(table.table)
    report = fleet.fleet.convert(f"db.{name}").wait(120)
    assert report.status is Status.COMMITTED, report
    assert rows_of(table.table) == rows
    assert (equality_deletes(table), left_behind(table.table)) == (0, [])


ID = "convert:default:db.t:20260101T000000-0a1b2c3d"
UNIT = {"table": "db.t", "partition": "", "job": ID, "round": 0, "unit": 0}

#: Of each message that is refused: its task, its arguments, and what is said of it.
NOT_UNDERSTOOD: dict[str, tuple[str, bytes, str]] = {
    "unknown task": ("icefleet.vacuum", arguments(table="db.t"), "icefleet.vacuum"),
    "no arguments": (PLAN, arguments(), "its job is None"),
    "no names": (COMMIT, arguments("db.t", ID), "its arguments have no names"),
    "unknown argument": (
        CONVERT,
        arguments(**UNIT, colour="red"),
        "colour: Extra inputs are not permitted",
    ),
    "missing argument": (CONVERT, arguments(table="db.t", job=ID), "partition: Field required"),
    "text for a number": (
        CONVERT,
        arguments(**UNIT | {"unit": "0"}),
        "unit: Input should be a valid integer",
    ),
    "less than nothing": (
        CONVERT,
        arguments(**UNIT | {"round": -1}),
        "round: Input should be greater than or equal",
    ),
    "job of numbers": (PLAN, arguments(table="db.t", job=[1]), "its job is [1]"),
    "unknown operation": (PLAN, arguments(table="db.t", job=ID.replace("convert", "vacuum")), "is not a job id"),
    "a way out": (COMMIT, arguments(table="db.t", job=f"{ID}/../.."), "is not a job id"),
    "two tables": (PLAN, arguments(table="db.u", job=ID), "its table is 'db.u', its job's 'db.t'"),
    "another catalog": (PLAN, arguments(table="db.t", job=ID, catalog="prod"), "catalog follows from the job's id"),
    "options as text": (PLAN, arguments(table="db.t", job=ID, options="all"), "options: Input should be a valid dict"),
    "no such table": (CONVERT, arguments(**UNIT), "There is no table 'db.t'"),
    "no body": (PLAN, b"", "its body is not a list of arguments"),
    "cut off": (PLAN, b'[[], {"table"', "Can't decode message body"),
    "deep": (PLAN, b"[" * 100_000, ""),
    "null": (PLAN, b"null", "its body is not a list of arguments"),
    "a number": (PLAN, b"1" * 20, "its body is not a list of arguments"),
    "an empty list": (PLAN, b"[]", "its body is not a list of arguments"),
    "a list of texts": (PLAN, b'["a", "b", "c"]', "its body is not a list of arguments"),
    "odd options": (PLAN, b"[[], {}, [1]]", "its body is not a list of arguments"),
}


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_a_message_that_is_not_understood(fleet: LocalFleet, name: str) -> None:
    """It is refused with a sentence, it is gone, and the worker is not."""
    task, body, sentence = NOT_UNDERSTOOD[name]
    publish(fleet, task, body)
    fleet.processes.wait_for(f"refusal of {name}", lambda: is_empty(fleet) and has_logged(fleet, sentence), 8)


#: Headers of messages that ask for a table that is not there, and what is said of them.
HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "odd version": ({HEADER: "latest"}, "'latest' is no schema version"),
    "odd location": ({LOCATION: ["s3://lake"]}, "its location is no text"),
    "odd number of tries": ({"retries": "many"}, "retries: Input should be a valid integer"),
    "odd time": ({"eta": "soon"}, "invalid ETA"),
    "odd limits": ({"timelimit": 7}, "timelimit: Input should be a valid list"),
    "odd id": ({"id": None}, "id: Input should be a valid string"),
    "odd end": ({"expires": {}}, "expires: Input should be a valid string"),
    "odd groups": ({"group": 7, "parent_id": [], "root_id": {}}, "root_id: Input should be a valid string"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_are_not_understood(fleet: LocalFleet, name: str) -> None:
    headers, sentence = HEADERS[name]
    publish(fleet, CONVERT, arguments(**UNIT), **headers)
    fleet.processes.wait_for(f"refusal of {name}", lambda: is_empty(fleet) and has_logged(fleet, sentence), 8)
    assert fleet.processes.running["old"].poll() is None


@pytest.mark.parametrize("kind", ["application/x-python-serialize", "application/x-yaml"])
def test_what_could_run_code_is_not_read(fleet: LocalFleet, tmp_path: Path, kind: str) -> None:
    trap = tmp_path / "trap"
    content: tuple[Any, ...] = ([], {"table": "db.t", "job": Boom(trap)}, {})
    body = pickle.dumps(content)
    if kind.endswith("yaml"):
        body = f"!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{trap}]]".encode()
    publish(fleet, PLAN, body, kind)
    fleet.processes.wait_for("refusal", lambda: is_empty(fleet) and has_logged(fleet, kind), 8)
    assert not trap.exists()
    assert kind.endswith("yaml") or pickle.loads(body) is not None, "the trap works:"
    assert kind.endswith("yaml") or trap.exists()


def test_after_all_that_a_normal_job_goes_through(fleet: LocalFleet) -> None:
    converted(fleet, "after")
    assert fleet.processes.running["old"].poll() is None


@pytest.fixture(params=SAVED, ids=["-".join(path.relative_to(RECORDS).parts).split(".messages")[0] for path in SAVED])
def saved(request: pytest.FixtureRequest, fleet: LocalFleet) -> Iterator[tuple[SavedJob, Messages]]:
    """A job that an earlier version planned, with its table in the fleet's catalog, and that version's messages."""
    path: Path = request.param
    archive = path.with_name(path.name.replace(".messages.json", ".tar.xz"))
    job = SavedJob.read(archive.parent / archive.name.removesuffix(".tar.xz") / "planned.json")
    job.unpack(archive, fleet.root / "lake")
    table = fleet.catalog.register_table(job.table, job.metadata)
    head = table.metadata.current_snapshot_id
    assert head is not None
    with table.manage_snapshots() as references:
        references.create_branch(head, "audit")
    yield job, read_messages(path)
    fleet.catalog.drop_table(job.table)
    fleet.redis.delete(f"icefleet:report:{job.job}")
    shutil.rmtree(fleet.root / "lake" / "tables")


def deliver(fleet: LocalFleet, messages: Messages, *names: str) -> None:
    """Put saved messages on their queues, as they were."""
    for name in names:
        fleet.redis.lpush(messages[name]["queue"], json.dumps(messages[name]["message"]))


def ended(fleet: LocalFleet, job: str) -> Report:
    """Wait for the end of a job that this process has not asked for, and of all that was sent for it."""
    registry = JobRegistry(fleet.settings)
    report = fleet.processes.wait_for(f"report of {job}", lambda: registry.report(job), 60)
    fleet.processes.wait_for("an empty queue", lambda: is_empty(fleet), 30)
    return report


@pytest.mark.parametrize("message", ["plan", "plan-with-every-argument"])
def test_a_job_that_an_earlier_version_asks_for(
    fleet: LocalFleet, saved: tuple[SavedJob, Messages], message: str
) -> None:
    job, messages = saved
    shutil.rmtree(fleet.root / "lake" / "tables" / "db" / "once" / "_icefleet")  # nobody has planned it
    deliver(fleet, messages, message)
    arguments = arguments_of(messages[message]["message"])
    report = ended(fleet, arguments["job"])
    assert report.status is Status.COMMITTED, report
    table = fleet.catalog.load_table(job.table)
    branch, every = arguments.get("branch", "main"), message == "plan"
    assert oracle.rows(table) == oracle.rows(table, branch) == LIVE_ROWS
    deletes = {file.partition[0] for file in oracle.live_files(table, branch) if file.equality_ids}
    assert deletes == (set() if every else {B})
    assert [file for file in oracle.live_files(table) if file.equality_ids] == [] or not every
    assert left_behind(table) == []


def test_a_job_whose_units_an_earlier_version_has_sent(fleet: LocalFleet, saved: tuple[SavedJob, Messages]) -> None:
    """One of them has failed before, and comes twice."""
    job, messages = saved
    deliver(fleet, messages, "unit-0-retried", "unit-1", "unit-0", "sweep", "commit")
    report = ended(fleet, job.job)
    assert report.status is Status.COMMITTED, report
    table = fleet.catalog.load_table(job.table)
    assert oracle.rows(table) == LIVE_ROWS
    assert [file for file in oracle.live_files(table) if file.equality_ids] == []
    assert left_behind(table) == []


def test_newer_messages_wait_for_newer_workers(fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet in the middle of an upgrade: its producers are ahead of its workers."""
    table = streamed(fleet.catalog, "db.newer", partitions=1, rows=500, upserts=1)
    rows = rows_of(table.table)
    request = Request.new("db.newer")
    body = arguments(table="db.newer", job=request.job, submitted=request.submitted)
    headers: dict[str, Any] = {HEADER: 2}
    publish(fleet, PLAN, body, **headers)
    asks = "The message asks for schema 2 and this process knows 1: upgrade it."
    log = fleet.processes.log("old")
    fleet.processes.wait_for("two refusals", lambda: log.read_text().count(f"goes back to the queue: {asks}") >= 2, 60)
    fleet.processes.wait_for("its return to the queue", lambda: not is_empty(fleet), 10)
    command = [sys.executable, "-m", "tests.fleet.newer_worker", "worker", *EVERYTHING, "--name", "new@%h"]
    fleet.processes.start("new", command, fleet.environment)
    fleet.answering("new", "old")
    store = fleet.store(request.job)
    root = Path(store.location.removeprefix("file://")) / "_icefleet"
    plans = fleet.processes.wait_for("a plan", lambda: list(root.glob("*/plan-0.json")), 90)
    assert json.loads(plans[0].read_bytes())["schema"] == 2
    fleet.processes.terminate("old")  # what it holds, it gives back
    fleet.processes.ended("old")
    monkeypatch.setattr(versions, "SCHEMA", 2)
    assert Job(request.job, fleet.settings, request=request).wait(120).status is Status.COMMITTED
    assert rows_of(table.table) == rows
    assert (equality_deletes(table), left_behind(table.table)) == (0, [])
    fleet.processes.wait_for("an empty queue", lambda: is_empty(fleet), 30)
