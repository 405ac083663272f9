"""Units too small for Spark: the process does them itself, and needs no Java for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.testing import StreamTable, local_catalog, read_rows
from tests.fleet.tables import streamed
from tests.support.repository import REPOSITORY

PROGRAM = """
import json, sys
from pathlib import Path

import workers.operations.convert, workers.runtime.session, workers.operations.rewrite, workers.deletes.matcher
from producer import Fleet, Settings
workers.runtime.session._JAVA_FOLDERS = ()
if sys.argv[2] == "large":
    workers.operations.convert._ALONE_ROWS = workers.operations.rewrite._ALONE_BYTES_COLD = 0
    workers.deletes.matcher._TASK_ROWS = 1

fleet = Fleet(Settings(_env_file=None, broker_url="", cores=2, heap_mb=512))
if sys.argv[1] == "convert":
    job = fleet.convert("db.t")
else:
    job = fleet.compact("db.t", options={"min-input-files": 2}, **json.loads(sys.argv[3]))
report = job.result()
print(json.dumps([report.status, report.exit_status, str(report.failures), "pyspark" in sys.modules]))
"""


@pytest.fixture
def table(tmp_path: Path) -> StreamTable:
    return streamed(local_catalog(tmp_path), "db.t", partitions=2, rows=500, files=2)


def _run(folder: Path, *arguments: str) -> list[object]:
    known = {key: value for key, value in os.environ.items() if key != "JAVA_HOME" and not key.startswith("PYICEBERG_")}
    catalog = {"TYPE": "sql", "URI": f"sqlite:///{folder}/catalog.db", "WAREHOUSE": f"file://{folder}/warehouse"}
    (folder / "tmp").mkdir()
    known |= {"PATH": str(folder), "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(REPOSITORY)}
    known |= {f"PYICEBERG_CATALOG__DEFAULT__{key}": value for key, value in catalog.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=known,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list((folder / "tmp").iterdir()) == []
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("operation", "options"),
    [("convert", {}), ("compact", {}), ("compact", {"sort_order": "id desc"}), ("compact", {"zorder": ["id", "note"]})],
)
def test_without_java(table: StreamTable, tmp_path: Path, operation: str, options: dict[str, object]) -> None:
    rows = sorted(read_rows(table.table).to_pylist(), key=lambda row: row["id"])
    assert _run(tmp_path, operation, "small", json.dumps(options)) == ["committed", 0, "()", False]
    table.table.refresh()
    assert sorted(read_rows(table.table).to_pylist(), key=lambda row: row["id"]) == rows


@pytest.mark.parametrize("operation", ["convert", "compact"])
def test_a_larger_unit_says_what_to_install(table: StreamTable, tmp_path: Path, operation: str) -> None:
    status, exit_status, failures, _ = _run(tmp_path, operation, "large", "{}")
    assert (status, exit_status) == ("failed", 1)
    assert "Spark needs Java 17 or newer and none was found: install one" in str(failures)
