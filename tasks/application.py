"""The fleet's Celery application without its tasks: its configuration, and how its commands and processes run.

`icefleet beat` and `icefleet flower` need no more, and nothing that tasks import.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from celery import Celery, bootsteps
from celery.beat import EmbeddedService
from celery.schedules import schedstate, schedule
from celery.signals import worker_shutting_down
from kombu.entity import Exchange, Queue
from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.url import parse_url

from producer.broker.application import Application
from producer.broker.connections import is_away
from producer.broker.queue import QUEUES, SWEEP, Messenger
from producer.common.errors import Reason, Refused
from producer.common.redaction import redact_logs
from producer.common.settings import Settings
from producer.storage.concurrency import limit_requests


class Interval(schedule):
    """A schedule that is due too when its last run lies in the future, as it does once the clock was set back.

    Celery's own would wait until the clock reaches that run again, and nobody would sweep for so long.
    """

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Return whether it is due, and in how many seconds to look again."""
        state = super().is_due(last_run_at)
        return schedstate(is_due=True, next=self.seconds) if state.next > self.seconds else state


#: Seconds after which a sweep that no worker took is dropped. Much longer than between two sweeps: the clocks of
#: machines may differ by minutes.
_SWEEP_EXPIRES: Final = 3600

redact_logs()
settings = Settings.load()
limit_requests(settings.storage_requests)
TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), "tasks.messaging.transport:Transport"))

app = Application(
    "icefleet", broker=settings.broker_url or "memory://", task_cls="tasks.messaging.base_task:RedactedTask"
)
app.conf.update(
    broker_use_ssl=parse_url(settings.broker_url).get("ssl", False),  # Flower does not read it from the URL
    # Declared, so that Flower knows them before a worker announces what it serves. As the messenger makes them: each
    # with an exchange and a routing key of its own name.
    task_queues=[Queue(name, Exchange(name), name) for name in QUEUES.values()],  # type: ignore[no-untyped-call]
    task_default_queue="convert",
    task_routes={name: {"queue": queue} for name, queue in QUEUES.items()},
    # Messages are data: what could run code while it is read is refused unread.
    accept_content=["json"],
    result_accept_content=["json"],
    task_serializer="json",
    event_serializer="json",
    task_ignore_result=True,  # results are on storage; Flower shows them from events
    # A message is acknowledged only when its work is done, and goes to another worker if the process dies.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_time_limit=settings.hard_limit,
    task_soft_time_limit=settings.unit_seconds,
    broker_transport_options={
        # Redis counts from the delivery and never renews: a message in progress must not be delivered again.
        "visibility_timeout": settings.visibility_timeout,
        "queue_order_strategy": "priority",
        # By default a read waits for ever: when the host of Redis goes away silently, a worker would stand still while
        # its heartbeat goes on. The longest wait that Redis is asked for is one second, for messages.
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
    },
    broker_connection_retry_on_startup=True,
    # By default a worker that has tried to connect 100 times, which takes 50 minutes, ends with status 1; so does beat.
    broker_connection_max_retries=None,
    # A worker that cannot send the next message waits for Redis.
    task_publish_retry_policy={"max_retries": None, "interval_start": 0, "interval_step": 0.5, "interval_max": 5},
    worker_max_tasks_per_child=settings.recycle_units,
    worker_send_task_events=True,
    task_send_sent_event=False,  # the messenger sends that of a job; a sweep sends events if it finds something
    task_track_started=True,
    beat_schedule={
        "sweep": {
            "task": SWEEP,
            "schedule": Interval(settings.sweep_seconds),
            "options": {"queue": QUEUES[SWEEP], "expires": _SWEEP_EXPIRES},
        },
    },
)


class EmbeddedBeat(bootsteps.StartStopStep):
    """Celery beat as a thread of the worker's own process, so that it lives exactly as long as the worker.

    Celery's own ``--beat`` is a child process that is not restarted when it dies: the worker would go on, and jobs that
    lost a message would wait for ever.
    """

    label = "Beat"

    def create(self, worker: Any) -> Any:
        """Create the scheduler; one in memory is enough for one schedule."""
        return EmbeddedService(worker.app, thread=True, scheduler_cls="celery.beat:Scheduler")

    def stop(self, worker: Any) -> None:
        """Stop the scheduler; the worker does not wait for it, since it may be waiting for the broker."""
        self.obj.service.stop()

    terminate = stop


def limit_warm_shutdown() -> None:
    """Turn a warm shutdown into a cold one after ``ICEFLEET_SHUTDOWN_SECONDS``, or at the second SIGTERM.

    Celery's warm shutdown waits for running tasks without limit, and a task that is killed in the end comes back only
    after the broker's visibility timeout. A cold shutdown gives its message back at once.
    """

    def shutting_down(how: str, **_: object) -> None:
        if how.lower() != "warm":
            return
        timer = threading.Timer(settings.shutdown_seconds, _shut_down_cold)
        timer.daemon = True
        timer.start()
        signal.signal(signal.SIGTERM, _shut_down_cold)

    worker_shutting_down.connect(shutting_down, weak=False)


def _shut_down_cold(_signal: int = 0, _frame: FrameType | None = None) -> None:
    os.kill(os.getpid(), signal.SIGQUIT)


def run_command(app: Celery, arguments: Sequence[str]) -> int:
    """Run one of ``celery``'s commands for an application; return the exit status.

    ``app.start`` and ``app.worker_main`` read the environment first: where ``APP`` is set, which is common, they run
    another application.

    Raises:
        Refused: The address of the broker is wrong. Celery waits for a broker that is away.
    """
    try:
        Messenger(settings).check()
    except Refused as error:
        if not is_away(error):
            raise
        click.echo(f"{error} Waiting for it.", err=True)
    from celery.bin.base import CLIContext  # imports Flower, if that is installed
    from celery.bin.celery import celery

    name, *rest = arguments
    command = celery.commands[name]
    shared = CLIContext(app=app, no_color=False, workdir=None, quiet=False)
    parent = click.Context(celery, info_name="icefleet", obj=shared)
    try:
        with command.make_context(name, rest, parent=parent) as context:
            command.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code or 0
    return 0


def state_folder() -> Path:
    """Return the folder of what processes keep between runs; create it, for this user alone, if it is missing.

    Raises:
        Refused: It cannot be created.
    """
    folder = settings.state_folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        sentence = f"The folder {folder} cannot be made ({error.strerror}): have ICEFLEET_STATE_DIR name another."
        raise Refused(Reason.CONFIGURATION, sentence) from error
    return folder
