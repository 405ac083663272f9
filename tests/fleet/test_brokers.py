"""What a person reads of a broker that cannot be used, and what can be read without one: against real Redis."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from producer import Fleet, Settings
from producer.broker.connections import is_away
from producer.broker.queue import Messenger
from producer.broker.registry import JobRegistry
from producer.cli.jobs import job_lines
from producer.common.errors import Refused
from producer.model.job import Report, Request, Status
from tasks.job.context import JobContext
from tasks.lifecycle.rounds import begin
from tasks.testing import StreamTable, local_catalog
from tests.fleet.composefile import free_port
from tests.fleet.processes import Processes
from tests.support.repository import REPOSITORY

pytestmark = pytest.mark.redis

Start = Callable[..., int]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a Redis with some options; returns its port."""
    processes = Processes(tmp_path_factory.mktemp("brokers"))

    def start(*options: str, tls: bool = False) -> int:
        port = free_port()
        listens = ("--port", "0", "--tls-port", str(port)) if tls else ("--port", str(port))
        command = ["redis-server", *listens, "--save", "", "--dir", str(processes.root), *options]
        processes.start(f"redis-{port}", command, os.environ)
        ready = processes.log(f"redis-{port}")
        processes.wait_for("Redis", lambda: "Ready to accept" in ready.read_text())
        return port

    yield start
    processes.kill_all()


@pytest.fixture(scope="module")
def locked(servers: Start) -> int:
    """The port of a Redis that wants a password."""
    return servers("--requirepass", "correct-horse")


