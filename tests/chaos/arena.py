"""A fleet whose storage and catalog may fail, and which is put together again whenever something of it dies."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path

import redis
from kombu import pools
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ServiceUnavailableError

from producer import Job, Report
from producer.common.errors import IcefleetError
from producer.model.job import Operation
from tests.chaos.faults import Arsenal
from tests.chaos.hooks import FOLDER
from tests.chaos.invariants import Violated
from tests.chaos.memorygroup import MemoryGroup
from tests.chaos.victims import WORKERS
from tests.fleet.composefile import free_port
from tests.fleet.localfleet import COMMITTER, LocalFleet
from tests.support.object_store import BUCKET, KEYS, ObjectStore, running_store

#: Seconds within which every job must have ended, whatever happened to it.
LONGEST = 240.0
#: Seconds within which the sweeper has cleaned up what a clean-up that died has left.
CLEAN = 60.0
PARTS = ("redis", "committer", "beat", *WORKERS)
#: The catalog of tables on an object store.
LAKE = "lake"


class Arena(LocalFleet):
    """Redis, a committer, the clock, and two workers, each a session of processes of its own.

    Args:
        root: Folder for all of it.
        settings: As for any fleet on this machine.
    """

    def __init__(self, root: Path, **settings: object) -> None:
        quick = {"sweep_seconds": 1, "lease_seconds": 6, "catalogs": f"default,{LAKE}"}
        super().__init__(root, **{"cores": 1, "heap_mb": 512, "unit_mb": 1, **quick, **settings})
        self.folder = root / "chaos"
        (self.folder / "leaders").mkdir(parents=True)
        self.arsenal = Arsenal(self.folder)
        #: What was done to the fleet from outside, and how often.
        self.counts: Counter[str] = Counter()
        #: How often parts were started again.
        self.revived = 0
        #: What parts have in their environment that others have not.
        self._particular: dict[str, dict[str, str]] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self._store_ports = free_port(), free_port()
        self._servers = ExitStack()

    @cached_property
    def environment(self) -> dict[str, str]:
        """What processes see: a storage and a catalog that may fail, and a catalog of tables on an object store."""
        own = {"DEFAULT__PY_IO_IMPL": "tests.chaos.hooks.FaultyFileIO", f"{LAKE.upper()}__TYPE": "sql"}
        for name, value in self._lake_properties(self._store_ports[0]).items():
            own[f"{LAKE.upper()}__{name.upper().replace('.', '__').replace('-', '_')}"] = value
        catalogs = {f"PYICEBERG_CATALOG__{name}": value for name, value in own.items()}
        return super().environment | catalogs | {FOLDER: str(self.folder)}

    @cached_property
    def object_store(self) -> ObjectStore:
        """An S3 server whose requests may fail, but for those of this process; it starts when it is first asked for."""
        return self._servers.enter_context(running_store(*self._store_ports))

    @cached_property
    def lake(self) -> SqlCatalog:
        """The catalog of tables on it, without faults."""
        return SqlCatalog(LAKE, **self._lake_properties(self._store_ports[1]))

    def _lake_properties(self, port: int) -> dict[str, str]:
        uri = str(self.catalog.properties["uri"])
        # Clients wait for an answer for less time than some take.
        store = {"s3.endpoint": f"http://127.0.0.1:{port}", "s3.request-timeout": "5", **KEYS}
        return {"uri": uri, "warehouse": f"s3://{BUCKET}/warehouse", **store}

    def stop(self) -> None:
        """End all processes."""
        super().stop()
        self._servers.close()

    def start(self) -> None:
        """Start all parts."""
        for part in PARTS:
            if part not in self.processes.running:
                self.start_part(part)
        self.answering("committer", *WORKERS)

    def start_part(self, name: str) -> None:
        """Start one part, as its service manager would."""
        environment = self.environment | self._particular.get(name, {})
        if name == "redis":
            self._hang_up()
            self.start_redis()
        elif name == "beat":
            schedule = self.root / "beat-schedule"
            command = ["icefleet", "beat", "--schedule", str(schedule)]
            self.processes.start(name, command, environment)
        elif name == "committer":
            self.start_worker(name, *COMMITTER, "--concurrency", "1", **environment)
        else:
            self.start_worker(name, **environment)
        if name in self._groups:  # before it has started anything
            self._groups[name].entrance.write_text(str(self.processes.running[name].pid))
        self.noted(name)

    @contextmanager
    def another_time(self, name: str, minutes: int, library: str) -> Iterator[None]:
        """A part whose clock is ahead, or behind; it is started anew before and after."""
        self._particular[name] = {"LD_PRELOAD": library, "FAKETIME": f"{minutes * 60:+d}s"}
        try:
            self._anew(name)
            yield
        finally:
            del self._particular[name]
            self._anew(name)

    @contextmanager
    def of_memory(self, names: Iterable[str], size: int) -> Iterator[Callable[[], int]]:
        """Machines with so many bytes of memory each; they are started anew before and after.

        Yields:
            What tells how many processes the kernel has killed there so far.
        """
        with ExitStack() as stack:
            groups = {name: stack.enter_context(MemoryGroup.of(f"icefleet-{name}", size)) for name in names}
            self._groups.update(groups)
            try:
                for name in groups:
                    self._anew(name)
                yield lambda: sum(group.killed for group in groups.values())
            finally:
                self._groups.clear()
                for name in groups:
                    self._anew(name)

    def _anew(self, name: str) -> None:
        if name in self.processes.running:
            self.processes.kill(name)
        self.start_part(name)
        self.answering(name)

    def start_producer(self, *arguments: str) -> None:
        """Start a client that waits for what it has asked for; it is not started again."""
        self.processes.start("producer", ["icefleet", *arguments, "--json"], self.environment)
        self.noted("producer")

    def _hang_up(self) -> None:
        """Close this process's own connections: they lead to the Redis that has died."""
        self.redis.connection_pool.disconnect()
        pools.reset()  # type: ignore[no-untyped-call]
        self.__dict__.pop("celery", None)

    def noted(self, name: str) -> None:
        """Let all processes know whom to kill by that name."""
        (self.folder / "leaders" / name).write_text(str(self.processes.running[name].pid))

    def revive(self) -> None:
        """Start again whatever has died, as service managers do; what died with a machine is delivered again."""
        dead = [name for name in PARTS if not self._lives(name)]
        for name in dead:
            if name in self.processes.running:
                self.processes.kill(name)  # what is left of its session
            self.start_part(name)
            self.revived += 1
        if set(dead) - {"redis", "beat"}:
            with suppress(redis.RedisError):
                self.let_deliveries_expire()

    def redeliver(self) -> None:
        """Have what counts as not delivered given to somebody now: the transport looks for it at a worker's start."""
        self.start_worker("late")
        self.answering("late")
        self.processes.terminate("late")
        self.processes.ended("late", LONGEST)

    def whole(self) -> None:
        """Have every part there again, and nothing going on."""
        if "producer" in self.processes.running:
            self.processes.kill("producer")
        while True:
            self.revive()
            try:
                self.answering("committer", *WORKERS)
                return self.settle()
            except AssertionError:
                if all(map(self._lives, PARTS)):
                    raise
                # A fault that waited for the end of a job has killed one meanwhile.

    def rebuild(self) -> None:
        """Have every part anew, and nothing in Redis: what a game has left that went wrong is not the next one's."""
        self.processes.kill_all()
        self.start_part("redis")
        self.redis.flushall()
        self.start()

    def end_of(self, job: Job, within: float = LONGEST) -> Report:
        """Wait for a job's end, and bring back meanwhile what dies.

        Raises:
            AssertionError: it has not ended in time.
        """
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            self.revive()
            with suppress(redis.RedisError, OSError, ServiceUnavailableError):
                if job.status.ended:
                    return job.wait(10)
            time.sleep(0.1)
        raise AssertionError(f"{job.id} has not ended within {within:.0f} s\n{self.processes.logs()}")

    def catalog_is_free(self) -> bool:
        """Whether no process, be it stopped or not, is in the middle of reading or changing the catalog."""
        catalog = sqlite3.connect(str(self.catalog.engine.url.database), timeout=0)
        with closing(catalog), suppress(sqlite3.OperationalError):
            catalog.execute("BEGIN EXCLUSIVE")
            return True
        return False

    def clean(self, check: Callable[[], None], within: float = CLEAN) -> None:
        """Give the sweeper time to delete what is left of a job.

        Args:
            check: Raises while something is.
            within: Seconds.
        """
        until = time.monotonic() + within
        while True:
            try:
                return check()
            except Violated:
                if time.monotonic() > until:
                    raise
            time.sleep(0.3)

    def job_at(self, table: str, operation: Operation) -> Job:
        """The job that somebody else has asked for, as soon as anything tells of it."""

        def found() -> str | None:
            with suppress(redis.RedisError, IcefleetError):
                jobs = self.fleet.jobs(table)
                return next((job.id for job in jobs if job.name.operation is operation), None)
            return None

        return self.fleet.job(self.processes.wait_for(f"job at {table}", found, every=0.05))

    def _lives(self, name: str) -> bool:
        process = self.processes.running.get(name)
        return process is not None and process.poll() is None
