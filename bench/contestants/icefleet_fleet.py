"""Icefleet as it is deployed: Redis and workers are processes of their own, and this one enqueues and waits."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from celery import Celery

from bench.peers.serving import claim_stdout, serve
from producer import Fleet
from producer.broker.registry import JobRegistry
from producer.common.errors import Failed
from producer.common.settings import Settings
from producer.job import Job
from producer.model.job import Status

_LOOK: Final = 0.02
_START: Final = 120.0
_END: Final = 10.0
#: The share of tables after which the pace is even: sessions have started, and modules are loaded.
_EVEN: Final = 4


class LocalFleet:
    """A Redis, and one worker that serves everything, or several for the heavy work beside a committer.

    Args:
        workers: How many for the heavy work, on one core each, of their own while there are enough; 0: one for all.
    """

    def __init__(self, workers: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fleet-")
        self._processes: list[subprocess.Popen[bytes]] = []
        port = _free_port()
        self._start(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--save", ""])
        os.environ["ICEFLEET_BROKER_URL"] = f"redis://127.0.0.1:{port}/0"
        self._settings = Settings.load()
        self._registry = JobRegistry(self._settings)
        self._wait(self._registry.check)
        if workers:
            self._worker("committer", "--queues", "plan,commit,sweep")
            cores = sorted(os.sched_getaffinity(0))
            for number in range(workers):
                core = cores[number % len(cores)]
                self._worker(f"worker-{number}", "--queues", "convert,compact", core=core)
        else:
            self._worker("worker")
        self._wait(lambda: self._answering(workers + 1 if workers else 1))

    def run(self, submit: Callable[[Fleet, str], Job], tables: list[str]) -> dict[str, Any]:
        """Enqueue tables at once and wait for the last of them.

        Raises:
            Failed: one of them was not committed, or a process has ended.
        """
        started = time.perf_counter()
        fleet = Fleet(self._settings)
        jobs = [submit(fleet, table) for table in tables]
        enqueued = time.perf_counter() - started
        ends: list[float] = []
        for job in jobs:
            while (report := self._registry.report(job.id)) is None:
                self._check()
                time.sleep(_LOOK)
            if report.status is not Status.COMMITTED:
                raise Failed(f"{report.table} ended as {report.status}: {report.reason}")
            ends.append(time.perf_counter() - started)
        early = len(ends) // _EVEN
        return {
            "tables": len(tables),
            "enqueued_seconds": enqueued,
            "first_seconds": ends[0],
            "seconds_per_table": ends[-1] / len(ends),
            "even_seconds_per_table": (ends[-1] - (ends[early - 1] if early else 0.0)) / (len(ends) - early),
        }

    def close(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
        self._folder.cleanup()

    def _worker(self, name: str, *queues: str, core: int | None = None) -> None:
        command = [sys.executable, "-c", "from producer.cli.main import main; main()", "worker", *queues]
        cores = {} if core is None else {"ICEFLEET_CORES": "1"}
        process = self._start([*command, "--name", f"{name}@%h", "--log-level", "WARNING"], cores)
        if core is not None:
            os.sched_setaffinity(process.pid, {core})  # long before it has children, which inherit this

    def _start(self, command: list[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            cwd=self._folder.name,
            env={**os.environ, "PYTHONPATH": os.getcwd(), **(environment or {})},
            stdin=subprocess.DEVNULL,
        )
        self._processes.append(process)
        return process

    def _wait(self, ready: Callable[[], object]) -> None:
        deadline = time.monotonic() + _START
        while True:
            try:
                ready()
                return
            except Exception:  # what is not there yet refuses in many ways
                self._check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK)

    def _answering(self, count: int) -> None:
        with Celery("icefleet", broker=self._settings.broker_url, set_as_current=False) as celery:
            found = celery.control.inspect(timeout=2, limit=count).ping() or {}
        if len(found) < count:
            raise Failed(f"only {', '.join(found) or 'nobody'} answered")

    def _check(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise Failed(f"{process.args!r} ended with exit status {process.returncode}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Serve the runner."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    workers = parser.parse_args().workers
    answers = claim_stdout()
    fleet = LocalFleet(workers)

    def convert(asked: Mapping[str, Any]) -> dict[str, Any]:
        catalog = asked["catalog"]["name"]
        return fleet.run(lambda to, table: to.convert(table, catalog=catalog), asked["tables"])

    def compact(asked: Mapping[str, Any]) -> dict[str, Any]:
        catalog, options = asked["catalog"]["name"], asked.get("options")
        return fleet.run(lambda to, table: to.compact(table, catalog=catalog, options=options), asked["tables"])

    try:
        serve(answers, {"convert": convert, "compact": compact}, {})
    finally:
        fleet.close()


if __name__ == "__main__":
    main()
