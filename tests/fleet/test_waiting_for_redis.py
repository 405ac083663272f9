"""A Redis that is away when the fleet starts, or that takes no writes for a while: workers and beat wait for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu.connection import Connection
from kombu.entity import Exchange, Queue

from producer.common.errors import Refused
from producer.model.job import Status
from tests.fleet.composefile import free_port
from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.fleet.processes import descendants
from tests.fleet.tables import streamed

pytestmark = [pytest.mark.fleet, pytest.mark.redis]

PARTS = ("committer", "beat")


@pytest.fixture(scope="module")
def fleet(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A committer and beat, which are started before their Redis."""
    with LocalFleet(tmp_path_factory.mktemp("waiting"), spark=False, **SMALL, sweep_seconds=1) as fleet:
        fleet.start_committer()
        fleet.processes.start("beat", ["icefleet", "beat", "--loglevel", "INFO"], fleet.environment)
        for part in PARTS:
            said(fleet, part, "nothing listens there")
            said(fleet, part, "Trying again")
        fleet.start_redis()
        yield fleet


def said(fleet: LocalFleet, part: str, text: str, times: int = 1) -> None:
    """Wait until a part has said something that often."""
    log = fleet.processes.log(part)
    fleet.processes.wait_for(f"{text!r} of {part}", lambda: log.read_text().count(text) >= times, 60)


def swept(fleet: LocalFleet) -> None:
    """Wait until beat and committer have done their work twice more."""
    before = fleet.processes.log("committer").read_text().count("nothing was lost")
    said(fleet, "committer", "nothing was lost", before + 2)


@contextmanager
def replica(fleet: LocalFleet) -> Iterator[None]:
    """A Redis that follows another one."""
    fleet.redis.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))  # type: ignore[no-untyped-call]
    yield
    fleet.redis.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]


@contextmanager
def full(fleet: LocalFleet) -> Iterator[None]:
    """A Redis whose memory is full, with a message in it."""
    with fleet.processes.halted("committer"):
        fleet.processes.wait_for("a message", lambda: fleet.redis.llen("sweep"), 10)
        fleet.redis.config_set("maxmemory", 1)
    yield
    fleet.redis.config_set("maxmemory", 0)


@contextmanager
def unsaved(fleet: LocalFleet) -> Iterator[None]:
    """A Redis that cannot write its snapshot, for a folder is in its place."""
    snapshot = fleet.root / "redis" / "dump.rdb"
    fleet.redis.config_set("save", "3600 1")
    snapshot.mkdir()
    save(fleet, "err")
    yield
    snapshot.rmdir()
    save(fleet, "ok")


def save(fleet: LocalFleet, status: str) -> None:
    """Have Redis write a snapshot, and wait for the result."""
    fleet.redis.bgsave()
    fleet.processes.wait_for(
        "the snapshot", lambda: fleet.redis.info("persistence")["rdb_last_bgsave_status"] == status, 10
    )


def test_what_starts_before_redis_waits_for_it(fleet: LocalFleet) -> None:
    swept(fleet)


