"""docker-compose.yml: what it promises, and each of its commands run as it stands there, on this machine."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
import redis
import yaml
from celery import Celery
from psutil import Process
from pyiceberg.catalog import load_catalog

from producer.common.settings import Settings
from tasks.testing import StreamTable, read_rows
from tests.fleet.composefile import Native, interpolated, read_services, seconds, wait_for
from tests.support.repository import REPOSITORY

COMPOSE = REPOSITORY / "docker-compose.yml"
EXAMPLE = REPOSITORY / ".env.example"
#: Every file of Compose that is shipped, and whatever else tells services how to listen.
SHIPPED = sorted(path for path in REPOSITORY.glob("*compose*.y*ml"))
TEXTS = sorted(
    [*SHIPPED, *(path for path in (REPOSITORY / "deploy").rglob("*") if path.is_file())]
    + [REPOSITORY / name for name in (".env.example", "Dockerfile", "Makefile", "README.md", "docs/operations.md")]
)

#: Nothing set, as on a fresh clone.
ALL = read_services(COMPOSE, {})
SERVICES = {name: service for name, service in ALL.items() if "profiles" not in service.raw}
#: What `--profile lake` adds.
LAKE = {name: service for name, service in ALL.items() if service.raw.get("profiles") == ["lake"]}
WORKERS = ("worker", "committer")


# -- what the file says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A:-b}", "b"),
        ("${SET:-b}", "1"),
        ("${A:-b:c-d}", "b:c-d"),
        ("x${SET}y$$z", "x1y$z"),
        ("${A}", ""),
    ],
)
def test_variables_are_resolved_as_compose_does(text: str, expected: str) -> None:
    assert interpolated(text, {"SET": "1"}) == expected


def test_every_service_is_capped_and_comes_back() -> None:
    assert set(SERVICES) == {"redis", "worker", "committer", "beat", "flower"}
    assert set(LAKE) == {"catalog", "s3"}
    for service in ALL.values():
        assert service.raw["mem_limit"], service.name
        assert service.raw["restart"] == "unless-stopped", service.name


def test_redis_neither_evicts_nor_forgets() -> None:
    command = " ".join(SERVICES["redis"].command)
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert SERVICES["redis"].volumes["/data"] == "redis"
    assert SERVICES["redis"].health
    for name in set(SERVICES) - {"redis"}:
        assert SERVICES[name].raw["depends_on"]["redis"]["condition"] == "service_healthy"


def test_the_profile_is_the_catalog_that_workers_know() -> None:
    prefix = "PYICEBERG_CATALOG__LAKE__"
    for name in ("worker", "committer"):
        found = {k.removeprefix(prefix): v for k, v in SERVICES[name].environment.items() if k.startswith(prefix)}
        catalog, s3 = LAKE["catalog"].environment, LAKE["s3"].environment
        assert found["URI"] == "http://catalog:8181"
        assert found["S3__ENDPOINT"] == catalog["CATALOG_S3_ENDPOINT"] == "http://s3:7070"
        assert found["S3__ACCESS_KEY_ID"] == catalog["AWS_ACCESS_KEY_ID"] == s3["ROOT_ACCESS_KEY"]
        assert found["S3__SECRET_ACCESS_KEY"] == catalog["AWS_SECRET_ACCESS_KEY"] == s3["ROOT_SECRET_KEY"]
    for service in LAKE.values():
        assert re.fullmatch(r"[\w./-]+:v?\d[\w.]*", service.raw["image"]), "an image has a version"
        assert "ports" not in service.raw
    bucket = LAKE["catalog"].environment["CATALOG_WAREHOUSE"].split("/")[2]
    assert f"/data/{bucket} " in LAKE["s3"].raw["command"][0]
    assert LAKE["s3"].volumes["/data"] == "s3"


def test_worker_can_be_scaled() -> None:
    worker = SERVICES["worker"].raw
    assert not {"container_name", "ports", "hostname"} & worker.keys()


@pytest.mark.parametrize("name", WORKERS)
def test_grace_is_longer_than_the_soft_shutdown(name: str) -> None:
    service = SERVICES[name]
    shutdown = int(
        service.environment.get("ICEFLEET_SHUTDOWN_SECONDS", Settings.model_fields["shutdown_seconds"].default)
    )
    assert seconds(service.raw["stop_grace_period"]) >= shutdown + 30


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_nothing_is_published_to_other_machines(path: Path) -> None:
    """What has no address in front of its port is published on all of them."""
    for service in read_services(path, {}).values():
        assert service.raw.get("network_mode", "bridge") != "host", service.name
        for port in service.raw.get("ports", ()):
            address = port["host_ip"] if isinstance(port, dict) else port.rpartition(":")[0].rpartition(":")[0]
            assert address in {"127.0.0.1", "[::1]"}, f"{service.name}: {port}"


def test_redis_is_reached_by_the_services_alone_and_with_a_password() -> None:
    service = SERVICES["redis"]
    assert "ports" not in service.raw
    assert service.environment["REDIS_PASSWORD"]
    asked = read_services(COMPOSE, {"REDIS_PASSWORD": "opensesame"})
    assert "opensesame" not in " ".join(asked["redis"].command), "arguments are seen by everybody"
    for name in set(SERVICES) - {"redis"}:
        assert asked[name].environment["ICEFLEET_BROKER_URL"] == "redis://:opensesame@redis:6379/0"


def test_flower_wants_a_password() -> None:
    flower = SERVICES["flower"]
    name, _, password = flower.environment["FLOWER_BASIC_AUTH"].partition(":")
    assert name
    assert password


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_nothing_that_is_shipped_opens_a_door(path: Path) -> None:
    """Flower's API without a login, its pages to everybody, a Redis that takes anybody, passwords among arguments."""
    text = path.read_text()
    for door in (
        r"FLOWER_UNAUTHENTICATED_API\s*[:=]\s*[\"']?(?:1|true|yes)",
        r"protected-mode[\s=]+no",
        r"--address[= ]+(?:0\.0\.0\.0|::)",
        r"bind[\s=]+(?:0\.0\.0\.0|\*|::\s)",
        r"--basic[-_]auth",
        r"(?:--requirepass|redis-cli.*\s-a\s)",
    ):
        assert not re.search(door, text), door


