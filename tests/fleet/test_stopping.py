"""A worker that is stopped, and one job in a process of its own: neither leaves a JVM or scratch space behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.fleet.processes import descendants

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

LOCAL = """
import time
from producer.common.settings import Settings
from tasks import local
from tasks.lifecycle.stage import budget_of
from workers.runtime import session

def begin(request, settings):
    session.session(budget_of(settings))
    print("ready", flush=True)
    time.sleep(60)

local.begin = begin
local.LocalEngine(Settings(_env_file=None, broker_url="", heap_mb=512)).run(None)
"""


@pytest.fixture
def fleet(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """Redis alone."""
    with LocalFleet(tmp_path_factory.mktemp("stopping"), **SMALL) as fleet:
        fleet.start_redis()
        yield fleet


def _jvms(fleet: LocalFleet) -> list[psutil.Process]:
    found = []
    for process in descendants(fleet.processes.running["worker"].pid):
        with suppress(psutil.Error):
            words = process.cmdline()
            # Not the one before it, which finds its arguments.
            if process.name() == "java" and "-version" not in words and not any("launcher.Main" in w for w in words):
                found.append(process)
    return found


def _left(fleet: LocalFleet) -> list[str]:
    return [path.name for path in (fleet.root / "tmp").iterdir() if not path.name.startswith("hsperfdata")]


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "warming"])
def test_a_worker_leaves_nothing(fleet: LocalFleet, warm: bool, signals: int) -> None:
    fleet.start_worker("worker")
    (jvm,) = fleet.processes.wait_for("a JVM, although there is no unit", lambda: _jvms(fleet))
    if warm:
        daemons = lambda: [child for child in jvm.children(recursive=True) if child.name().startswith("python")]  # noqa: E731
        fleet.processes.wait_for("processes for tasks", daemons)
        assert any(name.startswith("icefleet-scratch") for name in _left(fleet))
    for _ in range(signals):
        fleet.processes.terminate("worker")
    assert fleet.processes.ended("worker") == 0
    assert not jvm.is_running()
    assert _left(fleet) == []
    assert "Traceback" not in fleet.processes.log("worker").read_text()
    assert "py4j" not in fleet.processes.log("worker").read_text()
    assert "Closing down clientserver" not in fleet.processes.log("worker").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_in_a_process_of_its_own_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOCAL],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (jvm,) = (child for child in psutil.Process(process.pid).children() if child.name() == "java")
        process.send_signal(number)
        process.wait(60)
        assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("hsperfdata")] == []
        assert not jvm.is_running()
    finally:
        process.kill()
        process.communicate()