@pytest.fixture(scope="module")
def encrypted(servers: Start, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The port of a Redis that speaks TLS only, by an authority of its own."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = str(folder / "key.pem"), str(folder / "cert.pem")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"]
    subprocess.run([*made, "-subj", "/CN=x", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    files = ("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate)
    return servers(*files, "--tls-auth-clients", "no", tls=True)


def sentences(url: str) -> list[str]:
    """What the sender of messages and the registry say of an address."""
    settings = Settings(_env_file=None, broker_url=url)
    found = []
    for checked in (Messenger(settings), JobRegistry(settings)):
        if checked:
            with pytest.raises(Refused) as refused:
                checked.check()
            found.append(str(refused.value))
    return found


class TestHints:
    """Each thing that can be wrong has a hint of its own."""

    def says(self, url: str, hint: str) -> None:
        for sentence in sentences(url):
            assert hint in sentence
            assert "does not answer" in sentence
            assert "\n" not in sentence
            assert "wrong-horse" not in sentence

    def test_a_wrong_password(self, locked: int) -> None:
        self.says(f"redis://:wrong-horse@127.0.0.1:{locked}/0", "user or password is wrong")
        self.says(f"redis://me:wrong-horse@127.0.0.1:{locked}/0", "user or password is wrong")

    def test_no_password(self, locked: int) -> None:
        self.says(f"redis://127.0.0.1:{locked}/0", "it wants a password, and the address has none: put :PASSWORD@ or")

    def test_no_such_database(self, locked: int) -> None:
        self.says(f"redis://:correct-horse@127.0.0.1:{locked}/999", "it has no database of the number")

    def test_a_closed_port(self) -> None:
        self.says(f"redis://127.0.0.1:{free_port()}/0", "nothing listens there: is it running")
        self.says(f"amqp://127.0.0.1:{free_port()}//", "nothing listens there: is it running")

    def test_an_unknown_host(self) -> None:
        self.says("redis://redis.invalid:6379/0", "no host of that name is known here")

    def test_tls_where_there_is_none(self, locked: int) -> None:
        self.says(f"rediss://:correct-horse@127.0.0.1:{locked}/0", "it seems to speak no TLS at this port")

    def test_a_server_that_is_silent_is_asked_once(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"rediss://127.0.0.1:{silent.getsockname()[1]}/0"
            started = time.monotonic()
            with pytest.raises(Refused, match="it seems to speak no TLS at this port: write redis://"):
                JobRegistry(Settings(_env_file=None, broker_url=url)).check()
        assert time.monotonic() - started < 9

    def test_no_tls_where_there_is_some(self, encrypted: int) -> None:
        self.says(f"redis://127.0.0.1:{encrypted}/0", "if it speaks TLS at this port, write rediss://")

    def test_a_certificate_that_nobody_trusts(self, encrypted: int) -> None:
        self.says(f"rediss://127.0.0.1:{encrypted}/0?ssl_cert_reqs=required", "its certificate is not trusted")

    def test_a_file_of_authorities_that_is_missing(self, encrypted: int) -> None:
        """A worker does not wait for it."""
        url = f"rediss://127.0.0.1:{encrypted}/0?ssl_cert_reqs=required&ssl_ca_certs=/none/ca.crt"
        self.says(url, "the address names a file that does not exist, ssl_ca_certs=/none/ca.crt")
        with pytest.raises(Refused) as refused:
            Messenger(Settings(_env_file=None, broker_url=url)).check()
        assert not is_away(refused.value)

    def test_a_scheme_that_no_broker_has(self) -> None:
        self.says("http://127.0.0.1:6379", "no broker goes by that scheme: write an address such as redis://")

    def test_one_that_works(self, locked: int) -> None:
        settings = Settings(_env_file=None, broker_url=f"redis://:correct-horse@127.0.0.1:{locked}/0")
        Messenger(settings).check()
        JobRegistry(settings).check()


class TestWithoutRedis:
    """``status`` and ``jobs`` tell what storage and history know when Redis is away, and say so."""

    @pytest.fixture
    def environment(self, tmp_path: Path) -> dict[str, str]:
        """A table with a job that committed, one that is at work, and a Redis that is away."""
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "PYICEBERG_CATALOG__DEFAULT__TYPE": "sql",
            "PYICEBERG_CATALOG__DEFAULT__URI": f"sqlite:///{tmp_path}/catalog.db",
            "PYICEBERG_CATALOG__DEFAULT__WAREHOUSE": f"file://{tmp_path}/warehouse",
            "ICEFLEET_BROKER_URL": f"redis://127.0.0.1:{free_port()}/0",
        }

    @pytest.fixture
    def staging(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """A job that was planned and of which nothing is staged."""
        catalog = local_catalog(tmp_path, "default")
        stream = StreamTable.create(catalog, "db.t", pa.schema([("id", pa.int64())]))
        stream.append(pa.table({"id": [1, 2]}))
        stream.delete_where_equal(pa.table({"id": [1]}), ["id"])
        monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: catalog)
        request = Request.new("db.t")
        begin(request, Settings(_env_file=None, broker_url="", board_url=""))
        assert JobContext.open(request.job).store.latest_plan() is not None
        return request.job

    def icefleet(self, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from producer.cli.main import main; main()", *arguments]
        folder = REPOSITORY
        known = {**environment, "PYTHONPATH": str(folder)}
        return subprocess.run(
            command, capture_output=True, text=True, env=known, cwd=environment["HOME"], timeout=120, check=False
        )

    def test_status_and_jobs(self, environment: dict[str, str], staging: str) -> None:
        shown = self.icefleet(environment, "status", staging)
        assert (shown.returncode, shown.stdout) == (0, f"{staging}: staging, 0 of 1 unit, 0 of 1 file\n")
        assert "nothing listens there" in shown.stderr
        assert "What follows is from the tables' own storage and history." in shown.stderr
        listed = self.icefleet(environment, "jobs", "--json")
        assert listed.returncode == 0
        [line] = json.loads(listed.stdout)
        assert (line["job"], line["status"], line["units"]) == (staging, "staging", 1)

    def test_a_job_that_storage_does_not_know(self, environment: dict[str, str], staging: str) -> None:
        other = staging[:-8] + "00000000"
        shown = self.icefleet(environment, "status", other, "--json")
        assert shown.returncode == 2
        assert "Redis, which may have it, is away" in json.loads(shown.stdout)["reason"]

    @pytest.mark.parametrize("command", ["watch", "cancel", "resume"])
    def test_what_needs_redis_is_refused(self, environment: dict[str, str], staging: str, command: str) -> None:
        shown = self.icefleet(environment, command, staging)
        assert (shown.returncode, shown.stdout) == (2, "")
        assert shown.stderr.startswith("Refused: The Redis at ")
        assert "nothing listens there" in shown.stderr


class TestList:
    """Jobs that Redis knows, of one catalog or table or of all, by how they stand."""

    @pytest.fixture
    def fleet(self, servers: Start) -> Fleet:
        return Fleet(Settings(_env_file=None, broker_url=f"redis://127.0.0.1:{servers()}/0"))

    def test_of_catalogs_and_tables(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        registry = JobRegistry(fleet.settings)
        requests = [Request.new(table, catalog=catalog) for catalog, table in (("default", "db.a"), ("prod", "db.a"))]
        for request in requests:
            registry.enqueue(request)
        default, prod = (request.job for request in requests)
        redis.Redis.from_url(fleet.settings.redis_url).zadd("icefleet:jobs", {"of:another:version": 1})
        monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: local_catalog(tmp_path, name))
        assert {job.id for job in fleet.jobs(catalog="prod")} == {prod}
        assert [job.id for job in fleet.jobs("db.a")] == [default], "a table that was dropped has jobs all the same"
        with pytest.raises(Refused, match=r"There is no table 'db\.b'"):
            fleet.jobs("db.b")

    def test_by_status(self, fleet: Fleet) -> None:
        registry = JobRegistry(fleet.settings)
        for number, status in enumerate((Status.FAILED, Status.COMMITTED, Status.FAILED)):
            request = Request.new(f"db.t{number}")
            registry.enqueue(request)
            reason = "the disk is full" if status is Status.FAILED else None
            registry.save_report(
                Report(job=request.job, table=request.table, status=status, units=2, seconds=7.5, reason=reason)
            )
        jobs = [fleet.job(job) for job, _ in registry.jobs()]
        failed = job_lines(jobs, limit=9, statuses=["failed"])
        assert {line.table for line in failed} == {"db.t0", "db.t2"}
        assert {(line.seconds, line.reason, line.done) for line in failed} == {(7.5, "the disk is full", 2)}
        assert all(line.started is not None for line in failed)
        assert len(job_lines(jobs, limit=1, statuses=["failed"])) == 1
        assert len(job_lines(jobs, limit=9)) == 3
