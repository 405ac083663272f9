"""A fleet as the operations page closes its doors: what it needs still works, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from producer.common.errors import Refused
from producer.iceberg.catalog import open_table
from producer.model.job import Status
from tests.fleet.guarded import PASSWORD, GuardedFleet
from tests.fleet.tables import inserted, streamed

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]


@pytest.fixture(scope="module")
def guarded(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedFleet]:
    """Every service of a fleet, each with the broker's address of deploy/icefleet.env.example."""
    with GuardedFleet(tmp_path_factory.mktemp("guarded")) as fleet:
        fleet.start_redis()
        fleet.start_flower()
        fleet.start_committer()
        beat = ["icefleet", "beat"]
        fleet.processes.start("beat", beat, fleet.environment)
        fleet.start_worker("red")
        fleet.answering("red", "committer")
        yield fleet


@pytest.fixture
def fleet(guarded: GuardedFleet, monkeypatch: pytest.MonkeyPatch) -> GuardedFleet:
    """The fleet, known to this process, and nothing denied so far."""
    guarded.attach(monkeypatch)
    guarded.watch.acl_log_reset()
    return guarded


def test_jobs_need_no_more_than_the_user_may(fleet: GuardedFleet) -> None:
    streamed(fleet.catalog, "db.events", partitions=2, upserts=1)
    job = fleet.fleet.convert("db.events")
    assert job.wait(150).status is Status.COMMITTED
    assert fleet.json("status", job.id)["status"] == "committed"
    checks = {check["name"]: check for check in fleet.json("check", "db.events")}
    assert {name for name, check in checks.items() if not check["passed"]} == set()
    assert {"broker", "clock", "workers", "java", "scratch", "catalog", "storage: read"} <= checks.keys()
    assert "2 workers serve all queues" in checks["workers"]["detail"]
    assert job.id in {known.id for known in fleet.fleet.jobs()}
    cancelled = fleet.fleet.compact("db.events", tier="full")
    cancelled.cancel()
    assert cancelled.wait(60).status in {Status.CANCELLED, Status.COMMITTED}
    log = fleet.processes.log("committer")
    fleet.processes.wait_for("a sweep", lambda: log.read_text().count("nothing was lost") > 1)
    assert fleet.watch.acl_log() == []


def test_what_dies_is_delivered_again(fleet: GuardedFleet) -> None:
    """What Celery does then needs other commands."""
    streamed(fleet.catalog, "db.again", partitions=2, upserts=1)
    job = fleet.fleet.convert("db.again")
    fleet.attempt(job.id, 0)
    fleet.processes.kill("red")
    fleet.let_deliveries_expire()
    fleet.start_worker("red")
    assert job.wait(150).status is Status.COMMITTED
    assert fleet.watch.acl_log() == []


def test_flower_needs_no_more(fleet: GuardedFleet) -> None:
    assert {name.partition("@")[0] for name in fleet.flower("/api/workers?refresh=1")} == {"red", "committer"}
    assert "icefleet.convert" in str(fleet.flower("/api/tasks"))
    lengths = fleet.flower("/api/queues/length")["active_queues"]
    assert {queue["name"] for queue in lengths} >= {"commit", "convert", "compact", "plan", "sweep"}
    assert fleet.watch.acl_log() == []


def test_whoever_only_enqueues_needs_no_catalog(guarded: GuardedFleet) -> None:
    """This process knows none here."""
    inserted(guarded.catalog, "db.plain")
    with pytest.raises(Refused):
        open_table("default", "db.plain")
    assert guarded.fleet.convert("db.plain").wait(60).status is Status.NOTHING_TO_DO


def test_redis_that_is_started_again_has_what_it_had(fleet: GuardedFleet) -> None:
    """It reads its file of commands as the user that nobody logs in as: what that user may not would be left out."""
    fleet.processes.kill("beat")
    for number in range(20):
        with fleet.redis.pipeline(transaction=True) as pipe:
            pipe.set(f"icefleet:kept:{number}", number)
            pipe.expire(f"icefleet:kept:{number}", 600)
            pipe.execute()
    fleet.processes.kill("redis")
    fleet.run_redis()
    kept = [fleet.redis.get(f"icefleet:kept:{number}") for number in range(20)]
    assert kept == [str(number) for number in range(20)]
    assert "NOPERM" not in fleet.processes.log("redis").read_text()
    assert fleet.watch.acl_log() == []
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis.from_url(fleet.broker_url.replace(f"icefleet:{PASSWORD}@", "")).ping()


@pytest.mark.parametrize(
    "command",
    [
        ("flushall",),
        ("keys", "*"),
        ("config", "get", "dir"),
        ("get", "others"),
        ("set", "others", "1"),
        ("publish", "others", "1"),
        ("acl", "list"),
        ("client", "kill", "id", "1"),
        ("eval", "return redis.call('get', KEYS[1])", "1", "others"),
        ("script", "flush"),
        ("shutdown", "nosave"),
    ],
    ids=" ".join,
)
def test_the_user_may_nothing_else(fleet: GuardedFleet, command: tuple[str, ...]) -> None:
    with pytest.raises(
        (redis.exceptions.NoPermissionError, redis.ResponseError), match=r"(?i)permission|No permissions|NOPERM"
    ):
        fleet.redis.execute_command(*command)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("rediss://127.0.0.1:{port}/0?ssl_cert_reqs=required&ssl_ca_certs={etc}/ca.crt", redis.AuthenticationError),
        ("rediss://icefleet:wrong@127.0.0.1:{port}/0?ssl_ca_certs={etc}/ca.crt", redis.AuthenticationError),
        ("redis://icefleet:{password}@127.0.0.1:{port}/0", redis.ConnectionError),
        ("rediss://icefleet:{password}@127.0.0.1:{port}/0?ssl_cert_reqs=required", redis.ConnectionError),
    ],
    ids=["no password", "wrong password", "no TLS", "unknown authority"],
)
def test_nobody_else_comes_in(fleet: GuardedFleet, address: str, error: type[Exception]) -> None:
    url = address.format(port=fleet.redis_port, etc=fleet.etc, password=PASSWORD)
    with redis.Redis.from_url(url) as client, pytest.raises(error):
        client.ping()
