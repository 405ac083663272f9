"""The command line: what it prints, where, and what it exits with."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
import redis
from click.testing import CliRunner, Result
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from rich.console import Console

from producer.broker.leases import Holder
from producer.cli import compact, config, render
from producer.cli.jobs import JobLine, show_jobs, show_progress
from producer.cli.main import main
from producer.common.errors import Reason, Refused
from producer.common.settings import PREFIX, Settings
from producer.fleet import Fleet
from producer.job import Job, Progress, ProgressCallback
from producer.model.job import Operation, Report, Request, Status, StorageRequests
from producer.model.plan import Plan, UnitHeader
from producer.planning.compact.options import OPTION_FIELDS
from producer.state.records import Records
from tasks.local import LocalEngine
from tasks.testing import StreamTable
from tests.support.faulty import FaultyCatalog, Jobs, lose
from tests.support.livefiles import spec
from tests.support.repository import REPOSITORY

COMMANDS = [
    "beat",
    "cancel",
    "check",
    "compact",
    "config",
    "convert",
    "demo",
    "flower",
    "jobs",
    "plan",
    "resume",
    "status",
]
COMMANDS += ["watch", "worker"]
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
ENDED = "convert:default:db.t:20240501T101500-1a2b3c4d"

Run = Callable[..., Result]


def rows(*ids: int, p: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([p] * len(ids))})


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of whoever runs the tests, and a log that is left alone."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FaultyCatalog]:
    catalog = FaultyCatalog(tmp_path / "lake")
    yield catalog
    catalog.close()


@pytest.fixture
def jobs(catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Runs jobs with the plain engine, in the place of the local one."""
    jobs = Jobs(catalog, monkeypatch)

    class Engine:
        def __init__(self, settings: Settings) -> None:
            self.settings = settings

        def run(self, request: Request, on_progress: ProgressCallback | None = None) -> Report:
            if on_progress is not None:
                on_progress(0, 1, "p=a: 0/1 files")
            return jobs.run(request)

    for module in ("fleet", "job"):
        monkeypatch.setattr(f"producer.{module}.local_engine", Engine)
    monkeypatch.setattr(
        "producer.iceberg.catalog.load_catalog", lambda name: catalog if name == "default" else load_catalog(name)
    )
    return jobs


