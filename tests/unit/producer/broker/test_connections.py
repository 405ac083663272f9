"""Connections: a package that a broker needs and that is missing is named, with what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Hides a package from a process, as if it were not installed, and enqueues a table.
ENQUEUE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from producer import Fleet, Refused, Settings
settings = Settings(_env_file=None, broker_url=sys.argv[2], board_url=sys.argv[3])
try:
    Fleet(settings).convert("db.t") if sys.argv[2] else Fleet(settings).jobs()
except Refused as refused:
    print(refused.reason, refused, sep=": ")
"""
NOWHERE = "redis://127.0.0.1:9/0"


@pytest.mark.parametrize(
    ("package", "broker", "board", "says"),
    [
        ("redis", NOWHERE, "", f"The broker at {NOWHERE} needs the package redis, which is not installed here: "),
        ("kombu", NOWHERE, "", f"The broker at {NOWHERE} needs the package kombu, which is not installed here: "),
        ("celery", NOWHERE, "", f"The broker at {NOWHERE} needs the package celery, which is not installed here: "),
        ("redis", "", NOWHERE, f"The Redis at {NOWHERE} needs the package redis, which is not installed here: "),
        ("pymongo", "mongodb://h", "", "The broker at mongodb://h needs the package pymongo, "),
    ],
)
def test_a_missing_package(package: str, broker: str, board: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENQUEUE, package, broker, board], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"configuration: {says}")
    extra = "celery[mongodb]." if package == "pymongo" else "celery[redis], which icefleet requires."
    assert done.stdout.rstrip().endswith(f": install {extra}")
