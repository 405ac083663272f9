"""Every operation is found everywhere through the registry."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from producer.broker.queue import QUEUES, STAGING
from producer.cli.main import main
from producer.model.job import Operation, Report, Request, Status
from producer.planning import OPERATIONS


def test_every_operation_has_a_definition() -> None:
    assert set(OPERATIONS) == set(Operation)


@pytest.mark.parametrize("operation", Operation)
def test_names_follow_from_the_operation(operation: Operation) -> None:
    assert STAGING[operation] == f"icefleet.{operation}"
    assert QUEUES[STAGING[operation]] == operation
    assert Request.new("db.t", operation=operation).job.startswith(f"{operation}:default:db.t:")


@pytest.mark.parametrize("operation", Operation)
def test_every_operation_has_a_command(operation: Operation) -> None:
    command = main.get_command(click.Context(main), operation)
    assert command is not None
    assert command.name == operation
    assert command.help is not None
    assert command.help.startswith(OPERATIONS[operation].summary)


@pytest.mark.parametrize("operation", Operation)
def test_every_result_is_described(operation: Operation) -> None:
    report = Report(job="job", table="db.t", operation=operation, status=Status.COMMITTED, snapshot_id=1)
    assert OPERATIONS[operation].describe_result(report)


def test_queues_keep_their_names_and_order() -> None:
    """Workers of other versions serve them: what has begun is finished first."""
    assert list(QUEUES.items()) == [
        ("icefleet.commit", "commit"),
        ("icefleet.convert", "convert"),
        ("icefleet.compact", "compact"),
        ("icefleet.plan", "plan"),
        ("icefleet.sweep", "sweep"),
    ]


def test_definitions_load_neither_pyiceberg_nor_arrow() -> None:
    program = "import sys, producer.planning; print(*{n.partition('.')[0] for n in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not {"pyiceberg", "pyarrow", "numpy", "celery", "redis"} & set(done.stdout.split())