@pytest.fixture
def stream(catalog: FaultyCatalog, jobs: Jobs) -> StreamTable:
    """Table db.t, partitioned by p, with an equality delete in each of two partitions."""
    stream = StreamTable.create(catalog, "db.t", SCHEMA, spec=spec(0, (2, IdentityTransform(), "p")))
    stream.append(pa.concat_tables([rows(1, 2), rows(1, 2, p="b")]))
    stream.delete_where_equal(pa.concat_tables([rows(1), rows(1, p="b")]), ["id"])
    return stream


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``icefleet`` with some arguments."""

    def invoke(*arguments: str, **environment: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["icefleet", *arguments])
        result = CliRunner().invoke(main, arguments, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def only_json(result: Result) -> Any:
    """The one object on standard output."""
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


class TestHelp:
    """Every command tells how it is used, with an example."""

    def test_all_commands_are_listed(self, run: Run) -> None:
        context = click.Context(main)
        assert main.list_commands(context) == COMMANDS
        result = run("--help")
        assert result.exit_code == 0
        assert all(f"\n  {name}" in result.stdout for name in COMMANDS)

    @pytest.mark.parametrize("name", COMMANDS)
    @pytest.mark.parametrize("option", ["--help", "-h"])
    def test_each_shows_an_example(self, run: Run, name: str, option: str) -> None:
        result = run(name, option)
        assert result.exit_code == 0
        assert "Example" in result.stdout
        assert f"icefleet {name}" in result.stdout.split("Example", 1)[1]

    def test_no_line_is_cut_off(self, run: Run) -> None:
        shown = run("--help", COLUMNS="60").stdout
        assert not re.search(r"\.\.\.$", shown.partition("Commands:")[2], re.MULTILINE)
        assert "reading it at" in shown

    def test_options_are_described(self) -> None:
        context = click.Context(main)
        for name in COMMANDS:
            command = main.get_command(context, name)
            assert command is not None
            options = [option for option in command.params if isinstance(option, click.Option)]
            assert all(option.help for option in options), name

    def test_exit_statuses_are_in_the_help(self, run: Run) -> None:
        assert (
            "Exit status: 0 committed or nothing to do, 1 failed, 2 refused, 3 partial."
            in run("convert", "--help").stdout
        )

    def test_version(self, run: Run) -> None:
        assert run("--version").stdout.startswith("icefleet, version ")

    def test_a_command_whose_package_is_missing_says_so(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        [entry] = entry_points(group="icefleet.commands", name="worker")
        error = ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

        class Broken:
            name = "worker"

            def load(self) -> Any:
                raise error

        monkeypatch.setattr("producer.cli.main.entry_points", lambda **_: [Broken()])
        result = run("worker", "--concurrency", "2")
        assert entry.name == "worker"
        assert result.exit_code == 2
        assert "worker needs pyspark, which is not installed here: install icefleet[worker]." in result.stderr

    def test_as_a_program(self) -> None:
        """What is installed as ``icefleet`` starts, and says in JSON what is wrong when that is asked for."""
        program = "import sys; from icefleet_main import main; sys.argv[0] = 'icefleet'; main()"
        result = subprocess.run(
            [sys.executable, "-c", program, "status", "x", "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=REPOSITORY,
        )
        assert result.returncode == 2
        output = json.loads(result.stdout)
        assert output["status"] == "refused"
        assert output["reason"] == "'x' is not a job id: `icefleet jobs` lists them."
        assert result.stderr == ""


class TestUsage:
    """What is wrong at the start is refused with status 2, and nothing happens."""

    ARGUMENTS = pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["convert"], "Missing argument 'TABLE'."),
            (["convert", "db.t", "more"], "unexpected extra argument"),
            (["convert", "db.t", "--colour"], "No such option"),
            (["convert", "db.t", "--where"], "Option '--where' requires an argument."),
            (["nonsense"], "No such command 'nonsense'."),
            (["jobs", "--limit", "0"], "Invalid value for '--limit'"),
            (["jobs", "--status", "finished"], "Invalid value for '--status'"),
            (["status"], "Missing argument 'JOB'."),
            (["--colour", "status", ENDED], "No such option"),
            (["demo", "--scale", "x"], "Invalid value for '--scale'"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )

    @ARGUMENTS
    def test_arguments(self, run: Run, arguments: list[str], says: str) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert "Error: " in result.stderr
        assert says in result.stderr

    @ARGUMENTS
    def test_arguments_for_programs(self, run: Run, arguments: list[str], says: str) -> None:
        result = run(arguments[0], "--json", *arguments[1:])
        assert (result.exit_code, result.stderr) == (2, "")
        output = only_json(result)
        assert output.keys() == Report.model_fields.keys() - {"storage"}
        assert output["status"] == "refused"
        assert says in output["reason"]

    def test_an_option_before_its_command(self, run: Run, stream: StreamTable) -> None:
        result = run("--json", "convert", "db.t")
        assert (result.exit_code, result.stderr) == (2, "")
        assert "No such option" in only_json(result)["reason"]

    REFUSED = pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["t"], "'t' is not a table name: give namespace.table."),
            (["db.nope"], "There is no table 'db.nope' in catalog 'default'."),
            (["nope.t"], "There is no table 'nope.t' in catalog 'default'."),
            (["db.t", "--catalog", "nope"], "There is no usable catalog 'nope': configure it in .pyiceberg.yaml"),
            (["db.t", "--branch", "nope"], "There is no branch 'nope'; the table has main."),
            (["db.t", "--where", "p = "], "--where 'p = ' cannot be understood"),
            (["db.t", "--where", "id = 1"], "id does not partition the table; it is partitioned by p."),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )

    @REFUSED
    @pytest.mark.parametrize("command", ["convert", "plan", "compact"])
    def test_requests(self, run: Run, stream: StreamTable, command: str, arguments: list[str], says: str) -> None:
        before = stream.table.metadata_location
        result = run(command, *arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith("Refused: ")
        assert says in result.stderr
        assert result.stderr.count("\n") == 1
        assert stream.table.metadata_location == before

    @REFUSED
    @pytest.mark.parametrize("command", ["convert", "plan", "compact"])
    def test_requests_for_programs(
        self, run: Run, stream: StreamTable, command: str, arguments: list[str], says: str
    ) -> None:
        result = run(command, *arguments, "--json")
        assert result.exit_code == 2
        assert result.stderr == ""
        output = only_json(result)
        assert output.keys() == Report.model_fields.keys() - {"storage"}
        assert output["status"] == "refused"
        assert says in output["reason"]

    @pytest.mark.parametrize("command", [["config"], ["convert", "db.t"], ["jobs"], ["status", ENDED]], ids=" ".join)
    def test_settings(self, run: Run, jobs: Jobs, command: list[str]) -> None:
        result = run(*command, ICEFLEET_UNIT_MB="0")
        assert result.exit_code == 2
        assert "ICEFLEET_UNIT_MB='0': must be whole MB (1 to 1000000), such as 256" in result.stderr

    @pytest.mark.parametrize(
        ("url", "says"),
        [
            ("localhost:6379", "has no scheme: write redis://localhost:6379 (Celery broker"),
            ("localhost", "has no scheme: write redis://localhost:6379/0"),
            ("redis://localhost:six/0", "has no valid port: write one such as redis://localhost:6379/0"),
            ("redis://localhost/many", "ends with 'many', which is not the number of a database"),
            ("redis://:se#cret-horse@localhost:6379/0", "special characters in a password must be percent-encoded"),
        ],
    )
    def test_an_address_that_is_none(self, run: Run, stream: StreamTable, url: str, says: str) -> None:
        for command in (["convert", "db.t"], ["jobs"], ["config"]):
            result = run(*command, ICEFLEET_BROKER_URL=url)
            assert (result.exit_code, result.stdout) == (2, "")
            assert says in result.stderr
            assert "cret-horse" not in result.stderr

    def test_a_board_that_is_no_redis(self, run: Run) -> None:
        result = run("jobs", ICEFLEET_BOARD_URL="amqp://localhost")
        assert result.exit_code == 2
        assert "ICEFLEET_BOARD_URL='amqp://localhost': is not the address of a Redis" in result.stderr

    def test_variables_that_are_no_settings_are_named(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / ".env").write_text("ICEFLEET_UNITS_MB=3\nREDIS_PASSWORD=x\n")
        result = run("config", "--json", ICEFLEET_BROKER="redis://localhost", ICEFLEET_XYZZY="1")
        assert result.stderr.splitlines() == [
            "Warning: ICEFLEET_BROKER is set and is no setting of Icefleet: did you mean ICEFLEET_BROKER_URL?",
            "Warning: ICEFLEET_UNITS_MB is set and is no setting of Icefleet: did you mean ICEFLEET_UNIT_MB?",
            "Warning: ICEFLEET_XYZZY is set and is no setting of Icefleet: `icefleet config` lists them.",
        ]
        found = {row["setting"]: (row["from"], row["description"]) for row in only_json(result)}
        assert found["ICEFLEET_BROKER"] == ("environment", "no setting: did you mean ICEFLEET_BROKER_URL?")
        assert found["ICEFLEET_UNITS_MB"] == (".env", "no setting: did you mean ICEFLEET_UNIT_MB?")
        assert found["ICEFLEET_XYZZY"] == ("environment", "no setting")

    @pytest.mark.parametrize("command", [["plan"], ["convert"], ["compact", "--dry-run"], ["jobs"]], ids=" ".join)
    def test_the_table_that_may_be_meant(
        self, run: Run, catalog: FaultyCatalog, jobs: Jobs, command: list[str]
    ) -> None:
        for name in ("shop.orders", "shop.customers", "other.events"):
            StreamTable.create(catalog, name, SCHEMA)
        for given, meant in (("shop.order", "shop.orders"), ("shops.orders", "shop.orders"), ("shop.events", None)):
            result = run(command[0], given, *command[1:])
            assert result.exit_code == 2
            said = f"There is no table {given!r} in catalog 'default'"
            assert result.stderr == f"Refused: {said}" + (f": did you mean {meant!r}?\n" if meant else ".\n")

    def test_a_broker_that_does_not_answer(self, run: Run, stream: StreamTable) -> None:
        result = run("convert", "db.t", ICEFLEET_BROKER_URL="redis://me:secret@127.0.0.1:1/0")
        assert result.exit_code == 2
        assert "The broker at redis://***@127.0.0.1:1/0 does not answer" in result.stderr
        assert "secret" not in result.output

    @pytest.mark.parametrize("command", ["status", "watch", "cancel", "resume"])
    @pytest.mark.parametrize("job", ["nonsense", ENDED], ids=["no id", "unknown"])
    def test_jobs(self, run: Run, stream: StreamTable, command: str, job: str) -> None:
        result = run(command, job)
        assert result.exit_code == 2
        assert result.stderr.startswith("Refused: ")
        assert job in result.stderr


class TestWaiting:
    """A command that ends before the job does never calls it failed: it says that the job goes on."""

    LOST = redis.exceptions.ConnectionError("Connection refused")
    CASES = pytest.mark.parametrize(
        ("error", "title", "says"),
        [
            (LOST, "Unknown", "The broker at redis://***@127.0.0.1:1/0 does not answer: "),
            (ConnectionError("the catalog is away"), "Unknown", "the catalog is away (ConnectionError). "),
            (Refused(Reason.NO_ANSWER, "Catalog 'c' does not answer: no"), "Unknown", "does not answer: no. "),
            (KeyboardInterrupt(), "Interrupted", ""),
        ],
        ids=["Redis", "catalog", "no answer", "interrupt"],
    )
    COMMANDS = pytest.mark.parametrize("command", [["convert", "db.t"], ["compact", "db.t"], ["watch"], ["resume"]])
    URL = "redis://me:secret@127.0.0.1:1/0"

    @pytest.fixture(autouse=True)
    def fleet(self, stream: StreamTable, monkeypatch: pytest.MonkeyPatch) -> None:
        """A Redis that answers while the command starts."""
        monkeypatch.setattr("producer.broker.registry.JobRegistry.check", lambda _: None)
        monkeypatch.setattr(Fleet, "submit", lambda self, request, **_: self.job(request.job))
        monkeypatch.setattr(Job, "resume", lambda self: self)

    def invoke(self, run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, command: list[str]) -> Result:
        def wait(*_: object, **__: object) -> Report:
            raise error

        monkeypatch.setattr(Job, "wait", wait)
        job = [] if "db.t" in command else [ENDED]
        return run(*command[:1], *job, *command[1:], ICEFLEET_BROKER_URL=self.URL)

    @CASES
    @COMMANDS
    def test_for_people(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, title: str, says: str, command: list[str]
    ) -> None:
        result = self.invoke(run, monkeypatch, error, command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"{title}: ")
        assert says in result.stderr
        told = re.search(
            r"(\S+:db\.t:\S+) goes on: `icefleet status (\S+)` shows it, `icefleet cancel (\S+)`", result.stderr
        )
        assert told is not None
        assert len(set(told.groups())) == 1
        assert "secret" not in result.output

    @CASES
    @COMMANDS
    def test_for_programs(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, title: str, says: str, command: list[str]
    ) -> None:
        result = self.invoke(run, monkeypatch, error, [*command, "--json"])
        assert (result.exit_code, result.stderr) == (1, "")
        output = only_json(result)
        assert output["job"].split(":")[:3] == [output["operation"], output["catalog"], output["table"]]
        assert (output["table"], output["status"]) == ("db.t", "unknown")
        assert says in output["reason"]

    def test_a_job_that_may_have_been_sent(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def submit(*_: object, **__: object) -> Job:
            raise self.LOST

        monkeypatch.setattr(Fleet, "submit", submit)
        output = only_json(run("convert", "db.t", "--json", ICEFLEET_BROKER_URL=self.URL))
        assert output["status"] == "unknown"
        assert f"{output['job']} may have been sent: `icefleet status" in output["reason"]

    def test_a_job_that_is_unknown_is_refused(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        error = Refused(Reason.UNKNOWN_JOB, "Nothing is known of it.")
        result = self.invoke(run, monkeypatch, error, ["watch"])
        assert (result.exit_code, result.stderr) == (2, "Refused: Nothing is known of it.\n")


class TestTables:
    """What is no terminal is never wrapped, and in a narrow terminal ids stay whole."""

    LONG = "convert:default:lake.warehouse.events_of_all_customers:20240501T101500-1a2b3c4d"

    @pytest.fixture
    def line(self) -> JobLine:
        return JobLine(
            job=self.LONG,
            table="lake.warehouse.events_of_all_customers",
            catalog="default",
            operation="convert",
            status="partial",
            done=1,
            units=1200,
            started=1714558500.0,
            seconds=3727.4,
            reason="1 of 1,200 units failed; the first: day=2024-05-01: the file s3://lake/[x].parquet is missing",
        )

    @pytest.mark.parametrize("columns", ["20", "80"])
    def test_pipes(
        self, line: JobLine, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", columns)
        show_jobs([line])
        _, _, row = (text for text in capsys.readouterr().out.splitlines() if text.strip())
        assert row.split()[0] == self.LONG
        assert "default" in row
        assert " 1/1,200 " in row
        assert " 2024-05-01T10:15:00Z " in row
        assert " 1:02:07 " in row
        assert row.rstrip().endswith(line.reason or "-")

    @pytest.mark.parametrize("width", [20, 60, 80, 120, 300])
    def test_terminals(self, line: JobLine, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = io.StringIO()
        terminal = Console(file=seen, force_terminal=True, no_color=True, width=width, soft_wrap=True, highlight=False)
        monkeypatch.setattr(render, "out", terminal)
        show_jobs([line])
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", text) for text in seen.getvalue().splitlines()]
        assert any(self.LONG in text.split() for text in lines), "the id is in one piece, with space around it"
        assert "partial" in seen.getvalue()
        assert "[x].parquet" in seen.getvalue().replace("\n", "")
        if width >= 300:
            assert len([text for text in lines if text.strip()]) == 3, "and a row is a line where there is room"

    @pytest.mark.parametrize("width", [20, 45, 60, 80, 90, 120, 300])
    def test_numbers_and_words_stay_whole(self, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = io.StringIO()
        terminal = Console(file=seen, force_terminal=True, no_color=True, width=width, soft_wrap=True, highlight=False)
        monkeypatch.setattr(render, "out", terminal)
        unit = UnitHeader(
            number=7,
            label="day=2024-05-01/region=eu",
            files=1_200,
            delete_files=12,
            rows=12_345_678,
            delete_rows=0,
            cost=3 << 30,
            output=2 << 30,
            why="1,199 small files, 1 file with many deletes",
        )
        plan = Plan(
            request=Request.new("db.t", operation=Operation.COMPACT),
            round=0,
            table_uuid="",
            location="",
            format_version=2,
            snapshot_id=1,
            sequence_number=1,
            units=(unit,),
        )
        render.show_plan(plan, compact._COLUMNS, [])
        config._show_settings([("ICEFLEET_BROKER_URL", "redis://localhost:6379/0", "environment", "Celery broker")])
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", text) for text in seen.getvalue().splitlines()]
        for whole in ("7", "1,200", "12,345,678", "3.0 GB", "2.0 GB", "small", "deletes", "environment"):
            assert any(re.search(rf"(^|\s){whole}(\s|$|,)", line) for line in lines), whole
        if width >= 40:
            assert max(map(len, lines)) <= width, "nothing is left to the terminal to break"
            assert len(lines) < 25
        assert ("unit 7" in lines) == (width < 120), "one below the other only if there is no room"

    def test_settings_in_a_pipe(self, run: Run) -> None:
        url = f"redis://{'very-' * 30}long.example.internal:6379/0"
        shown = run("config", COLUMNS="40", ICEFLEET_BROKER_URL=url).stdout
        [row] = [row for row in shown.splitlines() if url in row]
        assert "ICEFLEET_BROKER_URL" in row
        assert row.rstrip().endswith("empty: work in this process")

    def test_units_in_a_pipe(self, run: Run, stream: StreamTable) -> None:
        shown = run("compact", "db.t", "--rewrite-all", "--dry-run", COLUMNS="30").stdout
        [row] = [row for row in shown.splitlines() if "small files" in row]
        assert "p=a +1 more" in row


class TestConvert:
    """Exit statuses, and one JSON object."""

    def test_committed(self, run: Run, stream: StreamTable) -> None:
        result = run("convert", "db.t")
        assert result.exit_code == 0
        assert result.stderr == ""
        assert "db.t: committed" in result.stdout
        assert "2 equality delete files became 2 position delete files with 2 positions" in result.stdout

    def test_committed_for_programs(self, run: Run, stream: StreamTable) -> None:
        result = run("convert", "db.t", "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        output = only_json(result)
        assert output["seconds"] > 0
        assert output["job"].startswith("convert:default:db.t:")
        expected = {
            "table": "db.t",
            "operation": "convert",
            "status": "committed",
            "snapshot_id": stream.table.metadata.current_snapshot_id,
            "units": 1,
            "failed_units": 0,
            "removed_equality_delete_files": 2,
            "added_position_delete_files": 2,
            "added_dvs": 0,
            "added_position_deletes": 2,
        }
        assert expected.items() <= output.items()

    @pytest.mark.parametrize(
        ("dvs", "files", "says"),
        [
            (1, 0, "1 equality delete file became 1 deletion vector with 1 position; snapshot 7"),
            (0, 2, "1 equality delete file became 2 position delete files with 1 position; snapshot 7"),
            (0, 0, "1 equality delete file removed, no vectors or position deletes needed: no row is left that they"),
        ],
    )
    def test_one_is_not_many(self, dvs: int, files: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
        positions = 1 if dvs or files else 0
        counts = {"added_dvs": dvs, "added_position_delete_files": files, "added_position_deletes": positions}
        render.show_report(
            Report(
                job=ENDED,
                table="db.t",
                status=Status.COMMITTED,
                snapshot_id=7,
                units=1,
                removed_equality_delete_files=1,
                **counts,
            )
        )
        shown = capsys.readouterr().out
        assert says in shown
        assert "  1 unit, job " in shown

    def test_a_busy_storage(self, capsys: pytest.CaptureFixture[str]) -> None:
        storage = StorageRequests.of({"GET": 412, "repeated": 37})
        report = Report(job=ENDED, table="db.t", status=Status.COMMITTED, snapshot_id=7, units=1, storage=storage)
        render.show_report(report)
        assert "\n  the storage was busy: 37 of 412 requests were repeated\n" in capsys.readouterr().out

    def test_deletes_of_no_rows_in_version_3(self, run: Run, catalog: FaultyCatalog, jobs: Jobs) -> None:
        stream = StreamTable.create(catalog, "db.v3", SCHEMA, format_version=3)
        stream.append(rows(1, 2, 4))
        stream.delete_where_equal(rows(3), ["id"])
        shown = run("convert", "db.v3").stdout
        assert "1 equality delete file removed, no vectors or position deletes needed" in shown
        assert "0 position delete files" not in shown

    def test_nothing_to_do(self, run: Run, stream: StreamTable) -> None:
        run("convert", "db.t")
        result = run("convert", "db.t")
        assert (result.exit_code, result.stdout) == (0, "Nothing to do in db.t: there are no equality deletes.\n")
        result = run("convert", "db.t", "--json")
        assert result.exit_code == 0
        assert only_json(result)["status"] == "nothing_to_do"

    def test_failed(self, run: Run, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 1})
        catalog.faults.extend([lose] * 2)
        result = run("convert", "db.t")
        assert result.exit_code == 1
        assert "db.t: failed — Other writers were faster 1 time: nothing was committed" in result.stdout
        result = run("convert", "db.t", "--json")
        assert result.exit_code == 1
        assert (only_json(result)["status"], only_json(result)["snapshot_id"]) == ("failed", None)

    def test_partial(self, run: Run, stream: StreamTable, jobs: Jobs) -> None:
        jobs.settings = jobs.settings.model_copy(update={"unit_mb": 0, "max_attempts": 1})
        jobs.broken = {1}
        result = run("convert", "db.t", "--json")
        assert result.exit_code == 3
        output = only_json(result)
        assert (output["status"], output["units"], output["failed_units"]) == ("partial", 2, 1)
        assert output["failures"] == [
            {"unit": 1, "partition": "p=b", "reason": "OSError: unit 1 does not want to"},
        ]

    def test_partial_for_people(self, run: Run, stream: StreamTable, jobs: Jobs) -> None:
        jobs.settings = jobs.settings.model_copy(update={"unit_mb": 0, "max_attempts": 1})
        jobs.broken = {1}
        result = run("convert", "db.t")
        assert result.exit_code == 3
        assert "db.t: partial — 1 of 2 units failed; the first: p=b: OSError: unit 1 does not want to" in result.stdout

    def test_all_or_nothing(self, run: Run, stream: StreamTable, jobs: Jobs) -> None:
        jobs.settings = jobs.settings.model_copy(update={"unit_mb": 0, "max_attempts": 1})
        jobs.broken = {1}
        before = stream.table.metadata_location
        assert run("convert", "db.t", "--all-or-nothing").exit_code == 1
        assert stream.table.metadata_location == before

    def test_some_partitions_of_a_branch(self, run: Run, stream: StreamTable) -> None:
        stream.append(rows(5), branch="audit")
        result = run("convert", "db.t", "--branch", "audit", "--where", "p = 'b'", "--json")
        assert only_json(result)["removed_equality_delete_files"] == 1
        assert len(stream.delete_files()) == 2
        assert len(stream.delete_files("audit")) == 2

    def test_a_manifest_that_cannot_be_read_fails(self, run: Run, stream: StreamTable) -> None:
        manifest = stream.delete_files()[0].manifest.manifest_path
        Path(manifest.removeprefix("file://")).unlink()
        result = run("convert", "db.t", "--json")
        assert result.exit_code == 1
        assert only_json(result)["reason"] == f"The manifest {manifest} is missing."
        result = run("plan", "db.t")
        assert result.exit_code == 1
        assert result.stderr == f"Corrupt: The manifest {manifest} is missing.\n"

    def test_a_catalog_that_goes_away_is_a_sentence_too(
        self, run: Run, stream: StreamTable, catalog: FaultyCatalog
    ) -> None:
        catalog.unreachable = 3
        result = run("convert", "db.t")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "Failed: the catalog is away (ConnectionError); icefleet -v shows the stack\n"
        assert only_json(run("plan", "db.t", "--json"))["status"] == "failed"
        output = run("-v", "plan", "db.t")
        assert output.exit_code == 1
        assert "Traceback" in output.stderr
        assert "ConnectionError: the catalog is away" in output.stderr

    def test_an_interrupted_job_is_cancelled(
        self, run: Run, stream: StreamTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("producer.fleet.local_engine", LocalEngine)
        monkeypatch.setattr("tasks.operations.convert.execute.convert", interrupt)
        result = run("convert", "db.t", "--json")
        assert result.exit_code == 1
        assert only_json(result)["status"] == "cancelled"

    def test_an_interrupted_commit_is_resumed(self, run: Run, stream: StreamTable, catalog: FaultyCatalog) -> None:
        def interrupt(commit: object) -> CommitTableResponse:
            raise KeyboardInterrupt

        catalog.faults.append(interrupt)
        result = run("convert", "db.t", "--json")
        assert (result.exit_code, result.stderr) == (1, "")
        output = only_json(result)
        assert (output["table"], output["status"]) == ("db.t", "unknown")
        assert output["reason"].startswith(f"`icefleet resume {output['job']}` finishes what was begun")
        assert only_json(run("resume", output["job"], "--json"))["status"] == "committed"

    @pytest.mark.parametrize(
        ("error", "says"),
        [
            (OSError(errno.ENOSPC, "No space left"), "No space left (OSError): this disk is full: free some space. "),
            (Refused(Reason.NO_ANSWER, "Catalog 'default' does not answer: 503"), "does not answer: 503. "),
        ],
        ids=["full", "no answer"],
    )
    def test_a_job_that_storage_or_catalog_stops_is_resumed(
        self, run: Run, stream: StreamTable, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
    ) -> None:
        def fail(*_: object) -> Report:
            raise error

        with monkeypatch.context() as failing:
            failing.setattr(jobs, "end", fail)
            result = run("convert", "db.t")
            assert (result.exit_code, result.stdout) == (1, "")
            told = re.search(r"`icefleet resume (convert:default:db\.t:\S+)` finishes what was begun", result.stderr)
            assert told is not None
            assert says in result.stderr
            output = only_json(run("resume", told[1], "--json"))
            assert (output["job"], output["status"]) == (told[1], "unknown")
        assert only_json(run("resume", told[1], "--json"))["status"] == "committed"

    def test_nested_namespaces(self, run: Run, catalog: FaultyCatalog, jobs: Jobs) -> None:
        stream = StreamTable.create(catalog, "lake.db.t", SCHEMA)
        stream.append(rows(1, 2))
        stream.delete_where_equal(rows(1), ["id"])
        assert only_json(run("convert", "lake.db.t", "--json"))["table"] == "lake.db.t"
        assert run("convert", "lake.db.t").stdout.startswith("Nothing to do in lake.db.t")


class TestPlan:
    """A dry run: units, files, rows, bytes, or the reason when there is nothing to do."""

    def test_for_people(self, run: Run, stream: StreamTable) -> None:
        result = run("plan", "db.t")
        assert (result.exit_code, result.stderr) == (0, "")
        assert "p=a +1 more" in result.stdout
        assert "2 equality delete files become position delete files: 1 unit, 2 data files," in result.stdout

    def test_for_programs(self, run: Run, stream: StreamTable) -> None:
        output = only_json(run("plan", "db.t", "--where", "p = 'b'", "--json"))
        [unit] = output["units"]
        assert (unit["label"], unit["files"], unit["rows"], unit["delete_files"]) == ("p=b", 1, 2, 1)
        assert output["request"]["where"] == "p = 'b'"
        assert "job" not in output["request"]
        assert output["nothing"] is None

    def test_what_programs_get_is_documented(self, run: Run, stream: StreamTable) -> None:
        text = (REPOSITORY / "docs" / "commands.md").read_text()
        section = text.partition("\n## JSON")[2].partition("\n## ")[0]
        converted = only_json(run("plan", "db.t", "--json"))
        compacted = only_json(run("compact", "db.t", "--rewrite-all", "--dry-run", "--json"))
        assert converted.keys() == compacted.keys()
        [unit], [retirement, *_] = compacted["units"], converted["retirements"]
        fields = {*converted, *unit, *retirement, *compacted["rewrite"], *only_json(run("config", "--json"))[0]}
        assert {name for name in fields if f"`{name}`" not in section} == set()

    def test_nothing_is_written(self, run: Run, stream: StreamTable) -> None:
        folder = Path(stream.table.location().removeprefix("file://"))
        before = set(folder.rglob("*"))
        run("plan", "db.t")
        assert set(folder.rglob("*")) == before

    def test_the_reason_when_there_is_nothing_to_do(self, run: Run, stream: StreamTable) -> None:
        stream.remove_files([file.path for file in stream.delete_files()])
        assert run("plan", "db.t").stdout == "Nothing to do: there are no equality deletes.\n"
        assert only_json(run("plan", "db.t", "--json"))["nothing"] == "there are no equality deletes"


class TestCompact:
    """Options become a request, and a dry run explains what it would come to."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
        """The requests that came to the engine."""
        found: list[Request] = []

        class Engine:
            def __init__(self, settings: Settings) -> None: ...

            def run(self, request: Request, on_progress: ProgressCallback | None = None) -> Report:
                found.append(request)
                return Report(
                    job=request.job,
                    table=request.table,
                    operation=request.operation,
                    status=Status.COMMITTED,
                    snapshot_id=7,
                    rewritten_data_files=12,
                    added_data_files=1,
                    removed_delete_files=3,
                    removed_bytes=2_000_000,
                    added_bytes=1_500_000,
                )

        monkeypatch.setattr("producer.fleet.local_engine", Engine)
        return found

    @pytest.fixture
    def small(self, stream: StreamTable) -> StreamTable:
        """Six small files in one partition, one in another, and deletes of both."""
        for number in range(5):
            stream.append(rows(10 + number))
        return stream

    def test_committed(self, run: Run, stream: StreamTable, asked: list[Request]) -> None:
        result = run("compact", "db.t")
        assert (result.exit_code, result.stderr) == (0, "")
        assert "db.t: committed" in result.stdout
        assert "12 data files became 1, 1.9 MB became 1.4 MB, 3 delete files removed; snapshot 7" in result.stdout
        [request] = asked
        assert request.job.startswith("compact:default:db.t:")
        assert (request.operation, request.options) == ("compact", {})

    def test_committed_for_programs(self, run: Run, stream: StreamTable, asked: list[Request]) -> None:
        output = only_json(run("compact", "db.t", "--json"))
        figures = (output["operation"], output["rewritten_data_files"], output["added_bytes"])
        assert figures == ("compact", 12, 1_500_000)

    def test_every_option_has_a_flag(self, run: Run, stream: StreamTable, asked: list[Request]) -> None:
        given = {
            "tier": "minor",
            "strategy": "sort",
            "sort-order": "id desc",
            "target-file-size-bytes": "100000",
            "min-file-size-bytes": "70000",
            "max-file-size-bytes": "200000",
            "min-input-files": "2",
            "max-file-group-size-bytes": "1000000",
            "max-files-to-rewrite": "9",
            "delete-file-threshold": "3",
            "delete-ratio-threshold": "0.5",
            "rewrite-job-order": "files-desc",
            "output-spec-id": "0",
        }
        flags = [part for name, value in given.items() for part in (f"--{name}", value)]
        flags += ["--rewrite-all", "--no-use-starting-sequence-number", "--no-remove-dangling-deletes"]
        assert run("compact", "db.t", *flags, "--where", "p = 'a'", "--all-or-nothing").exit_code == 0
        assert run("compact", "db.t", "--zorder", "id,p").exit_code == 0
        first, second = asked
        assert first.options == given | {
            "rewrite-all": "true",
            "use-starting-sequence-number": "false",
            "remove-dangling-deletes": "false",
        }
        assert (first.where, first.all_or_nothing) == ("p = 'a'", True)
        assert second.options == {"zorder": "id,p"}
        assert {*first.options, *second.options} == set(OPTION_FIELDS)

    @pytest.mark.parametrize(
        ("flags", "says"),
        [
            (["--min-input-files", "0"], "min-input-files='0' is not allowed: a whole number from 1 on."),
            (["--strategy", "sort"], "The table has no sort order"),
            (["--zorder", "nope"], "zorder: the table has no column 'nope'"),
            (["--output-spec-id", "4"], "output-spec-id=4 is not allowed: the table has 0."),
        ],
    )
    @pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
    def test_refused(
        self, run: Run, stream: StreamTable, asked: list[Request], dry: list[str], flags: list[str], says: str
    ) -> None:
        result = run("compact", "db.t", *flags, *dry)
        assert (result.exit_code, result.stdout) == (2, "")
        assert says in result.stderr
        output = only_json(run("compact", "db.t", *flags, *dry, "--json"))
        assert output["status"] == "refused"
        assert says in output["reason"]
        assert asked == []

    def test_an_unknown_flag(self, run: Run, stream: StreamTable) -> None:
        result = run("compact", "db.t", "--min-input-file", "2")
        assert result.exit_code == 2
        assert "No such option" in result.stderr
        assert "--min-input-files" in result.stderr

    def test_a_dry_run_explains_itself(self, run: Run, small: StreamTable) -> None:
        folder = Path(small.table.location().removeprefix("file://"))
        before = set(folder.rglob("*"))
        result = run("compact", "db.t", "--dry-run")
        assert (result.exit_code, result.stderr) == (0, "")
        assert "6 small files" in result.stdout
        assert "6 data files are rewritten (binpack) into about 1 file, target size 512.0 MB: 1 unit," in result.stdout
        output = only_json(run("compact", "db.t", "--dry-run", "--json"))
        [unit] = output["units"]
        assert (unit["label"], unit["files"], unit["delete_files"], unit["why"]) == ("p=a", 6, 1, "6 small files")
        assert unit["cost"] > unit["output"] > 0
        assert (output["rewrite"]["strategy"], output["dangling"]) == ("binpack", False)
        assert set(folder.rglob("*")) == before

    def test_a_dry_run_of_nothing(self, run: Run, stream: StreamTable) -> None:
        assert run("compact", "db.t", "--dry-run").stdout == (
            "Nothing to do: no group qualifies: 2 small files in 2 partitions, 5 are needed in one, or more than "
            "512.0 MB.\n"
        )

    @pytest.mark.parametrize("flags", [["--sort-order", "id"], ["--zorder", "id,p"]], ids=" ".join)
    def test_an_order_for_files_that_are_well(self, run: Run, stream: StreamTable, flags: list[str]) -> None:
        well = ["--target-file-size-bytes", "1KB", "--min-file-size-bytes", "1b", "--max-file-size-bytes", "1MB"]
        shown = run("compact", "db.t", "--dry-run", *well, *flags).stdout
        assert shown.startswith("Nothing to do: none of 2 data files is below 1 byte or above 1.0 MB")
        assert (
            "; to bring files that need no rewrite into this order as well, add rewrite-all (--rewrite-all).\n" in shown
        )
        assert "rewrite-all" not in run("compact", "db.t", "--dry-run", *well).stdout
        assert (
            "2 data files are rewritten" in run("compact", "db.t", "--dry-run", *well, *flags, "--rewrite-all").stdout
        )

    def test_sizes_have_units(self, run: Run, stream: StreamTable, asked: list[Request]) -> None:
        run("compact", "db.t", "--target-file-size-bytes", "128MB")
        assert asked[0].options == {"target-file-size-bytes": "134217728"}
        forgotten = run("compact", "db.t", "--target-file-size-bytes", "128")
        assert (forgotten.exit_code, len(asked)) == (2, 1)
        assert "write 128MB" in forgotten.stderr
        assert run("compact", "db.t", "--target-file-size-bytes", "²").exit_code == 2
        refused = run("compact", "db.t", "--target-file-size-bytes", "128 apples")
        assert refused.exit_code == 2
        assert (
            "'128 apples' is not allowed: a whole number of bytes above 0, or a size such as 128MB." in refused.stderr
        )

    def test_a_dry_run_that_only_drops_deletes(self, run: Run, stream: StreamTable) -> None:
        stream.remove_files([file.path for file in stream.data_files()])
        assert run("compact", "db.t", "--dry-run").stdout == (
            "No data file is rewritten: there are no data files.\n"
            "Delete files that reach no data file any more are dropped.\n"
        )

    def test_from_python(self, stream: StreamTable, asked: list[Request]) -> None:
        fleet = Fleet()
        report = fleet.compact("db.t", tier="full", zorder=["id", "p"], options={"min-input-files": 2}).wait()
        assert report.rewritten_data_files == 12
        assert asked[0].options == {"tier": "full", "zorder": "id,p", "min-input-files": "2"}
        with pytest.raises(Refused, match="did you mean 'min-input-files'"):
            fleet.compact("db.t", options={"min_input_files": 2})
        planned = fleet.plan("db.t", operation="compact", options={"rewrite-all": True})
        assert [unit.why for unit in planned.plan.units] == ["2 small files"]
        assert len(asked) == 1


