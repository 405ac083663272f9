"""Messages to a fleet as they lie in a queue, saved by one version so that later ones can be tested to run them.

A queue holds the same document for each message, whether it is in Redis or in this process: its body is the arguments,
and its headers name the task.
"""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any, cast

import pytest
from celery.exceptions import Retry
from kombu.transport.memory import Channel

from producer.broker.queue import QUEUES, STAGING, SWEEP, Messenger, UnitMessage
from producer.common.settings import Settings
from producer.model.job import Operation, Request
from producer.model.plan import Plan

#: A message by the name of its kind: the queue that it is sent to, and the document in that queue.
Messages = dict[str, dict[str, Any]]
#: The broker in this process.
_MEMORY = Settings(_env_file=None, broker_url="memory://", board_url="")


def read_messages(path: Path) -> Messages:
    """Return saved messages."""
    return cast(Messages, json.loads(path.read_text()))


def write_messages(path: Path, messages: Messages) -> None:
    """Save messages."""
    path.write_text(json.dumps(messages, indent=1, ensure_ascii=False) + "\n")


def arguments_of(message: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a message carries."""
    unnamed, named, _ = json.loads(b64decode(message["body"]))
    assert unnamed == []
    return cast("dict[str, Any]", named)


def messages_of(plan: Plan) -> Messages:
    """Return the messages that this version sends for a job, from its planning to the sweep after it."""
    from tasks.app import app

    _sent()
    messenger, request = Messenger(_MEMORY), plan.request
    messages: Messages = {}
    messenger.plan(request)
    messages["plan"] = _sent()
    options = {"rewrite-all": "true", "strategy": "sort", "sort-order": "id desc"}
    messenger.plan(
        Request.new(
            request.table,
            operation=request.operation,
            branch="audit",
            where="p = 'a'",
            all_or_nothing=True,
            options=options if request.operation is Operation.COMPACT else {},
        )
    )
    messages["plan-with-every-argument"] = _sent()
    for unit in plan.units:
        messenger.stage(plan, [unit.number])
        messages[f"unit-{unit.number}"] = _sent()
    messenger.commit(request.job, plan.location)
    messages["commit"] = _sent()
    schedule = app.conf.beat_schedule["sweep"]
    app.tasks[SWEEP].apply_async((), {}, **schedule["options"])
    messages["sweep"] = _sent()
    messages["unit-0-retried"] = _retried(app.tasks[STAGING[request.operation]], messages["unit-0"]["message"])
    return messages


def _retried(task: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Have a task fail for a reason that may pass, and return the message that its worker sends again."""
    arguments, headers = arguments_of(message), message["headers"]
    own = {name: value for name, value in headers.items() if name.startswith("icefleet")}
    task.push_request(
        **{name: headers[name] for name in ("id", "retries", "root_id", "parent_id", "eta", "expires")},
        args=[],
        kwargs=arguments,
        headers=own,
        delivery_info=message["properties"]["delivery_info"],
        called_directly=False,
    )
    try:
        with pytest.raises(Retry):
            task._retry_or_abort(UnitMessage(**arguments), OSError("storage is away"))
    finally:
        task.pop_request()
    return _sent()


def _sent() -> dict[str, Any]:
    """Take the last message that was sent out of its queue."""
    last: dict[str, Any] = {}
    for name in QUEUES.values():
        queue = Channel.queues.get(name)
        while queue is not None and queue.qsize():
            last = {"queue": name, "message": queue.get()}
    return last
