"""The demonstration: what it measures, what it says when rows differ, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyiceberg.io.pyarrow import schema_to_pyarrow

from producer.cli.main import main
from producer.model.job import Operation, Report, Status
from tasks.demo import demonstration
from tasks.demo.catalog import DemoCatalog
from tasks.demo.lineitem import KEY, SCHEMA, Stream, generate
from tasks.demo.outcome import FileCounts, Maintenance, Outcome, TableState
from tasks.demo.page import Page
from tasks.demo.reading import Reading, read
from tasks.testing import StreamTable, local_catalog, read_rows
from tasks.testing.reader import Checksum
from workers.runtime.session import NoJava

#: 60,000 rows.
SMALL = ("--scale", "0.01", "--batches", "2")


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as its users run it."""
    command = [sys.executable, "-c", "from producer.cli.main import main; main()", "demo", *arguments]
    known = {name: value for name, value in os.environ.items() if not name.startswith(("ICEFLEET_", "PYICEBERG_"))}
    return subprocess.run(command, capture_output=True, text=True, env={**known, **environment}, check=False)


def _invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["demo", *arguments])


def _report(status: Status) -> Report:
    return Report(job="convert:demo:demo.lineitem:x", table="demo.lineitem", status=status, snapshot_id=1)


@pytest.mark.spark
def test_figures_for_programs(tmp_path: Path) -> None:
    done = _run(*SMALL, "--dir", str(tmp_path / "demo"), "--format-version", "3", "--no-keep", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    moments = ("loaded", "streamed", "converted", "compacted")
    loaded, streamed, converted, compacted = (figures[name] for name in moments)
    assert figures["equal"]
    assert loaded["rows"] == 60_175  # as TPC-H has it
    assert loaded["q6_revenue"] == "1193053.2253"
    assert streamed["equality_delete_files"] == 32
    assert streamed["rows"] == figures["truth"]["rows"] == 60_175 - 2 * 60
    assert streamed["pyiceberg_rows"] is None
    assert converted["equality_delete_files"] == converted["position_delete_files"] == 0
    assert converted["deletion_vectors"] == figures["conversion"]["added_dvs"] > 0
    assert converted["checksum"] == streamed["checksum"] == figures["truth"]["checksum"] != loaded["checksum"]
    assert converted["q6_revenue"] == streamed["q6_revenue"] != loaded["q6_revenue"]
    assert converted["pyiceberg_rows"] == converted["rows"]
    assert converted["snapshot_id"] == figures["conversion"]["snapshot_id"]
    assert compacted["data_files"] == figures["compaction"]["added_data_files"] == 16
    assert compacted["deletion_vectors"] == 0
    assert (compacted["checksum"], compacted["q6_revenue"]) == (streamed["checksum"], streamed["q6_revenue"])
    assert compacted["snapshot_id"] == figures["compaction"]["snapshot_id"]
    again = (figures["conversion_again"], figures["compaction_again"])
    assert [report["status"] for report in again] == ["nothing_to_do"] * 2
    assert not (tmp_path / "demo").exists()


@pytest.mark.spark
def test_what_a_person_sees(tmp_path: Path) -> None:
    done = _run(*SMALL, "--dir", str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "32 equality delete files became" in done.stdout
    assert "96 data files became 16" in done.stdout
    assert "PyIceberg does not yet support equality deletes" in done.stdout
    assert "checksums are equal" in done.stdout

    # What it says to type next works as it stands.
    further, clean_up = done.stdout.split("Look further")[1].split("Clean up")
    icefleet = f"'{sys.executable}' -c 'from producer.cli.main import main; main()'"
    script = "\n".join(["set -e", f'icefleet() {{ {icefleet} "$@"; }}', further, clean_up])
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert shell.returncode == 0, shell.stderr
    assert "there are no equality deletes" in shell.stdout
    assert "committed" in shell.stdout
    assert not (tmp_path / "demo").exists()


def test_only_the_table_in_a_configured_catalog(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path, "lake")
    known = {
        "PYICEBERG_CATALOG__LAKE__TYPE": "sql",
        "PYICEBERG_CATALOG__LAKE__URI": catalog.properties["uri"],
        "PYICEBERG_CATALOG__LAKE__WAREHOUSE": catalog.properties["warehouse"],
        "ICEFLEET_BROKER_URL": "redis://localhost:1/0",  # a table can be made while no fleet is up
    }
    asked = (*SMALL, "--catalog", "lake", "--table-only")
    done = _run(*asked, **known)
    assert done.returncode == 0, done.stderr
    assert "icefleet plan demo.lineitem --catalog lake" in done.stdout
    assert FileCounts.of(StreamTable(catalog, "demo.lineitem")).equality_deletes == 32

    again = _run(*asked, "--json", **known)
    assert again.returncode == 2
    assert "exists already in catalog 'lake'" in json.loads(again.stdout)["reason"]

    _, *removal = shlex.split(done.stdout.split("Clean up")[1])
    subprocess.run([sys.executable, *removal], env={**os.environ, **known}, check=True, capture_output=True)
    assert not catalog.table_exists("demo.lineitem")


def test_an_earlier_demo_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    first = _invoke(*SMALL, "--dir", str(tmp_path), "--table-only", "--json")
    (tmp_path / "notes.txt").write_text("mine")
    second = _invoke(*SMALL, "--dir", str(tmp_path), "--table-only", "--json")
    assert first.exit_code == second.exit_code == 0, second.output
    output, second_output = json.loads(first.stdout), json.loads(second.stdout)
    assert output["truth"] == second_output["truth"]  # the same rows each time
    assert second_output["files"] == {"data": 96, "equality_deletes": 32, "position_deletes": 0, "vectors": 0}
    assert (tmp_path / "notes.txt").exists()

    (tmp_path / ".icefleet-demo").unlink()
    third = _invoke(*SMALL, "--dir", str(tmp_path), "--table-only")
    assert third.exit_code == 2
    assert "is not of an earlier demo" in third.stderr
    assert (tmp_path / "catalog.db").exists()


def test_the_stream_keeps_account_of_its_rows(tmp_path: Path) -> None:
    stream = Stream(DemoCatalog.private(tmp_path / "demo").make_table(2))
    for part in generate(0.01, 2):
        stream.load(part)
    for _ in range(3):
        batch = stream.change()
        assert (batch.updated, batch.deleted, batch.delete_files) == (240, 60, 16)
    rows = read_rows(stream.table.table).cast(schema_to_pyarrow(SCHEMA, include_field_ids=False))
    assert Checksum.of(rows) == stream.truth
    assert rows.group_by(KEY).aggregate([]).num_rows == rows.num_rows == 60_175 - 3 * 60


def test_a_reader_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    stream = Stream(DemoCatalog.private(tmp_path / "demo").make_table(2))
    assert read(stream.table.table, limit=0.01) is None


def test_rows_that_differ_fail_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    compactions = iter((_report(Status.COMMITTED), _report(Status.NOTHING_TO_DO)))

    def run(self: DemoCatalog, operation: Operation) -> Report:
        """Takes the equality deletes away instead of converting them, and resurrects what they deleted."""
        if operation is Operation.COMPACT:
            return next(compactions)
        table = StreamTable(self.catalog, "demo.lineitem")
        deletes = [file.path for file in table.delete_files()]
        done.append(table.remove_files(deletes) if deletes else None)
        return _report(Status.COMMITTED if deletes else Status.NOTHING_TO_DO)

    monkeypatch.setattr(DemoCatalog, "run", run)
    monkeypatch.setattr(demonstration, "find_java", lambda: None)
    result = _invoke(*SMALL, "--dir", str(tmp_path / "demo"))
    assert len(done) == 2
    assert result.exit_code == 1
    assert "The table is not right: iceberg-rust reads 60,655 rows" in " ".join(result.stdout.split())
    assert "checksums are equal" not in result.stdout


def test_a_conversion_that_does_not_commit_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = _report(Status.FAILED).model_copy(update={"reason": "the disk is full"})
    monkeypatch.setattr(DemoCatalog, "run", lambda self, operation: report)
    monkeypatch.setattr(demonstration, "find_java", lambda: None)
    result = _invoke(*SMALL, "--dir", str(tmp_path / "demo"), "--no-keep")
    assert result.exit_code == 1
    assert "The conversion is failed: the disk is full" in result.stderr
    assert not (tmp_path / "demo").exists()


_TRUTH = Checksum(10, 77)
_SEEN = TableState(1, FileCounts(1, 0, 0, 0), Reading(1.0, "5", 1.0, _TRUTH), 10)
_DONE = Maintenance(_report(Status.COMMITTED), _SEEN, _report(Status.NOTHING_TO_DO))
_OUTCOME = Outcome(_SEEN, _SEEN, _DONE, _DONE, _TRUTH)


def _outcome(**changes: Any) -> Outcome:
    """A right one, with some states changed."""
    return dataclasses.replace(_OUTCOME, **changes)


def _state(**changes: Any) -> TableState:
    return dataclasses.replace(_SEEN, **changes)


def _done(**changes: Any) -> Maintenance:
    """One that is right, with its state or its second report changed."""
    return dataclasses.replace(_DONE, **changes)


def test_an_outcome_is_right_only_if_everything_is() -> None:
    assert _outcome().difference is None
    assert _outcome(streamed=_state(reading=None)).difference is None
    other = Reading(1.0, "5", 1.0, Checksum(10, 78))
    wrong = {
        "before": _outcome(streamed=_state(reading=other)),
        "after the conversion, where the stream left": _outcome(conversion=_done(state=_state(reading=other))),
        "after the compaction, where the stream left": _outcome(compaction=_done(state=_state(reading=other))),
        "query 6": _outcome(compaction=_done(state=_state(reading=Reading(1.0, "6", 1.0, Checksum(10, 77))))),
        "--read-limit": _outcome(conversion=_done(state=_state(reading=None))),
        "PyIceberg": _outcome(conversion=_done(state=_state(pyiceberg=11))),
        "second conversion": _outcome(conversion=_done(again=_report(Status.COMMITTED))),
        "second compaction": _outcome(compaction=_done(again=_report(Status.COMMITTED))),
    }
    for words, outcome in wrong.items():
        assert words in (outcome.difference or "")
        assert not outcome.figures()["equal"]


def test_a_reader_that_was_stopped_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Page().print_outcome(_outcome(streamed=_state(reading=None)))
    shown = capsys.readouterr().out
    assert "stopped" in shown
    assert "times faster" not in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--table-only", "--no-keep"), "leave nothing"),
        (("--catalog", "nowhere", "--table-only"), "nowhere"),
        (("--scale", "0"), "--scale"),
        (("--batches", "0"), "--batches"),
        (("--format-version", "1"), "--format-version"),
    ],
)
def test_refusals(arguments: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    result = _invoke("--dir", str(tmp_path / "demo"), *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert not (tmp_path / "demo").exists()


def test_without_java_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_java() -> Path:
        raise NoJava("Spark needs Java")

    monkeypatch.setattr(demonstration, "find_java", find_java)
    result = _invoke("--dir", str(tmp_path / "demo"))
    assert result.exit_code == 2
    assert "Spark needs Java" in result.stderr
    assert not (tmp_path / "demo").exists()


def test_a_fleet_must_be_able_to_find_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFLEET_BROKER_URL", "redis://localhost:1/0")
    result = _invoke("--dir", str(tmp_path / "demo"))
    assert result.exit_code == 2
    assert "--catalog" in result.stderr


def test_only_the_table_needs_no_reader_and_no_spark(tmp_path: Path) -> None:
    """Its rows are those of a demonstration that reads them."""
    absent = "sys.modules.update(dict.fromkeys(('datafusion', 'pyiceberg_core', 'pyspark', 'py4j')))"
    code = f"import sys; {absent}; from producer.cli.main import main; main()"
    asked = (*SMALL, "--dir", str(tmp_path / "bare"), "--table-only", "--json")
    done = subprocess.run([sys.executable, "-c", code, "demo", *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["truth"] == {"rows": 60_175 - 2 * 60}
    table = StreamTable(local_catalog(tmp_path / "bare", "demo"), "demo.lineitem").table
    stream = Stream(DemoCatalog.private(tmp_path / "full").make_table(2))
    for part in generate(0.01, 4):
        stream.load(part)
    for _ in range(2):
        stream.change()
    rows = read_rows(table).cast(schema_to_pyarrow(SCHEMA, include_field_ids=False))
    assert Checksum.of(rows) == stream.truth


@pytest.mark.parametrize("package", ["datafusion", "pyiceberg_core", "sqlalchemy"])
def test_what_is_missing_is_named(package: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from producer.cli.main import main; main()"
    command = [sys.executable, "-c", code, "demo", "--dir", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{package}: install icefleet[demo]" in done.stderr.replace("\n", " ")
    assert not (tmp_path / "demo").exists()


def test_without_the_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.demo.lineitem.GENERATOR", "no-such-program")
    result = _invoke("--dir", str(tmp_path / "demo"))
    assert result.exit_code == 2
    assert "install icefleet[demo]" in result.stderr
