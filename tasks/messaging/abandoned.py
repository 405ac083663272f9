"""Messages that dead workers hold: found by their silence, and given back to their queues.

Redis gives a message that was delivered and is not acknowledged to another worker when its visibility timeout has
passed, which is longer than a unit may take. Long before that it shows that a worker is dead: live ones beat.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import uuid4

import redis

from producer.broker.leases import lapse
from producer.broker.queue import QUEUES, STAGING, job_of_unit

log = logging.getLogger(__name__)

#: Looks at which a worker must have been silent in a row, and those at which nobody must have vouched for a message:
#: workers of the release before vouch for none, and a worker may die before it has vouched for what it took.
_LOOKS_AT_A_WORKER: Final = 3
_LOOKS_AT_A_MESSAGE: Final = 6

#: Celery's transport keeps what it has delivered here, by the tag of the delivery.
_DELIVERED, _DELIVERED_AT = "unacked", "unacked_index"
#: Which worker vouches for which delivery.
VOUCHED: Final = "icefleet:deliveries"

#: Move one message from what was delivered to its queue, if nothing has changed since it was found abandoned.
#: What nobody ever vouched for is moved once at most: it may be with a worker of the release before.
_GIVE_BACK: Final = """
if redis.call('hget', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if (redis.call('hget', KEYS[3], ARGV[1]) or '') ~= ARGV[3] then return 0 end
if ARGV[3] ~= '' then
  if (redis.call('get', KEYS[4]) or '') ~= ARGV[4] then return 0 end
elseif not redis.call('set', KEYS[6], '1', 'NX', 'EX', ARGV[6]) then
  return 0
end
redis.call('hdel', KEYS[1], ARGV[1])
redis.call('zrem', KEYS[2], ARGV[1])
redis.call('hdel', KEYS[3], ARGV[1])
redis.call('rpush', KEYS[5], ARGV[5])
return 1
"""


@dataclass(frozen=True, slots=True)
class _Voucher:
    """Which worker vouches for a delivery, and how often it has beaten; empty where nobody does."""

    worker: str
    beats: str


@dataclass
class Abandoned:
    """Looks at what was delivered, again and again, and gives back what is abandoned.

    Silence is counted in looks of this process, not by any clock: whoever was stopped for a while, or away from Redis,
    has not looked meanwhile.

    Args:
        broker: The Redis that holds the messages.
        remembered_seconds: For how long it is remembered that a message was given back that nobody vouched for.
    """

    broker: redis.Redis
    remembered_seconds: int
    _seen: dict[str, tuple[_Voucher, int]] = field(default_factory=dict)

    def look(self) -> list[str]:
        """Look once; returns the ids of the tasks that were given back."""
        try:
            tags, vouched, beats = self._delivered()
        except redis.RedisError:
            self._seen.clear()  # the workers may have been as unable to beat
            raise
        self._seen = {tag: self._silence(tag, _voucher(vouched.get(tag, ""), beats)) for tag in tags}
        if strays := [tag for tag, worker in vouched.items() if tag not in tags and not beats[worker]]:
            self.broker.hdel(VOUCHED, *strays)  # else what dead workers leave would pile up
        silent = [(tag, voucher) for tag, (voucher, looks) in self._seen.items() if looks >= _patience(voucher)]
        return [task for tag, voucher in silent if (task := self._give_back(tag, voucher)) is not None]

    def give_back_of(self, worker: str) -> None:
        """Give back what a worker still holds that stops."""
        tags, vouched, beats = self._delivered()
        for tag in sorted(tag for tag, by in vouched.items() if by == worker and tag in tags):
            self._give_back(tag, _voucher(worker, beats))

    def _delivered(self) -> tuple[set[str], dict[str, str], dict[str, str]]:
        """Tags of what was delivered, the workers that vouch for them, and the beats of these workers."""
        pipe = self.broker.pipeline(transaction=True)
        pipe.hkeys(_DELIVERED)
        pipe.hgetall(VOUCHED)
        tags, vouched = cast("tuple[list[str], dict[str, str]]", tuple(pipe.execute()))
        workers = sorted(set(vouched.values()))
        beats = cast("list[str | None]", self.broker.mget([beats_of(worker) for worker in workers])) if workers else []
        return set(tags), vouched, {worker: beat or "" for worker, beat in zip(workers, beats, strict=True)}

    def _silence(self, tag: str, voucher: _Voucher) -> tuple[_Voucher, int]:
        before, looks = self._seen.get(tag, (None, 0))
        return voucher, looks + 1 if before == voucher else 0

    def _give_back(self, tag: str, voucher: _Voucher) -> str | None:
        text = cast("str | None", self.broker.hget(_DELIVERED, tag))
        found = _message(text) if text is not None else None
        if text is None or found is None:
            return None
        message, queue = found
        task = str(message["headers"]["id"])
        message["headers"]["redelivered"] = True
        properties = message["properties"]
        properties.setdefault("delivery_info", {})["redelivered"] = True
        # Another tag than before: a worker that was only stopped acknowledges the old one when it goes on.
        properties["delivery_tag"] = str(uuid4())
        keys = (_DELIVERED, _DELIVERED_AT, VOUCHED, beats_of(voucher.worker), queue, f"icefleet:returned:{task}")
        arguments = (tag, text, voucher.worker, voucher.beats, json.dumps(message), str(self.remembered_seconds))
        if not self.broker.eval(_GIVE_BACK, len(keys), *keys, *arguments):
            return None
        if voucher.worker and message["headers"].get("task") in STAGING.values():
            lapse(self.broker, job_of_unit(task), task)
        holder = f"{voucher.worker} no longer works on it" if voucher.worker else "nobody vouches for it"
        log.warning("%s goes to another worker: %s", task, holder)
        return task


def beats_of(worker: str) -> str:
    """Where a worker counts its beats."""
    return f"icefleet:beats:{worker}"


def _patience(voucher: _Voucher) -> int:
    return _LOOKS_AT_A_WORKER if voucher.worker else _LOOKS_AT_A_MESSAGE


def _voucher(worker: str, beats: dict[str, str]) -> _Voucher:
    return _Voucher(worker, beats.get(worker, ""))


def _message(text: str) -> tuple[dict[str, Any], str] | None:
    """A message of ours and its queue; None for one that another application sent."""
    try:
        message = json.loads(text)[0]
        return message, QUEUES[message["headers"]["task"]]
    except (ValueError, LookupError, TypeError):
        return None
