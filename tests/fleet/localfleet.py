"""A fleet on this machine: Redis, workers, committer and Flower, started by the commands that operators use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast
from urllib.request import Request, urlopen

import pytest
import redis
from celery import Celery
from celery.app.control import Inspect
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from producer import Fleet, Settings
from producer.broker.queue import SWEEP
from producer.model.job import Operation
from producer.model.plan import Plan
from producer.model.staged import Attempt
from producer.state.job_store import ROOT, JobStore
from tasks.testing import local_catalog
from tests.fleet.composefile import free_port
from tests.fleet.processes import Processes, descendants
from tests.support.repository import REPOSITORY

LOGIN = "operator:correct-horse"
COMMITTER = ("--queues", "plan,commit,sweep")


class LocalFleet:
    """One fleet with its own Redis, catalog and warehouse.

    Args:
        root: Folder for all of it.
        spark: Whether workers start their Spark session in advance, as they do in production.
        settings: ``ICEFLEET_…`` variables without their prefix, in lower case; for processes and for this one.
    """

    def __init__(self, root: Path, *, spark: object = True, **settings: object) -> None:
        self.root = root
        self.spark = bool(spark)
        self.processes = Processes(root)
        self.redis_port = free_port()
        self.flower_port = free_port()
        self.broker_url = f"redis://127.0.0.1:{self.redis_port}/0"
        self.settings = Settings(_env_file=None, broker_url=self.broker_url, **settings)  # type: ignore[arg-type]
        self.redis_arguments: tuple[str, ...] = ()
        self._variables = {f"ICEFLEET_{name.upper()}": str(value) for name, value in settings.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- from this process -------------------------------------------------------------------------------------

    @cached_property
    def catalog(self) -> SqlCatalog:
        """The catalog that every process knows as ``default``."""
        return local_catalog(self.root / "lake")

    @cached_property
    def redis(self) -> redis.Redis:
        """The broker itself."""
        return redis.Redis.from_url(self.broker_url, decode_responses=True)

    @cached_property
    def celery(self) -> Celery:
        """A way to talk to the workers."""
        return Celery("icefleet", broker=self.broker_url, set_as_current=False)

    @property
    def fleet(self) -> Fleet:
        """The fleet as another application sees it."""
        return Fleet(self.settings)

    def attach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process know the catalog too; PyIceberg reads its configuration at import only."""
        properties = {k: v for k, v in self.catalog.properties.items() if k != "type"}
        monkeypatch.setattr(
            "producer.iceberg.catalog.load_catalog", lambda name: load_catalog(name, **{"type": "sql", **properties})
        )

    def inspect(self, nodes: int = 3) -> Inspect:
        """What workers say of themselves; as soon as that many have answered."""
        return self.celery.control.inspect(timeout=2, limit=nodes)

    def store(self, job: str) -> JobStore:
        """A job's records, found as the sweeper finds them: at its table."""
        table = self.catalog.load_table(job.split(":")[2])
        return JobStore(table.io, table.metadata.location, job.split(":")[3])

    def current(self, table: str, operation: Operation = Operation.CONVERT) -> str | None:
        """The job that is noted at a table."""
        opened = self.catalog.load_table(table)
        request = JobStore(opened.io, opened.metadata.location, "").current(operation)
        return request.job if request else None

    def planned(self, job: str) -> Plan:
        """Wait for a job's first plan."""
        store = self.store(job)
        return self.processes.wait_for(f"plan of {job}", lambda: store.plan(0), every=0.02)

    def attempt(self, job: str, unit: int, number: int = 0) -> Attempt:
        """Wait until a worker is at a unit for the given time."""
        store = self.store(job)

        def found() -> Attempt | None:
            plan = store.plan(0)
            attempts = store.at(plan).attempts(unit) if plan is not None else []
            return attempts[number] if len(attempts) > number else None

        return self.processes.wait_for(f"attempt {number} at unit {unit} of {job}", found, every=0.02)

    def child_at(self, job: str, unit: int) -> tuple[str, int]:
        """Who works on a unit and holds its lease: the name of the worker and the process id of its child."""

        def found() -> tuple[str, int] | None:
            leases = cast("list[str]", self.redis.hvals(f"icefleet:holders:{job}"))
            tokens = {json.loads(lease)["token"] for lease in leases}
            for node, tasks in (self.inspect().active() or {}).items():
                for task in tasks:
                    about = (task["kwargs"].get("job"), task["kwargs"].get("unit"))
                    if about == (job, unit) and f"{node}/{task['worker_pid']}" in tokens:
                        return node.partition("@")[0], task["worker_pid"]
            return None

        return self.processes.wait_for(f"worker at unit {unit} of {job}", found)

    def settle(self, nodes: int = 3) -> None:
        """Wait until nobody works on a job any more, and nothing of one is queued."""

        def idle() -> bool:
            try:
                if any(self.redis.llen(queue) for queue in ("plan", "convert", "compact", "commit")):
                    return False
                active = self.inspect(nodes).active() or self.inspect(nodes).active() or {}  # a busy worker may be late
            except redis.ConnectionError:  # it was started again, and this connection is of before
                return False
            return not any(task["name"] != SWEEP for tasks in active.values() for task in tasks)

        self.processes.wait_for("rest", idle)

    def let_deliveries_expire(self) -> None:
        """What was delivered and not acknowledged counts as delivered longer ago than the visibility timeout.

        It is given to somebody else by the next worker that starts, or after a while.
        """
        for tag in cast("list[str]", self.redis.zrange("unacked_index", 0, -1)):
            self.redis.zincrby("unacked_index", -self.settings.visibility_timeout - 1, tag)

    def records(self, table: str) -> list[str]:
        """Whatever is left of jobs at a table."""
        root = Path(self.catalog.load_table(table).metadata.location.removeprefix("file://")) / ROOT
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    # -- processes ---------------------------------------------------------------------------------------------

    @cached_property
    def environment(self) -> dict[str, str]:
        """What the processes see: nothing of the caller's own configuration."""
        configuration = ("ICEFLEET_", "PYICEBERG_", "FLOWER_", "PYTEST_")
        own = {key: value for key, value in os.environ.items() if not key.startswith(configuration)}
        own["PATH"] = f"{Path(sys.executable).parent}:{own['PATH']}"
        own["PYTHONPATH"] = str(REPOSITORY)
        own["PYICEBERG_HOME"] = own["HOME"] = str(self.root)
        own["PYTHONUNBUFFERED"] = "1"
        # What a process that is killed leaves of its scratch goes with the test's folder.
        own["TMPDIR"] = str(self.root / "tmp")
        (self.root / "tmp").mkdir(parents=True, exist_ok=True)
        # A session lives for minutes here: what would make its code fast costs more than it gives.
        own["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        own["ICEFLEET_BROKER_URL"] = self.broker_url
        for key, value in self.catalog.properties.items():
            own[f"PYICEBERG_CATALOG__DEFAULT__{key.upper()}"] = str(value)
        own["PYICEBERG_CATALOG__DEFAULT__TYPE"] = "sql"
        return own | self._variables

    def start_redis(self) -> None:
        """Start Redis as the operations page asks for it."""
        (self.root / "redis").mkdir(parents=True, exist_ok=True)
        command = ["redis-server", "--port", str(self.redis_port), "--bind", "127.0.0.1", "--dir"]
        command += [str(self.root / "redis"), "--appendonly", "yes", "--maxmemory-policy", "noeviction", "--save", ""]
        command += self.redis_arguments
        self.processes.start("redis", command, self.environment)
        self.processes.wait_for("Redis", self._pong, 10, every=0.05)

    def start_worker(self, name: str, *arguments: str, **environment: str) -> None:
        """Start a worker, by default one that does the heavy work."""
        serves = arguments or ("--queues", "convert,compact", "--concurrency", "1")
        program = ["icefleet"] if self.spark else [sys.executable, "-m", "tests.fleet.worker_without_spark"]
        command = [*program, "worker", *serves, "--name", f"{name}@%h"]
        self.processes.start(name, command, self.environment | environment)

    def start_committer(self, name: str = "committer", *arguments: str) -> None:
        """Start what plans, commits and sweeps."""
        self.start_worker(name, *COMMITTER, "--concurrency", "1", *arguments)

    def start_paused_committer(self, name: str, at: str) -> Path:
        """Start a committer that holds ``before`` or ``after`` the catalog's swap; returns the file it leaves there.

        It goes on when the file is gone.
        """
        reached = self.root / f"{name}-{at}"
        command = [sys.executable, "-m", "tests.fleet.paused_committer", "worker", *COMMITTER]
        command += ["--concurrency", "1", "--name", f"{name}@%h"]
        self.processes.start(name, command, self.environment | {"PAUSE_AT": at, "PAUSE_FILE": str(reached)})
        return reached

    def start_flower(self) -> None:
        """Start Flower behind a password."""
        command = ["icefleet", "flower", f"--port={self.flower_port}"]
        self.processes.start("flower", command, self.environment | {"FLOWER_BASIC_AUTH": LOGIN})

    def answering(self, *names: str, within: float = 60) -> None:
        """Wait until workers answer."""

        def found() -> bool:
            nodes = self.inspect(len(names)).ping() or {}
            return set(names) <= {node.partition("@")[0] for node in nodes}

        self.processes.wait_for(f"answer of {', '.join(names)}", found, within)

    def stop(self) -> None:
        """End all processes."""
        for client in ("redis", "celery"):
            with suppress(KeyError):
                self.__dict__.pop(client).close()
        self.processes.kill_all()

    def kill_child(self, pid: int) -> None:
        """Kill the child of a worker, as the kernel does when memory runs out."""
        known = [child.pid for process in self.processes.running.values() for child in descendants(process.pid)]
        assert pid in known, f"{pid} is none of {known}"
        os.kill(pid, signal.SIGKILL)

    # -- clients -----------------------------------------------------------------------------------------------

    def icefleet(self, *arguments: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end, in a process of its own."""
        return self._run(["icefleet", *arguments], timeout, environment)

    def python(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run another program to its end."""
        return self._run([sys.executable, *arguments], timeout, {})

    def json(self, *arguments: str, status: int = 0, timeout: float = 120) -> Any:
        """What a command prints with ``--json``."""
        done = self.icefleet(*arguments, "--json", timeout=timeout)
        assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}\n{self.processes.logs()}"
        return json.loads(done.stdout)

    def flower(self, path: str, login: str | None = LOGIN) -> Any:
        """What Flower's API answers."""
        request = Request(f"http://127.0.0.1:{self.flower_port}{path}")
        if login:
            request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
        with urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def _run(
        self, command: list[str], timeout: float, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.root,
            env=self.environment | dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def _pong(self) -> bool:
        with suppress(redis.ConnectionError):
            return bool(self.redis.ping())
        return False