@pytest.mark.parametrize(
    ("refusal", "cause"),
    [
        (replica, "takes no writes: it is a replica: name its master"),
        (full, "takes no writes: its memory is full: raise maxmemory"),
        (unsaved, "takes no writes: it cannot save to its disk: free some space there"),
    ],
    ids=["replica", "memory", "disk"],
)
def test_a_redis_that_takes_no_writes(
    fleet: LocalFleet,
    refusal: Callable[[LocalFleet], AbstractContextManager[None]],
    cause: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet.attach(monkeypatch)
    job = fleet.fleet.convert(streamed(fleet.catalog, f"db.{refusal.__name__}", partitions=1, upserts=1).identifier)
    fleet.processes.wait_for("the plan", lambda: job.status is Status.STAGING)
    swept(fleet)
    with refusal(fleet):
        for part in PARTS:
            said(fleet, part, cause)
        with pytest.raises(Refused, match=cause):
            fleet.fleet.convert("db.t")
        with pytest.raises(Refused, match=rf"{cause}.*{job.id} is marked as cancelled all the same"):
            job.cancel()
        listed = fleet.icefleet("jobs")
        assert listed.returncode == 0
        assert "Traceback" not in listed.stderr
        assert (cause in listed.stderr) == (refusal is unsaved), "the others can be read from"
    swept(fleet)
    assert job.wait(60).status is Status.CANCELLED


@pytest.mark.parametrize("rights", ["-@write", "-@all"])
def test_rights_that_are_wrong_for_a_while(fleet: LocalFleet, rights: str) -> None:
    """An operator mends them; a command, and a part that starts, say what is wrong and end."""
    cause = "the user lacks rights: deploy/users.acl has"
    with redis.Redis(port=fleet.redis_port, username="operator", password="mends") as operator:
        fleet.redis.acl_setuser("operator", enabled=True, passwords="+mends", categories=["+@all"], keys=["*"])
        swept(fleet)
        before = [fleet.processes.log(part).read_text().count(cause) for part in PARTS]
        operator.execute_command("ACL", "SETUSER", "default", rights)
        try:
            for part, times in zip(PARTS, before, strict=True):
                said(fleet, part, cause, times + 1)
            started = fleet.icefleet("beat")
        finally:
            operator.execute_command("ACL", "SETUSER", "default", "+@all")
    assert started.returncode == 2
    assert cause in started.stderr
    swept(fleet)


def test_a_delivery_that_is_not_acknowledged_makes_room(fleet: LocalFleet) -> None:
    """The worker would take no other message until it connects again."""
    queue = Queue("kept", Exchange("kept"), "kept")  # type: ignore[no-untyped-call]
    with Connection(fleet.broker_url, transport="tasks.messaging.transport:Transport") as connection:  # type: ignore[no-untyped-call]
        channel = connection.channel()
        channel.basic_qos(0, 1, False)
        bound = queue(channel)
        bound.declare()  # type: ignore[no-untyped-call]
        for answer in ("ack", "reject", "requeue"):
            connection.Producer(channel).publish({}, routing_key="kept", exchange="kept")
            message = bound.get()  # type: ignore[no-untyped-call]
            assert not channel.qos.can_consume()
            with replica(fleet):
                getattr(message, answer)()
                assert channel.qos.can_consume()
            assert fleet.redis.hexists("unacked", message.delivery_tag)


def test_a_redis_that_is_lost_while_deliveries_are_held(fleet: LocalFleet) -> None:
    """Celery closes the connection twice; a BRPOP under way, and a channel like that of commands, fail at first."""
    connection: Any = Connection(fleet.broker_url, transport="tasks.messaging.transport:Transport")  # type: ignore[no-untyped-call]
    channel = connection.default_channel
    bound: Any = Queue("lost", Exchange("lost"), "lost")(channel)  # type: ignore[no-untyped-call]
    bound.declare()
    connection.Producer(channel).publish({}, routing_key="lost", exchange="lost")
    assert bound.get() is not None
    bound.consume("tag", callback=print)
    Queue("box", Exchange("box", "fanout"), auto_delete=True)(connection.channel()).declare()  # type: ignore[no-untyped-call]
    with suppress(TimeoutError):
        connection.drain_events(timeout=0.1)
    fleet.processes.kill("redis")
    with suppress(ConnectionError):
        connection.collect()
    connection.close()
    fleet.start_redis()
    swept(fleet)


def test_a_worker_that_waits_stops_when_asked(redis_installed: None, tmp_path: Path) -> None:
    with LocalFleet(tmp_path, spark=False, **SMALL, sweep_seconds=1) as fleet:
        fleet.start_committer("committer", "--beat")
        said(fleet, "committer", "Trying again")
        said(fleet, "committer", "beat: Connection error")
        fleet.processes.terminate("committer")
        assert fleet.processes.ended("committer", 20) == 0


@pytest.mark.parametrize("busy", [False, True], ids=["between two messages", "before an acknowledgement"])
def test_connections_that_die_silently(redis_installed: None, tmp_path: Path, busy: bool) -> None:
    """As when the host of Redis loses power: nothing comes back, and nothing says so."""
    with LocalFleet(tmp_path, spark=False, **SMALL, sweep_seconds=1) as fleet:
        fleet.start_redis()
        port = free_port()
        proxy = [sys.executable, "-m", "tests.fleet.forking_proxy", str(port), str(fleet.redis_port)]
        fleet.processes.start("proxy", proxy, fleet.environment)
        fleet.start_worker(
            "committer",
            *("--queues", "plan,commit,sweep", "--concurrency", "1", "--beat"),
            ICEFLEET_BROKER_URL=f"redis://127.0.0.1:{port}/0",
        )
        swept(fleet)
        children = list(descendants(fleet.processes.running["committer"].pid)) if busy else []
        for child in children:
            child.suspend()
        if busy:
            received = fleet.processes.log("committer").read_text().count("] received")
            said(fleet, "committer", "] received", received + 1)
        for connection in descendants(fleet.processes.running["proxy"].pid):
            connection.suspend()
        for child in children:
            child.resume()
        swept(fleet)
        swept(fleet)
