"""A fleet behind closed doors: Redis with the files of deploy/, over TLS, for one user with few rights."""

from __future__ import annotations

import subprocess
from functools import cached_property
from pathlib import Path

import redis

from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.support.repository import REPOSITORY

PASSWORD = "correct-horse"
#: Who looks at Redis itself; no part of what is shipped.
WATCHER = "user watcher on >watching ~* &* +@all"


class GuardedFleet(LocalFleet):
    """One whose Redis is configured as deploy/redis.conf and deploy/users.acl say, but for places and password."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, spark=False, **SMALL, sweep_seconds=2)
        self.etc = root / "etc"
        self.etc.mkdir()
        query = f"ssl_cert_reqs=required&ssl_ca_certs={self.etc}/ca.crt"
        self.broker_url = f"rediss://icefleet:{PASSWORD}@127.0.0.1:{self.redis_port}/0?{query}"
        self.settings = self.settings.model_copy(update={"broker_url": self.broker_url})
        self.watch_url = self.broker_url.replace(f"icefleet:{PASSWORD}", "watcher:watching")

    @cached_property
    def watch(self) -> redis.Redis:
        """Redis, for whoever is to see what is denied."""
        return redis.Redis.from_url(self.watch_url, decode_responses=True)

    def start_redis(self) -> None:
        """Make the certificates as the operations page does, and start Redis with what is shipped."""
        page = (REPOSITORY / "docs" / "operations.md").read_text()
        (commands,) = (text for text in page.split("```")[1::2] if "openssl req" in text)
        script = "\n".join(line.removeprefix("$ ") for line in commands.splitlines()[1:])
        subprocess.run(["sh", "-ec", script], cwd=self.etc, check=True, capture_output=True)
        rules = (REPOSITORY / "deploy" / "users.acl").read_text().replace("change-me", PASSWORD)
        (self.etc / "users.acl").write_text(f"{rules}{WATCHER}\n")
        data = self.root / "redis"
        data.mkdir()
        conf = (REPOSITORY / "deploy" / "redis.conf").read_text()
        conf = conf.replace("/etc/redis", str(self.etc)).replace("/var/lib/redis", str(data))
        (self.etc / "redis.conf").write_text(conf.replace("tls-port 6379", f"tls-port {self.redis_port}"))
        self.run_redis()

    def run_redis(self) -> None:
        """Start Redis, with what it holds."""
        self.processes.start("redis", ["redis-server", str(self.etc / "redis.conf")], self.environment)
        self.processes.wait_for("Redis", self._pong, 10, every=0.05)
