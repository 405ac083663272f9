"""The Spark session of a process: started anew when it cannot be used, ended without a word."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from py4j import java_gateway

from tests.support.repository import REPOSITORY
from workers.runtime import session

#: Warms a session whose folder is deleted, and ends it as a worker's child does.
LIVES = """
import shutil, sys, time
from pathlib import Path
from workers.runtime import session
from workers.runtime.machine import Budget, Machine

budget, spill = Budget.of(Machine.detect(), cores=1, heap_mb=512), Path(sys.argv[1])
first = session.session(budget, spill)
assert session.session(budget, spill) is first
for folder in spill.glob("*/blockmgr-*"):
    shutil.rmtree(folder)
session.warm(budget, spill)
assert session.session(budget, spill) is not first
session.end()
time.sleep(1)
"""


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, with the filters that it had at the end."""
    root = logging.getLogger()
    filters = list(root.filters)
    yield root
    root.filters[:] = filters


def test_connections_to_the_jvm_break_without_a_word(
    root: logging.Logger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of a worker that is stopped may be starting Spark."""
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: [])
    caplog.set_level(logging.DEBUG)
    broken = root.makeRecord(
        "root", logging.ERROR, java_gateway.__file__, 1, "Exception while sending command.", (), None
    )
    own = root.makeRecord("root", logging.ERROR, __file__, 1, f"{Path(__file__).name} goes on", (), None)
    root.handle(broken)
    session.end()
    root.handle(broken)
    root.handle(own)
    assert [record.pathname for record in caplog.records] == [java_gateway.__file__, __file__]


@pytest.mark.spark
def test_a_session_without_its_folder_is_replaced_and_ends_without_a_word(tmp_path: Path) -> None:
    """systemd-tmpfiles deletes what is old in /tmp; PySpark would print that its connection to the JVM is broken."""
    command = [sys.executable, "-c", LIVES, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=REPOSITORY)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
