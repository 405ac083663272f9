"""Whatever a fleet is made of is lost again and again while it works on a large table: `make chaos`."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from producer import Job, Report
from producer.messages import Operation, Status
from producer.messenger import Messenger
from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.fleet.processes import descendants
from tests.fleet.tables import equality_deletes, left_behind, rows_of, snapshots_of, streamed

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

UNITS = 40
BLOWS = 20
#: Seconds between two blows; a session takes about as long to start.
PAUSE = (2.0, 9.0)


@pytest.fixture
def fleet(
    redis_installed: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalFleet]:
    """A fleet that gives no unit up."""
    fleet = LocalFleet(tmp_path_factory.mktemp("random"), **SMALL, sweep_seconds=1, max_attempts=100)
    try:
        fleet.start_redis()
        fleet.attach(monkeypatch)
        fleet.start_committer("committer", "--beat")
        for name in ("red", "blue"):
            fleet.start_worker(name)
        yield fleet
    finally:
        fleet.stop()


class Blows:
    """What may happen to a fleet; each returns when what was lost is started again."""

    def __init__(self, fleet: LocalFleet, job: str, chance: random.Random) -> None:
        self.fleet = fleet
        self.job = job
        self.chance = chance
        self.all = (self.child, self.worker, self.committer, self.forget, self.redis, self.repeat)

    def child(self) -> None:
        """A worker's child dies."""
        process = self.fleet.processes.running[self.chance.choice(("red", "blue"))]
        children = [child for child in descendants(process.pid) if child.ppid() == process.pid]
        if children:
            self.fleet.kill_child(self.chance.choice(children).pid)

    def worker(self) -> None:
        """A worker's machine dies."""
        name = self.chance.choice(("red", "blue"))
        self.fleet.processes.kill(name)
        self.fleet.let_deliveries_expire()
        self.fleet.start_worker(name)

    def committer(self) -> None:
        """The committer's machine dies."""
        self.fleet.processes.kill("committer")
        self.fleet.let_deliveries_expire()
        self.fleet.start_committer("committer", "--beat")

    def forget(self) -> None:
        """Redis loses everything."""
        self.fleet.redis.flushall()

    def redis(self) -> None:
        """Redis dies and comes back with its file."""
        self.fleet.processes.kill("redis")
        self.fleet.start_redis()

    def repeat(self) -> None:
        """Every message that may be on its way is sent once more."""
        store = self.fleet.store(self.job)
        if (plan := store.latest_plan()) is not None:
            Messenger(self.fleet.settings).stage(plan, store.at(plan).pending(plan.units))
            Messenger(self.fleet.settings).commit(self.job, plan.location)


def _strike(fleet: LocalFleet, job: Job, seed: int) -> Report:
    """Blow after blow until the job ends, or until there were enough of them."""
    chance = random.Random(seed)
    blows = Blows(fleet, job.id, chance)
    for _ in range(BLOWS):
        until = time.monotonic() + chance.uniform(*PAUSE)
        while time.monotonic() < until and not job.status.ended:
            time.sleep(0.1)
        if job.status.ended:
            break
        blow = chance.choice(blows.all)
        print(f"{job.progress()}: {blow.__doc__}")
        blow()
    report = job.wait(600)
    assert (report.status, report.failed_units) == (Status.COMMITTED, 0), report
    fleet.settle()
    return report


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("operation", Operation)
def test_a_job_ends_whatever_is_lost(fleet: LocalFleet, operation: Operation, seed: int) -> None:
    table = streamed(fleet.catalog, "db.large", partitions=UNITS, files=3, upserts=2, format_version=2 + seed % 2)
    rows, snapshots = rows_of(table.table), len(table.table.metadata.snapshots)
    compaction = operation is Operation.COMPACT
    job = fleet.fleet.compact("db.large", tier="full") if compaction else fleet.fleet.convert("db.large")
    plan = fleet.planned(job.id)
    assert len(plan.units) == UNITS
    report = _strike(fleet, job, seed)
    assert snapshots_of(table.table, job.id) == [report.snapshot_id]
    assert len(table.table.metadata.snapshots) == snapshots + 1
    assert equality_deletes(table) == 0
    if compaction:
        assert len(table.data_files()) == UNITS
        assert table.delete_files() == []
    assert rows_of(table.table) == rows
    assert left_behind(table.table) == []
    assert fleet.records("db.large") == []
