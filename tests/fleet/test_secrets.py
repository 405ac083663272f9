"""Secrets of catalogs, storage and brokers are nowhere to be read: planted ones are looked for everywhere."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import psutil
import pytest

from producer.model.job import Status
from tasks.testing import local_catalog
from tests.fleet.conftest import SMALL
from tests.fleet.leaky import NO_CONNECTION, leaky_catalog
from tests.fleet.localfleet import LOGIN, LocalFleet
from tests.fleet.tables import streamed

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

#: The broker's password, and what PyIceberg is told besides.
PASSWORD = "planted-broker"
PLANTED = {
    "S3__SECRET_ACCESS_KEY": "planted-storage",
    "S3__SESSION_TOKEN": "planted-session",
    "CREDENTIAL": "client:planted-catalog",
    "TOKEN": "planted-token",
    "ADLS__CONNECTION_STRING": "AccountName=lake;AccountKey=planted-account",
    "HEADER__AUTHORIZATION": "Basic planted-header",
}
WORD = "planted-"
#: What has taken the place of a secret.
MASK = "***"


class Fleet(LocalFleet):
    """One whose Redis wants a password, and whose processes know secrets and two catalogs that tell them.

    Args:
        root: Folder for all of it.
        away: Address of the catalog ``away``.
    """

    def __init__(self, root: Path, away: str) -> None:
        super().__init__(root, **SMALL, max_attempts=2)
        self.broker_url = self.broker_url.replace("redis://", f"redis://:{PASSWORD}@")
        self.settings = self.settings.model_copy(update={"broker_url": self.broker_url})
        self.redis_arguments = ("--requirepass", PASSWORD)
        default = {k: v for k, v in self.environment.items() if k.startswith("PYICEBERG_CATALOG__DEFAULT__")}
        default |= {f"PYICEBERG_CATALOG__DEFAULT__{name}": value for name, value in PLANTED.items()}
        leaky = {name.replace("__DEFAULT__", "__LEAKY__"): value for name, value in default.items()}
        leaky["PYICEBERG_CATALOG__LEAKY__PY_IO_IMPL"] = "tests.fleet.leaky.LeakyIO"
        away_too = {"TYPE": "rest", "URI": away, "CREDENTIAL": "client:planted-away"}
        self.environment.update(default | leaky)
        self.environment.update({f"PYICEBERG_CATALOG__AWAY__{name}": value for name, value in away_too.items()})

    def arguments(self) -> Iterator[str]:
        """What the list of processes shows of the fleet, its JVMs and its clients; Redis is told by us."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if Path(process.cwd()).is_relative_to(self.root) and "redis-server" not in line:
                    yield line

    def record_texts(self) -> list[str]:
        """Records of jobs that are there now, as text."""
        texts = []
        for path in (self.root / "lake").rglob("_icefleet/**/*"):
            with suppress(OSError):
                if path.is_file():
                    texts.append(path.read_text(errors="replace"))
        return texts

    def page(self, path: str) -> str:
        """What Flower shows."""
        request = Request(f"http://127.0.0.1:{self.flower_port}{path}")
        request.add_header("Authorization", f"Basic {b64encode(LOGIN.encode()).decode()}")
        with urlopen(request, timeout=30) as answer:
            return str(answer.read().decode())


@pytest.fixture
def fleet(
    redis_installed: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fleet]:
    with leaky_catalog() as away:
        yield from _running(Fleet(tmp_path_factory.mktemp("secrets"), away), monkeypatch)


