"""A fleet as the operations page closes its doors: what it needs still works, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from producer.messages import Status
from tests.fleet.guarded import GuardedFleet
from tests.fleet.tables import streamed

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]


@pytest.fixture(scope="module")
def guarded(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedFleet]:
    fleet = GuardedFleet(tmp_path_factory.mktemp("guarded"))
    try:
        fleet.start_redis()
        fleet.watch.config_resetstat()
        fleet.start_flower()
        fleet.start_committer()
        beat = ["celery", "--app", "tasks.app", "beat", "--schedule", str(fleet.root / "clock"), "--pidfile="]
        fleet.processes.start("beat", beat, fleet.environment)
        fleet.start_worker("red")
        fleet.answering("red", "committer")
        yield fleet
    finally:
        fleet.stop()


def test_a_whole_job_needs_no_more_than_its_user_may(guarded: GuardedFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded.attach(monkeypatch)
    streamed(guarded.catalog, "db.events", partitions=2, upserts=1)
    job = guarded.fleet.convert("db.events")
    assert job.wait(150).status is Status.COMMITTED
    assert guarded.json("status", job.id)["status"] == "committed"
    assert guarded.icefleet("jobs").returncode == 0
    guarded.processes.wait_for(
        "a sweep", lambda: guarded.processes.log("committer").read_text().count("nothing was lost") > 1
    )
    assert {name.partition("@")[0] for name in guarded.flower("/api/workers?refresh=1")} == {"red", "committer"}
    assert job.id in str(guarded.flower("/api/tasks"))
    lengths = guarded.flower("/api/queues/length")["active_queues"]
    assert {queue["name"] for queue in lengths} >= {"commit", "convert", "compact", "plan", "sweep"}
    open("/tmp/hsx/stats", "w").write(
        "\n".join(sorted(guarded.watch.info("commandstats")))
        + "\n"
        + "\n".join(sorted(map(repr, guarded.watch.keys())))
    )
    denied = guarded.watch.acl_log()
    assert denied == []
