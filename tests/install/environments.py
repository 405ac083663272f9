"""Environments with what pip installs for an extra, and nothing else: no package of the tests, no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.repository import REPOSITORY

#: What the image is built from, and the wheel.
SOURCES = (
    "pyproject.toml",
    "constraints.txt",
    "README.md",
    "LICENSE",
    "icefleet_main.py",
    "producer",
    "tasks",
    "workers",
)
#: What would let a process see more than its environment.
_CONFIGURATION = ("ICEFLEET_", "PYICEBERG_", "FLOWER_", "CELERY_", "PYTEST_", "PYTHON", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Environment:
    """A virtual environment, in a folder of its own."""

    root: Path
    #: A folder that holds nothing, for processes to start in.
    empty: Path

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.root / "bin" / "python"

    def command(self, *words: str) -> list[str]:
        """A command by the path of its program, if the environment has it."""
        program = self.root / "bin" / words[0]
        assert program.exists(), f"{words[0]} is not installed by this extra"
        return [str(program), *words[1:]]

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What its processes see: nothing of the caller's own configuration, nor of its environment."""
        given = {**os.environ, **(more or {})}
        own = {key: value for key, value in given.items() if not key.startswith(_CONFIGURATION)}
        own |= {key: value for key, value in (more or {}).items() if not key.startswith("PYTHON")}
        mine = str(Path(sys.executable).parent)
        path = [entry for entry in os.environ["PATH"].split(os.pathsep) if entry != mine]
        return own | {"PATH": os.pathsep.join([str(self.root / "bin"), *path])}

    def run(
        self, *words: str, more: Mapping[str, str] | None = None, timeout: float = 200
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its programs to its end, in an empty folder."""
        return subprocess.run(
            self.command(*words),
            cwd=self.empty,
            env=self.variables(more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def said(self, *words: str, more: Mapping[str, str] | None = None, timeout: float = 200) -> str:
        """What one of its programs prints when it succeeds."""
        done = self.run(*words, more=more, timeout=timeout)
        assert done.returncode == 0, f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@dataclass
class Warehouse:
    """The wheel of this checkout and those of all that its extras ask for, and environments made of them."""

    root: Path
    environments: dict[str, Environment] = field(default_factory=dict)

    @property
    def wheels(self) -> Path:
        """The folder of the wheels."""
        return self.root / "wheels"

    @property
    def options(self) -> list[str]:
        """What has pip take the wheels, and the versions that are pinned."""
        return ["--no-index", "--find-links", str(self.wheels), "-c", str(REPOSITORY / "constraints.txt")]

    def fill(self) -> None:
        """Build the wheel and fetch the others, each once."""
        source = copy_sources(self.root / "source")
        pinned = ["-c", str(REPOSITORY / "constraints.txt")]
        wanted = ["setuptools", "wheel", f"{source}[worker,sqlite,flower,demo]"]
        _pip("wheel", "--no-build-isolation", *pinned, "--wheel-dir", str(self.wheels), *wanted)

    def environment(self, extras: str) -> Environment:
        """The environment of some extras, separated by commas; made when it is first asked for."""
        if extras not in self.environments:
            root = self.root / f"environment-{extras.replace(',', '-')}"
            empty = self.root / f"folder-{extras.replace(',', '-')}"
            empty.mkdir()
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
            wanted = f"icefleet[{extras}]" if extras else "icefleet"
            _pip("--python", str(root / "bin" / "python"), "install", *self.options, wanted)
            self.environments[extras] = Environment(root, empty)
        return self.environments[extras]


def copy_sources(folder: Path) -> Path:
    """Copy what is shipped, so that nothing is built in the checkout."""
    folder.mkdir()
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    return folder


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *arguments],
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"pip {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
