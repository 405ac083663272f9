"""What an application loads that only enqueues, and the command line that only lists its commands."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from producer.cli import main as cli

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


@pytest.mark.parametrize("name", cli._OWN)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0].startswith(cli._OWN[name][1])
