"""What an application loads that only enqueues, and the command line that only lists its commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from producer.cli import main as cli
from tests.support.repository import REPOSITORY

#: What takes long to load: for reading tables, for sending, for showing, for working.
HEAVY = {"celery", "kombu", "numpy", "pandas", "psutil", "pyarrow", "pyiceberg", "pyspark", "redis", "sqlalchemy"}
HELP = "from producer.cli.main import main; import sys; sys.argv = ['icefleet', '--help']; main(standalone_mode=False)"
ENQUEUE = """
from producer import Fleet, Settings
from producer.common.errors import Refused
try:
    Fleet(Settings(_env_file=None, broker_url='redis://127.0.0.1:9/0')).convert('db.t')
except Refused as refused:
    assert 'does not answer' in str(refused)
"""


@pytest.mark.parametrize(
    ("program", "without"),
    [
        pytest.param("import producer", HEAVY | {"pydantic", "rich"}, id="import"),
        pytest.param("from producer import Fleet, Settings; Fleet(Settings())", HEAVY | {"rich"}, id="fleet"),
        pytest.param(HELP, HEAVY | {"pydantic_settings", "rich"}, id="help"),
        pytest.param(ENQUEUE, {"numpy", "pandas", "pyarrow", "pyspark", "rich", "sqlalchemy"}, id="enqueue"),
    ],
)
def test_what_is_loaded(program: str, without: set[str]) -> None:
    program += "\nimport sys; print('loaded', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not without & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", ["config", "jobs", "convert db.t"])
def test_a_configuration_that_cannot_be_read(command: str, tmp_path: Path) -> None:
    """It keeps the modules of commands from being loaded."""
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n\tdefault:\n")
    program = "from producer.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split(), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYICEBERG_HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY)},
    )
    assert (done.returncode, done.stderr) == (2, "")
    report = json.loads(done.stdout)
    assert report["status"] == "refused"
    assert report["reason"].startswith("PyIceberg's configuration (.pyiceberg.yaml in ")
    assert report["reason"].endswith("line 2: found character '\\t' that cannot start any token.")


@pytest.mark.parametrize("name", cli._OWN)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0].startswith(cli._OWN[name][1])