class TestJobs:
    """A job is found again by its id."""

    @pytest.fixture
    def done(self, run: Run, stream: StreamTable) -> str:
        """A job that was committed."""
        return str(only_json(run("convert", "db.t", "--json"))["job"])

    @pytest.fixture
    def staged(self, stream: StreamTable, jobs: Jobs) -> str:
        """A job whose process died when all was staged."""
        request = jobs.request()
        jobs.start(request)
        return request.job

    def test_status_of_one_that_has_ended(self, run: Run, done: str) -> None:
        assert "db.t: committed" in run("status", done).stdout
        output = only_json(run("status", done, "--json"))
        assert (output["job"], output["status"], output["removed_equality_delete_files"]) == (done, "committed", 2)

    def test_status_of_one_that_has_not(self, run: Run, staged: str) -> None:
        result = run("status", staged)
        assert (result.exit_code, result.stdout) == (0, f"{staged}: committing, 1 of 1 unit, 2 of 2 files\n")
        output = only_json(run("status", staged, "--json"))
        assert output.pop("seconds") >= 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", output.pop("started"))
        assert output == {
            "job": staged,
            "table": "db.t",
            "catalog": "default",
            "operation": "convert",
            "status": "committing",
            "units": 1,
            "done": 1,
            "reason": None,
            "files": 2,
            "files_done": 2,
            "holders": [],
        }

    def test_files_within_units_that_are_worked_on(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A large table may be one unit: that it is at work shows by its files."""

        holder = Holder(
            unit=3, partition="p=[a]", worker="w@host", since=0.0, seen=9.0, silent=2.4, files_done=40, files=96
        )
        now = Progress(Status.STAGING, 1, 2, files_done=44, files=100, holders=(holder,), problem="tried again: [x]")
        show_progress(ENDED, now)
        first, problem, second = capsys.readouterr().out.splitlines()
        assert problem == "  tried again: [x]"
        assert first == f"{ENDED}: staging, 1 of 2 units, 44 of 100 files"
        assert second.startswith("  unit 3 (p=[a]): w@host since ")
        assert ", 40 of 96 files, last seen at " in second
        assert second.endswith(", 2 s ago")

    def test_watching_one_that_has_ended(self, run: Run, done: str) -> None:
        result = run("watch", done)
        assert result.exit_code == 0
        assert "db.t: committed" in result.stdout
        assert only_json(run("watch", done, "--json"))["job"] == done

    def test_resuming(self, run: Run, staged: str, jobs: Jobs, stream: StreamTable) -> None:
        result = run("resume", staged, "--json")
        assert result.exit_code == 0
        assert (only_json(result)["job"], only_json(result)["status"]) == (staged, "committed")
        assert len(jobs.staged) == 1
        assert run("resume", staged).exit_code == 0, "and once more, when it has ended"

    def test_cancelling(self, run: Run, staged: str, stream: StreamTable) -> None:
        result = run("cancel", staged)
        assert (result.exit_code, result.stdout) == (0, f"{staged} is being cancelled.\n")
        assert only_json(run("resume", staged, "--json"))["status"] == "cancelled"
        assert not (Path(stream.table.location().removeprefix("file://")) / "_icefleet").exists()

    def test_cancelling_one_that_has_ended(self, run: Run, done: str) -> None:
        result = run("cancel", done)
        assert (result.exit_code, result.stdout) == (0, f"{done} has ended already: committed.\n")

    def test_listing(self, run: Run, done: str, catalog: FaultyCatalog, jobs: Jobs) -> None:
        other = StreamTable.create(catalog, "db.other", SCHEMA)
        other.append(rows(1))
        other.delete_where_equal(rows(1), ["id"])
        request = jobs.request("db.other")
        jobs.start(request)
        output = only_json(run("jobs", "--json"))
        assert {(row["job"], row["table"], row["status"]) for row in output} == {
            (done, "db.t", "committed"),
            (request.job, "db.other", "committing"),
        }
        newest = only_json(run("jobs", "--json", "--limit", "1"))
        assert [row["job"] for row in newest] == [request.job]
        assert [row["job"] for row in only_json(run("jobs", "db.t", "--json"))] == [done]
        shown = run("jobs").stdout
        assert done in shown
        assert request.job in shown
        assert [row["job"] for row in only_json(run("jobs", "--json", "--status", "committed"))] == [done]
        assert len(only_json(run("jobs", "--json", "--status", "committed", "--status", "committing"))) == 2
        assert only_json(run("jobs", "--json", "--status", "failed")) == []
        [ended] = [row for row in output if row["job"] == done]
        assert ended.keys() == {
            "job",
            "table",
            "catalog",
            "operation",
            "status",
            "done",
            "units",
            "started",
            "seconds",
            "reason",
        }
        assert (ended["catalog"], ended["operation"], ended["units"], ended["reason"]) == (
            "default",
            "convert",
            1,
            None,
        )
        assert 0 <= ended["seconds"] < 300
        assert run("jobs", "--status", "finished").exit_code == 2

    def test_listing_one_whose_table_cannot_be_read(self, run: Run, done: str, stream: StreamTable) -> None:
        job = JobLine.of(Fleet().job(done.replace("db.t", "db.gone")))
        assert (job.status, job.reason) == ("unknown", "There is no table 'db.gone' in catalog 'default'.")

    def test_listing_beside_storage_that_does_not_answer(
        self, run: Run, done: str, catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = StreamTable.create(catalog, "db.other", SCHEMA)
        other.append(rows(1))
        other.delete_where_equal(rows(1), ["id"])
        StreamTable.create(catalog, "db.other_without_jobs", SCHEMA)
        away = only_json(run("convert", "db.other", "--json"))["job"]
        read = Records._read_once

        def answer(records: Records, *arguments: Any) -> Any:
            if "other" in records.base:
                raise OSError("no answer")
            return read(records, *arguments)

        monkeypatch.setattr(Records, "_read_once", answer)
        output = {row["job"]: (row["status"], row["reason"]) for row in only_json(run("jobs", "--json"))}
        assert output == {done: ("committed", None), away: ("unknown", "no answer (OSError)")}
        assert [row["job"] for row in only_json(run("jobs", "db.other", "--json"))] == [away]
        assert "no answer" in run("jobs", "db.other_without_jobs").stderr

    def test_listing_none(self, run: Run, stream: StreamTable) -> None:
        assert run("jobs", "db.t").stdout == "No jobs.\n"
        assert only_json(run("jobs", "--json")) == []


class TestConfig:
    """Every setting, its value and where it comes from."""

    def test_for_programs(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / ".env").write_text("ICEFLEET_CORES=3\n")
        output = only_json(run("config", "--json", ICEFLEET_UNIT_MB="7"))
        found = {row["setting"]: (row["value"], row["from"]) for row in output}
        assert found["ICEFLEET_UNIT_MB"] == ("7", "environment")
        assert found["ICEFLEET_CORES"] == ("3", ".env")
        assert found["ICEFLEET_MAX_ATTEMPTS"] == ("3", "default")
        assert {PREFIX + name.upper() for name in Settings.model_fields} <= found.keys()
        assert all(row["description"] for row in output)

    def test_catalogs_are_listed(self, run: Run) -> None:
        found = {row["setting"]: row for row in only_json(run("config", "--json"))}
        assert found["catalog default"]["value"] == "sql"
        assert found["catalog default"]["from"] == "pyiceberg"

    def test_passwords_are_not_shown(self, run: Run) -> None:
        for option in ([], ["--json"]):
            result = run("config", *option, ICEFLEET_BROKER_URL="redis://me:secret@host/0")
            assert "secret" not in result.output
            assert "redis://***@host/0" in result.output

    def test_for_people(self, run: Run) -> None:
        result = run("config")
        assert result.exit_code == 0
        assert all(PREFIX + name.upper() in result.stdout for name in Settings.model_fields)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(Status.COMMITTED, 0), (Status.NOTHING_TO_DO, 0), (Status.PARTIAL, 3), (Status.FAILED, 1), (Status.CANCELLED, 1)],
)
def test_what_ends_decides_the_exit_status(
    run: Run, stream: StreamTable, monkeypatch: pytest.MonkeyPatch, status: Status, expected: int
) -> None:
    class Engine:
        def __init__(self, settings: Settings) -> None: ...

        def run(self, request: Request, on_progress: ProgressCallback | None = None) -> Report:
            return Report(job=request.job, table=request.table, status=status, reason="so it is")

    monkeypatch.setattr("producer.fleet.local_engine", Engine)
    assert run("convert", "db.t").exit_code == expected
    assert run("convert", "db.t", "--json").exit_code == expected


def test_a_job_that_is_submitted_by_a_clock_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "report", lambda _: None)
    monkeypatch.setattr(Job, "progress", lambda _: Progress(Status.QUEUED))
    line = JobLine.of(Job("convert:default:db.t:29991231T235959-00000000", Settings(_env_file=None, broker_url="")))
    assert line.seconds == 0
