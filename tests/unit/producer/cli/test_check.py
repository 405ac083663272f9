"""``icefleet check``: what it says of what works, and of what does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.memory import InMemoryCatalog

from producer.cli.main import main
from tasks.testing import StreamTable


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamTable:
    """Table db.t of the catalog ``default``."""
    catalog = InMemoryCatalog("default", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("db")
    monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: catalog)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return StreamTable.create(catalog, "db.t", pa.schema([("id", pa.int64())]))


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments], env=environment)


def checks(*arguments: str, **environment: str) -> dict[str, Any]:
    """The checks by their names."""
    return {check["name"]: check for check in json.loads(run(*arguments, "--json", **environment).stdout)}


def test_all_works(table: StreamTable) -> None:
    result = run("db.t")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "not tried broker: ICEFLEET_BROKER_URL is not set" in result.stdout
    found = checks("db.t")
    assert {name for name, check in found.items() if check["passed"] is not True} == {"broker"}
    assert {"java", "memory", "scratch", "catalog", "table", "storage: write", "storage: delete"} <= found.keys()
    folder = Path(table.table.location().removeprefix("file://"))
    assert not (folder / "_icefleet").exists()


def test_a_broker_that_is_away_and_scratch_that_cannot_be_written(table: StreamTable) -> None:
    found = checks(ICEFLEET_BROKER_URL="redis://127.0.0.1:9/0", ICEFLEET_SCRATCH_DIR="/proc/scratch")
    assert "does not answer: nothing listens there" in found["broker"]["detail"]
    assert "ICEFLEET_SCRATCH_DIR" in found["scratch"]["detail"]
    assert {name for name, check in found.items() if check["passed"] is False} == {"broker", "scratch"}
    assert run(ICEFLEET_SCRATCH_DIR="/proc/scratch").exit_code == 1


def test_a_table_that_does_not_exist(table: StreamTable) -> None:
    result = run("db.tt")
    assert result.exit_code == 1
    assert "did you mean 'db.t'?" in result.stdout


def test_storage_that_cannot_be_written(table: StreamTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "somewhere")

    monkeypatch.setattr("producer.cli.check.write_file", deny)
    found = checks("db.t")
    assert found["storage: write"]["passed"] is False
    assert "this user lacks the right: grant it" in found["storage: write"]["detail"]
    assert "storage: read" not in found