def _running(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    try:
        fleet.start_redis()
        fleet.attach(monkeypatch)
        fleet.start_flower()
        fleet.start_committer("committer", "--log-level", "DEBUG")
        beat = ["icefleet", "beat"]
        fleet.processes.start("beat", [*beat, "--loglevel", "DEBUG"], fleet.environment)
        fleet.start_worker("red", "--queues", "convert,compact", "--log-level", "DEBUG")
        fleet.answering("red", "committer")
        yield fleet
    finally:
        fleet.stop()


class Watch:
    """Looks at what is there for a moment only, until the block is left."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._done = fleet, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: set[str] = set()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.1):
            self.seen.update([*self._fleet.arguments(), *self._fleet.record_texts()])


def test_secrets_are_nowhere_to_be_read(fleet: Fleet) -> None:
    with Watch(fleet) as watch:
        table = streamed(fleet.catalog, "db.events", partitions=2, upserts=1)
        said = [fleet.icefleet(*command) for command in (("config",), ("plan", "db.events"), ("jobs",))]
        assert fleet.fleet.convert("db.events").wait(150).status is Status.COMMITTED
        broken = streamed(fleet.catalog, "db.broken", partitions=2, upserts=1)
        Path(broken.data_files()[0].path.removeprefix("file://")).write_bytes(b"PAR1 this is none PAR1")
        report = fleet.fleet.compact("db.broken", tier="full").wait(150)
        assert report.status in {Status.PARTIAL, Status.FAILED}
        said += [fleet.icefleet("compact", table.identifier), fleet.icefleet("convert", "db.missing")]
    pages = [fleet.page(path) for path in ("/api/tasks", "/api/workers?refresh=1")]
    assert any("java" in text for text in watch.seen), "the JVM was looked at"
    assert any('"snapshot_id"' in text for text in watch.seen), "records were looked at"
    _assert_clean(fleet, *watch.seen, *pages, report.model_dump_json(), *(one.stdout + one.stderr for one in said))


def test_errors_tell_no_secrets(fleet: Fleet) -> None:
    """A storage and a catalog that put their secrets into the texts of their errors."""
    streamed(local_catalog(fleet.root / "lake", "leaky"), "db.hidden", partitions=1, upserts=1)
    away = ("db.events", "--catalog", "away")
    with Watch(fleet) as watch:
        failed = fleet.icefleet("convert", "db.hidden", "--catalog", "leaky", "--json")
        assert failed.returncode == 1, failed.stderr
        assert "PermissionError" in failed.stdout
        assert MASK in failed.stdout
        said = [failed, *(fleet.icefleet(*more, "plan", *away) for more in ((), ("-v",)))]
        assert all(NO_CONNECTION in one.stderr and MASK in one.stderr for one in said[1:]), said
        said.append(fleet.icefleet("convert", *away, "--no-wait", "--json"))
        job = fleet.fleet.convert("db.events", catalog="away").id
        fleet.processes.wait_for("a retry in Flower", lambda: NO_CONNECTION in fleet.page("/api/tasks"))
    pages = [fleet.page(path) for path in ("/api/tasks", "/api/workers?refresh=1", "/workers", "/broker", "/tasks")]
    pages.append(fleet.page(f"/task/{quote(f'plan:{job}')}"))
    assert sum(NO_CONNECTION in page and MASK in page for page in pages) == 2, "the API and the task's own page"
    assert NO_CONNECTION in fleet.processes.log("committer").read_text()
    _assert_clean(fleet, *watch.seen, *pages, *(one.stdout + one.stderr for one in said))


def _assert_clean(fleet: Fleet, *texts: str) -> None:
    """None of the texts holds a secret, nor does Redis, nor any file that the fleet has left, its logs included."""
    left = [p.read_text(errors="replace") for p in fleet.root.rglob("*") if p.is_file()]
    logs = [fleet.processes.log(name).read_text() for name in ("committer", "beat", "red", "flower")]
    assert all(len(log) > 100 for log in logs)
    for text in (*texts, *logs, *left, *_of_redis(fleet)):
        at = text.find(WORD)
        assert at < 0, text[max(0, at - 600) : at + 100]


def _of_redis(fleet: Fleet) -> Iterator[str]:
    """All that Redis holds."""
    for key in fleet.redis.scan_iter():
        value = {
            "string": fleet.redis.get,
            "list": lambda key: fleet.redis.lrange(key, 0, -1),
            "set": fleet.redis.smembers,
            "zset": lambda key: fleet.redis.zrange(key, 0, -1),
            "hash": fleet.redis.hgetall,
        }[str(fleet.redis.type(key))](key)
        yield f"{key!s}: {value!r}"
