"""The fleet's Celery application without its tasks: how messages travel, and when the sweeper is woken.

Whoever only looks on, or keeps the time, needs nothing of what tasks import.
"""

from __future__ import annotations

from kombu.entity import Exchange, Queue
from kombu.utils.url import parse_url

from producer.broker.application import Application
from producer.broker.queue import QUEUES, SWEEP
from producer.common.redaction import redact_logs
from producer.common.settings import Settings

redact_logs()
settings = Settings.load()

app = Application(
    "icefleet", broker=settings.broker_url or "memory://", task_cls="tasks.messaging.base_task:RedactedTask"
)
app.conf.update(
    broker_use_ssl=parse_url(settings.broker_url).get("ssl", False),  # Flower does not look into the address for it
    # Declared, so that Flower knows them before workers have told it what they serve. As the messenger makes them: each
    # with an exchange and a routing key of its own name.
    task_queues=[Queue(name, Exchange(name), name) for name in QUEUES.values()],  # type: ignore[no-untyped-call]
    task_default_queue="convert",
    task_routes={name: {"queue": queue} for name, queue in QUEUES.items()},
    # Messages are data: what could run code while it is read is refused unread.
    accept_content=["json"],
    result_accept_content=["json"],
    task_serializer="json",
    event_serializer="json",
    task_ignore_result=True,  # what a task has done is on storage; Flower shows its result from the event
    # A message is given back only when its work is done, and goes to somebody else when the process dies.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_time_limit=settings.hard_limit,
    task_soft_time_limit=settings.unit_seconds,
    # Redis counts from delivery and never renews: what is still being worked on must not be delivered again.
    broker_transport_options={"visibility_timeout": settings.visibility_timeout, "queue_order_strategy": "priority"},
    broker_connection_retry_on_startup=True,
    # A worker that cannot send what comes next has nothing better to do than to wait for Redis.
    task_publish_retry_policy={"max_retries": None, "interval_start": 0, "interval_step": 0.5, "interval_max": 5},
    worker_max_tasks_per_child=settings.recycle_units,
    worker_send_task_events=True,
    task_send_sent_event=False,  # of jobs the messenger tells; a sweep is told of when it has found something
    task_track_started=True,
    beat_schedule={
        "sweep": {"task": SWEEP, "schedule": float(settings.sweep_seconds), "options": {"queue": QUEUES[SWEEP]}},
    },
)
