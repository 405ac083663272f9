"""``icefleet worker``: serves the fleet from this machine, sized to it."""

from __future__ import annotations

import os
import socket
import sys
from importlib.util import find_spec

import click

from producer.broker.queue import COMMIT, PLAN, QUEUES, STAGING
from producer.common.errors import Reason, Refused

# Looked for and not imported: `icefleet --help` lists this command and does not wait for what it needs.
for _needed in ("psutil", "pyspark"):
    if find_spec(_needed) is None:
        raise ModuleNotFoundError(f"No module named {_needed!r}", name=_needed)


@click.command(context_settings={"show_default": True})
@click.option("--queues", default=",".join(QUEUES.values()), help="What this worker serves, separated by commas.")
@click.option("--concurrency", default=1, type=click.IntRange(1, 64), help="Units at a time, a session each.")
@click.option("--name", default="icefleet@%h", help="The worker's name in Flower; %h is the host.")
@click.option(
    "--beat",
    is_flag=True,
    help="Wake the sweeper as well, as `icefleet beat` does; for one worker of the fleet at most.",
)
@click.option(
    "--log-level",
    default="INFO",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    help="Lowest level that the worker logs, to standard error.",
)
def worker(queues: str, concurrency: int, name: str, beat: bool, log_level: str) -> None:
    """Serve the fleet at ICEFLEET_BROKER_URL from this machine.

    Spark's cores and heap follow from the machine's (or its cgroup's) cores and memory, shared among --concurrency;
    ICEFLEET_CORES, ICEFLEET_HEAP_MB and ICEFLEET_MEMORY_MB override that. On SIGTERM the worker finishes
    its units for up to ICEFLEET_SHUTDOWN_SECONDS, then gives them back; a second SIGTERM stops it at once.

    \b
    Examples:
      icefleet worker                                              everything, on one machine
      icefleet worker --queues convert,compact --name big@%h       only the heavy work
      icefleet worker --queues plan,commit,sweep --beat            the committer, without Spark
    """
    # Loaded when a worker is started: `icefleet --help` does not wait for it.
    from producer.common.settings import Settings
    from tasks.lifecycle.stage import budget_of
    from workers.runtime.session import NoJava, find_java

    settings = Settings.load()
    if settings.local:
        raise Refused(Reason.CONFIGURATION, "ICEFLEET_BROKER_URL is not set: a worker needs a broker to listen to.")
    unknown = [queue for queue in queues.split(",") if queue not in QUEUES.values()]
    if unknown:
        raise Refused(Reason.USAGE, f"There is no queue {unknown[0]!r}; there are {', '.join(QUEUES.values())}.")
    serves = [queue for queue in QUEUES.values() if queue in queues.split(",")]
    stages = bool(set(serves) & {QUEUES[task] for task in STAGING.values()})
    if stages:
        budget = budget_of(settings, concurrency)
        try:
            find_java()
        except NoJava as error:
            raise Refused(Reason.CONFIGURATION, str(error)) from error
        # The children read what each of them may use from the environment; else each would take the whole machine.
        os.environ["ICEFLEET_CORES"] = str(budget.cores)
        os.environ["ICEFLEET_HEAP_MB"] = str(budget.heap_bytes >> 20)
        os.environ["ICEFLEET_MEMORY_MB"] = str(budget.memory_bytes >> 20)
        click.echo(f"{concurrency} × {budget.cores} cores, {budget.heap_bytes >> 20} MB heap each", err=True)

    arguments = ["worker", "-E", "-O", "fair", "--queues", ",".join(serves), "--concurrency", str(concurrency)]
    arguments += ["--hostname", name.replace("%h", socket.gethostname()), "--loglevel", log_level, "--without-mingle"]
    arguments += ["--max-tasks-per-child", str(settings.recycle_units * _tasks_per_unit(serves))]
    if stages:
        from tasks.child_process import ChildSession

        ChildSession(Settings.load()).connect()
    # The application takes its settings from the environment when it is imported.
    from tasks.app import app
    from tasks.application import EmbeddedBeat, run_command

    if beat:
        app.steps["worker"].add(EmbeddedBeat)
    sys.exit(run_command(app, arguments))


def _tasks_per_unit(serves: list[str]) -> int:
    """Celery counts tasks of any kind: a unit of a small job comes with one that plans it and one that commits it."""
    return 1 + sum(QUEUES[task] in serves for task in (PLAN, COMMIT))
