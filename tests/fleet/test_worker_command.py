"""`icefleet worker`: what it exits with when it cannot start, and that a child replaces a session that has grown."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from kombu.connection import Connection

from producer.broker.queue import STAGING
from producer.model.job import Operation
from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.fleet.processes import descendants

pytestmark = [pytest.mark.fleet, pytest.mark.redis]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--queues", "convert,vacuum"), "Refused: There is no queue 'vacuum'; there are commit, convert, "),
        (("--concurrency", "0"), "Invalid value for '--concurrency': 0 is not in the range 1<=x<=64."),
        (("--concurrency", "many"), "Invalid value for '--concurrency': 'many' is not a valid integer range."),
        (("--log-level", "LOUD"), "Invalid value for '--log-level': 'LOUD' is not one of"),
        (("--colour",), "No such option"),
        (("convert",), "Got unexpected extra argument (convert)"),
    ],
    ids=["queue", "no children", "concurrency", "log level", "option", "argument"],
)
def test_wrong_arguments(server: LocalFleet, arguments: tuple[str, ...], sentence: str) -> None:
    done = server.icefleet("worker", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("", "ICEFLEET_BROKER_URL is not set: a worker needs a broker to listen to."),
        ("http://127.0.0.1:6379/0", "no broker goes by that scheme: write an address such as redis://"),
    ],
    ids=["unset", "no broker's"],
)
def test_a_wrong_address(server: LocalFleet, address: str, sentence: str) -> None:
    done = server.icefleet("worker", ICEFLEET_BROKER_URL=address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("Refused: ")
    assert sentence in done.stderr


@pytest.fixture
def growing(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A worker whose children find that they use much memory once the file `grown` is there."""
    with LocalFleet(tmp_path_factory.mktemp("growing"), **SMALL, memory_mb=1024) as fleet:
        fleet.start_redis()
        command = [sys.executable, "-m", "tests.fleet.growing_worker", "worker", "--queues", "convert"]
        command += ["--name", "worker@%h"]
        fleet.processes.start("worker", command, fleet.environment | {"GROWN": str(fleet.root / "grown")})
        fleet.answering("worker")
        yield fleet


@pytest.mark.spark
def test_a_session_that_has_grown_is_replaced_after_a_task(growing: LocalFleet) -> None:
    """The worker's child stays, and its new session serves the next unit."""

    def jvm() -> psutil.Process | None:
        for process in descendants(worker):
            with suppress(psutil.Error):  # it ends, or is not a JVM yet
                if process.name() == "java" and any("SparkSubmit" in word for word in process.cmdline()):
                    return process
        return None

    def warm() -> bool:
        with suppress(psutil.Error):
            one = jvm()
            return one is not None and any(c.name().startswith("python") for c in one.children(recursive=True))
        return False

    worker = growing.processes.running["worker"].pid
    growing.processes.wait_for("a session that is warm", warm)
    first = jvm()
    assert first is not None
    child = first.parent()
    log = growing.processes.log("worker")
    refuse_a_unit(growing)
    growing.processes.wait_for("an end of the task", lambda: "There is no table" in log.read_text())
    assert first.is_running()
    (growing.root / "grown").touch()

    def replaced() -> bool:
        refuse_a_unit(growing)
        return "Spark starts again" in log.read_text()

    growing.processes.wait_for("a look at the memory", replaced, every=1)
    (growing.root / "grown").unlink()
    growing.processes.wait_for("another session", lambda: not first.is_running() and warm())
    second = jvm()
    assert second is not None
    assert second.pid != first.pid
    assert second.parent() == child
    assert "MB are in use, more than 768: Spark starts again" in log.read_text()


def refuse_a_unit(fleet: LocalFleet) -> None:
    """Have the worker run a task that ends at once: the table is not there."""
    job = "convert:default:db.t:20260101T000000-0a1b2c3d"
    named = {"table": "db.t", "partition": "", "job": job, "round": 0, "unit": 0}
    number = str(uuid.uuid4())
    headers = {"lang": "py", "task": STAGING[Operation.CONVERT], "id": number, "root_id": number, "retries": 0}
    with Connection(fleet.broker_url) as connection, connection.channel() as channel:  # type: ignore[no-untyped-call]
        connection.Producer(channel).publish(
            json.dumps([[], named, {}]).encode(),
            routing_key="convert",
            content_type="application/json",
            content_encoding="utf-8",
            headers=headers,
            correlation_id=number,
            reply_to="",
        )
