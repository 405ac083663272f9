"""Where modules of others have the names of Icefleet's packages: it says so, and never runs what is not its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from icefleet_main import hidden
from tests.support.repository import REPOSITORY

Start = Callable[..., subprocess.CompletedProcess[str]]

#: A Celery application of somebody else, who is surprised when it is imported.
THEIRS = 'print("THEIRS")\nfrom celery import Celery\napp = Celery("theirs")\n'


@pytest.fixture(params=["on the path", "in the current folder"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Runs the command as it is installed, in a folder of somebody else, or with it on Python's path."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ICEFLEET"))}
        environment |= {"ICEFLEET_BROKER_URL": "redis://127.0.0.1:1/0", "HOME": str(tmp_path), **more}
        folder = tmp_path if request.param == "on the path" else REPOSITORY
        environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(REPOSITORY)])
        safe = ["-P"] if request.param == "on the path" else []
        program = "import sys; from icefleet_main import main; sys.argv[0] = 'icefleet'; main()"
        return subprocess.run(
            [sys.executable, *safe, "-c", program, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("command", "name"),
    [("worker", "workers"), ("beat", "tasks"), ("flower", "tasks"), ("demo", "workers"), ("jobs", "producer")],
)
def test_a_module_that_hides_a_package_is_named(start: Start, tmp_path: Path, name: str, command: str) -> None:
    (tmp_path / f"{name}.py").write_text(THEIRS)
    done = start(command)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"{tmp_path}/{name}.py hides Icefleet's package '{name}'" in done.stderr


def test_a_package_that_hides_one_is_named_too(start: Start, tmp_path: Path) -> None:
    (tmp_path / "producer").mkdir()
    (tmp_path / "producer" / "__init__.py").write_text(THEIRS)
    (tmp_path / "producer" / "cli.py").write_text("def main():\n    print('THEIRS')\n")
    done = start("jobs", "--json")
    assert done.returncode == 2
    reason = json.loads(done.stdout)["reason"]
    assert reason.startswith(f"{tmp_path}/producer/__init__.py hides Icefleet's package 'producer'")
    assert ". " not in reason, "one sentence"


def test_commands_that_need_no_worker_go_on(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(THEIRS)
    done = start("config", "--json")
    assert done.returncode == 0, done.stderr
    helped = start("--help")
    assert helped.returncode == 0, helped.stderr
    assert "worker" in helped.stdout
    assert "THEIRS" not in helped.stdout


def test_without_a_broker_the_same_is_said(tmp_path: Path) -> None:
    """What is to be done in this process needs the hidden package as well."""
    (tmp_path / "workers.py").write_text(THEIRS)
    program = """
from producer.job import local_engine
from producer.common.errors import Refused
from producer.common.settings import Settings
try:
    local_engine(Settings(broker_url=""))
except Refused as refused:
    print(refused)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert f"{tmp_path}/workers.py hides Icefleet's package 'workers'" in done.stdout, done.stderr


def test_nothing_hides_them_here() -> None:
    assert hidden("producer", "tasks", "workers") is None


def test_folders_without_modules_hide_nothing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    done = start("beat", "--help")
    assert "hides" not in done.stderr
    assert "Wake the sweeper" in done.stdout


def test_python_workers_of_spark_import_this_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with another `workers` that came onto the path later hides nothing from them."""
    from workers.runtime import session

    (tmp_path / "workers.py").write_text("raise ImportError('not this one')")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = session._import_path()
    assert path[-1] == str(tmp_path)
    found = PathFinder.find_spec("workers", path)
    assert found is not None
    assert found.origin == str(REPOSITORY / "workers" / "__init__.py")


class TestEnvironment:
    """Variables that are set for another Celery application lead nobody elsewhere."""

    @pytest.mark.parametrize(
        "variables",
        [
            {"CELERY_BROKER_URL": "redis://elsewhere/0"},
            {"CELERY_BROKER_READ_URL": "redis://elsewhere/0", "CELERY_BROKER_WRITE_URL": "redis://elsewhere/0"},
            {"CELERY_CONFIG_MODULE": "theirs"},
            {"CELERY_LOADER": "theirs.Loader"},
        ],
        ids=lambda variables: next(iter(variables)),
    )
    def test_celery_takes_the_address_it_is_given(self, tmp_path: Path, variables: dict[str, str]) -> None:
        (tmp_path / "theirs.py").write_text('broker_url = "redis://elsewhere/0"\ntask_serializer = "pickle"\n')
        program = """
from producer.broker.connections import sender_to
from producer.common.settings import Settings
from tasks.application import app
own = sender_to(Settings.load().broker_url).app
for one in (app, own):
    for made in (one.connection(), one.connection_for_read(), one.connection_for_write(), one.pool.connection):
        print(made.as_uri())
assert (app.conf.task_serializer, own.conf.task_serializer) == ("json", "json")
"""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(tmp_path)])}
        environment |= {"ICEFLEET_BROKER_URL": "redis://here:1234/0", **variables}
        done = subprocess.run(
            [sys.executable, "-P", "-c", program],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert set(done.stdout.split()) == {"redis://:**@here:1234/0"}, done.stdout

    @pytest.mark.parametrize("command", ["beat", "worker", "flower"])
    def test_commands_run_this_application(self, command: str, tmp_path: Path) -> None:
        (tmp_path / "theirs.py").write_text(THEIRS)
        program = f"""
from tasks.application import app, run_command
from celery.bin.celery import celery
seen = []
celery.commands[{command!r}].callback = lambda *_, **__: None
import click
def invoke(context):
    seen.append(context.obj.app)
celery.commands[{command!r}].invoke = invoke
assert run_command(app, [{command!r}]) == 0
assert seen == [app], seen
"""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(tmp_path)])}
        environment |= {"APP": "theirs", "BROKER_URL": "redis://elsewhere/0", "ICEFLEET_BROKER_URL": "redis://here/0"}
        done = subprocess.run(
            [sys.executable, "-P", "-c", program],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