def test_variables_are_settings_and_the_example_lists_them() -> None:
    known = {f"ICEFLEET_{name.upper()}" for name in Settings.model_fields}
    used = {key for service in ALL.values() for key in service.environment if key.startswith("ICEFLEET_")}
    assert used <= known
    listed = {line.lstrip("#").partition("=")[0] for line in EXAMPLE.read_text().splitlines() if "=" in line}
    asked = set(_variables(yaml.safe_load(COMPOSE.read_text())))
    assert asked == listed


def test_volumes_are_declared() -> None:
    declared = set(yaml.safe_load(COMPOSE.read_text())["volumes"])
    named = {source for service in ALL.values() for source in service.volumes.values() if not source.startswith("/")}
    assert named == declared


def test_docker_takes_the_file() -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker client")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("the docker client has no compose plugin")
    done = subprocess.run(["docker", "compose", "config", "--quiet"], cwd=REPOSITORY, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def _variables(value: Any) -> Iterator[str]:
    class Names(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            seen.append(key)
            return default

    seen: list[str] = []
    interpolated(value, Names())
    yield from seen


# -- what its commands do ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Native]:
    """Every service, started as in the file, in its order; only smaller and quicker."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server: install Redis 6.2 or newer")
    services = {
        name: found
        for name, found in read_services(COMPOSE, {"ICEFLEET_SWEEP_SECONDS": "2"}).items()
        if name in SERVICES
    }
    small = {"ICEFLEET_CORES": "1", "ICEFLEET_HEAP_MB": "512"}
    native = Native(tmp_path_factory.mktemp("compose"), services, small)
    try:
        native.start("redis", also=("--bind", "127.0.0.1"))
        wait_for(native, "healthy redis", lambda: _healthy(native, "redis"))
        for name in ("worker", "committer", "beat", "flower"):
            native.start(name)
        yield native
    finally:
        native.stop_all()


def _healthy(native: Native, name: str) -> bool:
    return native.execute(name, *native.services[name].health).returncode == 0


def _broker(native: Native) -> str:
    """Where the file's services find Redis, on this machine."""
    return native.environment("worker")["ICEFLEET_BROKER_URL"]


def _flower(native: Native, path: str, *, known: bool = True, data: bytes | None = None) -> Any:
    request = Request(f"http://127.0.0.1:{native.flower_port}{path}", data)
    if known:
        login = native.services["flower"].environment["FLOWER_BASIC_AUTH"]
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _catalog(native: Native) -> dict[str, str]:
    """The catalog of the file's services, for this process."""
    prefix = "PYICEBERG_CATALOG__DEFAULT__"
    environment = native.environment("worker")
    return {key.removeprefix(prefix).lower(): value for key, value in environment.items() if key.startswith(prefix)}


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.fleet
@pytest.mark.redis
@pytest.mark.spark
class TestRunning:
    """The fleet of the file, running."""

    def test_redis_runs_with_what_the_file_says(self, fleet: Native) -> None:
        with redis.Redis.from_url(_broker(fleet), decode_responses=True) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.config_get("dir") == {"dir": str(fleet.root / "redis")}

    def test_redis_answers_to_its_password_alone(self, fleet: Native) -> None:
        for url in (f"redis://127.0.0.1:{fleet.redis_port}/0", _broker(fleet).replace("change-me", "wrong")):
            with redis.Redis.from_url(url) as client, pytest.raises(redis.AuthenticationError):
                client.ping()
        assert "change-me" not in " ".join(Process(fleet.running["redis"].pid).cmdline())

    def test_workers_serve_every_queue(self, fleet: Native) -> None:
        control = Celery(broker=_broker(fleet), set_as_current=False).control
        answers = wait_for(
            fleet,
            "two workers",
            lambda: len(found := control.inspect(timeout=2).active_queues() or {}) == 2 and found,
            90,
        )
        assert {queue["name"] for queues in answers.values() for queue in queues} == {
            "plan",
            "convert",
            "compact",
            "commit",
            "sweep",
        }
        assert {len(queues) for queues in answers.values()} == {2, 3}
        pools = {node: stats["pool"]["max-concurrency"] for node, stats in control.inspect(timeout=2).stats().items()}
        assert set(pools.values()) == {1}

    def test_flower_answers_to_its_password_alone(self, fleet: Native) -> None:
        wait_for(fleet, "healthy flower", lambda: _healthy(fleet, "flower"))
        for path in ("/", "/api/workers", "/api/tasks"):
            with pytest.raises(HTTPError) as refused:
                _flower(fleet, path, known=False)
            assert refused.value.code == 401
        for path in ("/api/worker/shutdown/a", "/api/task/send-task/icefleet.sweep", "/api/task/revoke/a"):
            with pytest.raises(HTTPError) as refused:
                _flower(fleet, path, known=False, data=b"{}")
            assert refused.value.code == 401
        wait_for(fleet, "workers in Flower", lambda: len(_flower(fleet, "/api/workers?refresh=1")) == 2)

    def test_beat_wakes_the_sweeper(self, fleet: Native) -> None:
        control = Celery(broker=_broker(fleet), set_as_current=False).control

        def swept() -> bool:
            stats = (control.inspect(timeout=2).stats() or {}).values()
            return sum(int(one["total"].get("icefleet.sweep", 0)) for one in stats) > 1

        assert wait_for(fleet, "sweeps", swept)
        assert _flower(fleet, "/api/tasks?taskname=icefleet.sweep") == {}, "what finds nothing is not shown"

    def test_one_command_converts_a_table(self, fleet: Native) -> None:
        catalog = load_catalog("default", **_catalog(fleet))
        events = StreamTable.create(catalog, "db.events", pa.schema([("id", pa.int64()), ("name", pa.string())]))
        events.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
        events.upsert(pa.table({"id": [2], "name": ["B"]}), ["id"])
        before = _rows(read_rows(events.table))

        done = fleet.execute("worker", "icefleet", "convert", "db.events", "--json", timeout=200)

        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{fleet.logs()}"
        report = json.loads(done.stdout)
        assert report["status"] == "committed"
        assert report["removed_equality_delete_files"] == 1
        assert report["added_position_deletes"] == 1
        assert _rows(read_rows(events.table)) == before == [(1, "a"), (2, "B"), (3, "c")]
        # PyIceberg reads no equality deletes; now it has none to read.
        assert _rows(catalog.load_table("db.events").scan().to_arrow()) == before
        (task,) = _flower(fleet, "/api/tasks?taskname=icefleet.convert").values()
        assert task["state"] == "SUCCESS"
        assert "db.events" in task["kwargs"]

    def test_one_command_compacts_a_table(self, fleet: Native) -> None:
        catalog = load_catalog("default", **_catalog(fleet))
        small = StreamTable.create(catalog, "db.small", pa.schema([("id", pa.int64()), ("name", pa.string())]))
        for number in range(6):
            small.append(pa.table({"id": [number], "name": ["a"]}))
        small.upsert(pa.table({"id": [2], "name": ["B"]}), ["id"])
        before = _rows(read_rows(small.table))

        done = fleet.execute("worker", "icefleet", "compact", "db.small", "--json", timeout=200)

        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{fleet.logs()}"
        report = json.loads(done.stdout)
        assert (report["status"], report["rewritten_data_files"], report["added_data_files"]) == ("committed", 7, 1)
        assert _rows(read_rows(small.table)) == before
        assert small.delete_files() == []
        (task,) = _flower(fleet, "/api/tasks?taskname=icefleet.compact").values()
        assert task["state"] == "SUCCESS"
        assert "7 files became 1 with 6 rows" in task["result"]
        again = fleet.execute("worker", "icefleet", "compact", "db.small", "--json", timeout=200)
        assert json.loads(again.stdout)["status"] == "nothing_to_do"

    def test_every_service_stops_when_asked(self, fleet: Native) -> None:
        statuses = {name: fleet.stop(name, 30) for name in reversed(list(fleet.running))}
        assert set(statuses.values()) == {0}, f"{statuses}\n{fleet.logs()}"
