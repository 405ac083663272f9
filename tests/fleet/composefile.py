"""docker-compose.yml as a machine without Docker runs it: its commands as they stand, on free ports, in own folders."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")

_VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?::?-(?P<default>[^}]*))?\}|(?P<bare>\w+))")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """The value with ``${NAME:-default}`` resolved as Compose does it: in every string, after YAML was parsed."""
    if isinstance(value, dict):
        return {key: interpolated(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, variables) for item in value]
    if not isinstance(value, str):
        return value

    def resolve(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match["name"] or match["bare"]) or match["default"] or ""

    return _VARIABLE.sub(resolve, value)


def seconds(duration: str) -> float:
    """A duration such as ``1m30s``."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smh])", duration))


@dataclass(frozen=True, slots=True)
class Service:
    """One service, read from the file."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    volumes: Mapping[str, str]  # target -> name of the volume; its own path where it has none
    health: tuple[str, ...]
    raw: Mapping[str, Any]


def read_services(path: Path, variables: Mapping[str, str]) -> dict[str, Service]:
    """The services of a compose file, with the given variables instead of the shell's."""
    document = interpolated(yaml.safe_load(path.read_text()), variables)
    return {name: _service(name, raw) for name, raw in document["services"].items()}


def _service(name: str, raw: Mapping[str, Any]) -> Service:
    volumes = {}
    for volume in raw.get("volumes", ()):
        source, _, target = volume.rpartition(":")
        volumes[target] = source or target
    environment = {key: str(value) for key, value in raw.get("environment", {}).items()}
    return Service(
        name,
        _words(raw.get("command", [])),
        environment,
        volumes,
        _health(raw.get("healthcheck", {}).get("test", ())),
        raw,
    )


def _words(command: str | list[str]) -> tuple[str, ...]:
    return tuple(shlex.split(command) if isinstance(command, str) else command)


def _health(test: list[str]) -> tuple[str, ...]:
    if not test:
        return ()
    return ("/bin/sh", "-c", test[1]) if test[0] == "CMD-SHELL" else tuple(test[1:])


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Native:
    """Runs services as processes of this machine: their ports are free ones here, their volumes folders of `root`."""

    root: Path
    services: Mapping[str, Service]
    extra: Mapping[str, str] = field(default_factory=dict)  # variables for every service, such as a small heap
    redis_port: int = field(default_factory=free_port)
    flower_port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def translated(self, service: Service, text: str) -> str:
        """The text with the container's addresses and paths replaced by those of this machine."""
        text = text.replace("redis:6379", f"127.0.0.1:{self.redis_port}")
        text = re.sub(r"\b6379\b", str(self.redis_port), text)
        text = re.sub(r"\b5555\b", str(self.flower_port), text)
        for target, source in service.volumes.items():
            text = re.sub(rf"(?<!\w){re.escape(target)}(?![\w.])", str(self._folder(source)), text)
        return text

    def environment(self, name: str) -> dict[str, str]:
        """What the service's processes see: nothing of the caller's own configuration."""
        service = self.services[name]
        configuration = ("ICEFLEET_", "PYICEBERG_", "FLOWER_")
        own = {key: value for key, value in os.environ.items() if not key.startswith(configuration)}
        own["PATH"] = f"{Path(sys.executable).parent}:{own['PATH']}"
        own["PYICEBERG_HOME"] = own["HOME"] = str(self._folder("home"))
        own["PYTHONUNBUFFERED"] = "1"
        return own | dict(self.extra) | {k: self.translated(service, v) for k, v in service.environment.items()}

    def start(self, name: str, *, also: tuple[str, ...] = ()) -> None:
        """Start a service with its command as it stands in the file, and what else this machine asks for."""
        service = self.services[name]
        command = [self.translated(service, word) for word in service.command]
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*command, *also],
                cwd=self._folder(service.volumes.get("/data", name)),
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def execute(self, name: str, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """What ``docker compose exec NAME COMMAND`` does."""
        service = self.services[name]
        return subprocess.run(
            [self.translated(service, word) for word in command],
            cwd=self._folder("exec"),
            env=self.environment(name),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def stop(self, name: str, timeout: float) -> int:
        """Stop a service as Docker does: SIGTERM to its first process, SIGKILL in the end; returns its exit status."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop_all(self) -> None:
        """Leave nothing behind."""
        for name in reversed(list(self.running)):
            self.stop(name, 20)

    def log(self, name: str) -> Path:
        """Where a service's output goes."""
        return self._folder("logs") / f"{name}.log"

    def logs(self) -> str:
        """The end of what every service said, for the message of a failed test."""
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in self._folder("logs").glob("*.log"))

    def _folder(self, source: str) -> Path:
        folder = self.root / source.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def wait_for(native: Native, what: str, probe: Callable[[], T | None], within: float = 60) -> T:
    """The first true answer of the probe; fails with every service's log when there is none in time."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if answer := probe():
            return answer
        for name, process in native.running.items():
            if process.poll() is not None:
                raise AssertionError(
                    f"{name} ended with {process.returncode} while waiting for {what}\n{native.logs()}"
                )
        time.sleep(0.3)
    raise AssertionError(f"no {what} within {within:.0f} s\n{native.logs()}")
