"""Secrets of catalogs, storage and brokers are nowhere to be read: planted ones are looked for everywhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from producer.messages import Status
from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import streamed

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

#: The broker's password, and what PyIceberg is told besides.
PASSWORD = "planted-broker"
PLANTED = {
    "S3__SECRET_ACCESS_KEY": "planted-storage",
    "S3__SESSION_TOKEN": "planted-session",
    "CREDENTIAL": "client:planted-catalog",
    "TOKEN": "planted-token",
}
WORD = "planted-"


class Fleet(LocalFleet):
    """One whose Redis wants a password, and whose processes know secrets."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, **SMALL)
        self.broker_url = self.broker_url.replace("redis://", f"redis://:{PASSWORD}@")
        self.settings = self.settings.model_copy(update={"broker_url": self.broker_url})
        self.redis_arguments = ("--requirepass", PASSWORD)

    def found(self) -> list[str]:
        """Where secrets are to be read now: arguments of processes, and files of jobs."""
        places = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if WORD in line and "redis-server" not in line:
                    places.append(line)
        for path in (self.root / "lake").rglob("_icefleet/**/*.json"):
            with suppress(OSError):
                if WORD.encode() in path.read_bytes():
                    places.append(str(path))
        return places


@pytest.fixture
def fleet(
    redis_installed: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("secrets"))
    fleet.environment.update({f"PYICEBERG_CATALOG__DEFAULT__{name}": value for name, value in PLANTED.items()})
    try:
        fleet.start_redis()
        fleet.attach(monkeypatch)
        fleet.start_flower()
        fleet.start_committer("committer", "--beat", "--log-level", "DEBUG")
        fleet.start_worker("red", "--queues", "convert,compact", "--log-level", "DEBUG")
        fleet.answering("red", "committer")
        yield fleet
    finally:
        fleet.stop()


def test_secrets_are_nowhere_to_be_read(fleet: Fleet) -> None:
    seen: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            seen.extend(fleet.found())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        table = streamed(fleet.catalog, "db.events", partitions=2, upserts=1)
        said = [fleet.icefleet(*command) for command in (("config",), ("plan", "db.events"), ("jobs",))]
        assert fleet.fleet.convert("db.events").wait(150).status is Status.COMMITTED
        broken = streamed(fleet.catalog, "db.broken", partitions=2, upserts=1)
        Path(broken.data_files()[0].path.removeprefix("file://")).write_bytes(b"PAR1 this is none PAR1")
        report = fleet.fleet.compact("db.broken", tier="full").wait(150)
        assert report.status in {Status.PARTIAL, Status.FAILED}
        said += [fleet.icefleet("compact", table.identifier), fleet.icefleet("convert", "db.missing")]
        flower = [fleet.flower(path) for path in ("/api/tasks", "/api/workers?refresh=1")]
    finally:
        done.set()
        looking.join()
    assert seen == []
    texts = [text for one in said for text in (one.stdout, one.stderr)]
    texts += [json.dumps(flower), report.model_dump_json(), fleet.processes.logs(1 << 24), *_of_redis(fleet)]
    assert sum(len(text) for text in texts) > 10_000
    for text in texts:
        at = text.find(WORD)
        assert at < 0, text[max(0, at - 300) : at + 100]


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
        yield f"{key}: {value}"
