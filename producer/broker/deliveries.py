"""What the broker holds: messages that wait, and those that were delivered and are not acknowledged yet.

Redis loses messages in ways that nobody is told of: with the second before a power cut, when a worker dies between
taking a message and noting that it did, when it is full. What is in none of these places is lost.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from producer.broker.connections import is_redis, redis_at
from producer.broker.queue import QUEUES
from producer.common.settings import Settings

if TYPE_CHECKING:
    import redis

#: Where Celery's transport notes what it has delivered, by the tag of the delivery.
_DELIVERED: Final = "unacked"
_AT_A_TIME: Final = 1000


class Deliveries:
    """Looks into the broker once, when it is first asked."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.broker_url

    @cached_property
    def held(self) -> frozenset[str] | None:
        """Ids of all tasks that wait or are worked on; None for brokers other than Redis, which are not asked.

        A task that ends meanwhile may be among them, and none is missing that was there all the time.
        """
        if not is_redis(self._url):
            return None
        broker = redis_at(self._url)
        delivered = set(_delivered(broker))
        waiting = {id_ for queue in QUEUES.values() for id_ in _waiting(broker, queue)}
        # Once more: what was taken from a queue in between is here now.
        return frozenset(delivered | waiting | set(_delivered(broker)))

    def lost(self, task_id: str) -> bool:
        """Whether nobody holds a task; False where the broker is not asked."""
        return self.held is not None and task_id not in self.held


def _waiting(broker: redis.Redis, queue: str) -> Iterator[str]:
    """From the end where messages come in, so that what is taken at the other end meanwhile moves none of the rest."""
    for start in itertools.count(step=_AT_A_TIME):
        texts = cast("list[str]", broker.lrange(queue, start, start + _AT_A_TIME - 1))
        yield from _ids(json.loads(text) for text in texts)
        if not texts:
            return


def _delivered(broker: redis.Redis) -> Iterator[str]:
    texts = (text for _, text in broker.hscan_iter(_DELIVERED, count=_AT_A_TIME))
    yield from _ids(json.loads(text)[0] for text in texts)


def _ids(messages: Iterable[dict[str, dict[str, str]]]) -> Iterator[str]:
    return (message["headers"]["id"] for message in messages)
