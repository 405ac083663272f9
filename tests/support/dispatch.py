"""The fleet's own tasks in this process: messages in a list, and a sweeper that comes when the list is empty."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from celery import states

from producer.broker.queue import LOCATION, Messenger
from producer.common.errors import Refused
from producer.common.settings import Settings
from producer.model.job import Operation, Report, Request
from producer.state.job_store import JobStore
from tasks.messaging.base_task import Unfinished, Unsuccessful
from tasks.testing import StreamTable

Message = tuple[str, dict[str, Any], dict[str, Any], int]


@dataclass(frozen=True)
class Again(Exception):
    """A task that asks to be tried again."""

    exc: BaseException
    countdown: float
    headers: Mapping[str, Any] | None = None


class Dispatch:
    """Gives messages to tasks, one after another, as Celery does.

    Attributes:
        queue: Name, arguments, headers and number of tries of each message that waits.
        done: The name of each task that ran, and what became of it.
        before: Called with the name and the arguments of each task ahead of it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tasks import app
        from tasks.messaging import delivery

        self.settings = Settings(broker_url="", board_url="", max_attempts=3)
        self.queue: deque[Message] = deque()
        self.done: list[tuple[str, str]] = []
        self.before: Callable[[str, dict[str, Any]], None] = lambda name, arguments: None
        self._app = app.app
        monkeypatch.setattr(app, "settings", self.settings)
        monkeypatch.setattr(Messenger, "_send", lambda _, *message: self._send(*message))
        monkeypatch.setattr(delivery.DeliveredTask, "retry", _again)
        monkeypatch.setattr(delivery.DeliveredTask, "send_event", lambda *_, **__: None)

    def _send(self, name: str, arguments: dict[str, Any], task_id: str, location: str | None = None) -> None:
        headers = {LOCATION: location} if location else {}
        self.queue.append((name, json.loads(json.dumps(arguments)), headers, 0))

    def step(self) -> None:
        """Give the next message out."""
        name, arguments, headers, tries = self.queue.popleft()
        self.before(name, arguments)
        task = self._app.tasks[name]
        task.push_request(retries=tries, headers=headers, kwargs=arguments)
        try:
            self.done.append((name, task(**arguments)))
        except Again as again:
            self.done.append((name, f"{states.RETRY}: {again.exc}"))
            self.queue.append((name, arguments, dict(again.headers or headers), tries + 1))
        except (Refused, Unsuccessful) as error:
            self.done.append((name, f"{states.FAILURE}: {error}"))
        except Unfinished as end:
            self.done.append((name, str(end)))
        finally:
            task.pop_request()

    def run(self, stream: StreamTable, request: Request, most: int = 60) -> Report:
        """Have a job worked on until its report is there; fails when that takes more messages than it should."""
        from tasks.messaging.sweeper import sweep

        Messenger(self.settings).plan(request)
        for _ in range(most):
            if not self.queue:
                sweep(self.settings)
            if self.queue:
                self.step()
            if (report := self.report(stream, request)) is not None:
                return report
        raise AssertionError(f"the job does not end: {self.done}")

    def report(self, stream: StreamTable, request: Request) -> Report | None:
        """How a job ended, as its table tells."""
        last = JobStore(stream.table.io, stream.table.location(), "").last(Operation(request.operation))
        return last if last is not None and last.job == request.job else None


def _again(
    self: Any,
    *,
    exc: BaseException,
    countdown: float,
    throw: bool = True,
    headers: Mapping[str, Any] | None = None,
) -> Again:
    return Again(exc, countdown, headers)
