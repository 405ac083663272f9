"""Recovery of deliveries: messages that dead workers hold are found by the workers' silence and requeued.

Redis gives a message that was delivered and is not acknowledged to another worker when its visibility timeout has
passed, which is longer than a unit may take. The missing heartbeat shows long before that that a worker is dead.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import uuid4

import redis

from producer.broker.leases import expire_lease
from producer.broker.queue import QUEUES, STAGING, job_of_unit

log = logging.getLogger(__name__)

#: Scans in a row after which a silent worker is dead, and those after which a delivery without an owner is abandoned:
#: workers of the release before record no owner, and a worker may die before it has recorded what it took.
_SCANS_OF_OWNED: Final = 3
_SCANS_OF_UNOWNED: Final = 6

#: Celery's transport keeps what it has delivered here, by the tag of the delivery.
_DELIVERED, _DELIVERED_AT = "unacked", "unacked_index"
#: The worker that owns each delivery.
OWNERS: Final = "icefleet:deliveries"

#: Move one delivered message back to its queue, if nothing has changed since it was found abandoned.
#: One that never had an owner is moved once at most: a worker of the release before may hold it.
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
class _Owner:
    """The worker that owns a delivery, and its count of heartbeats; both are empty if there is none."""

    worker: str
    beats: str


@dataclass
class DeliveryRecovery:
    """Scans the deliveries again and again, and gives back those whose worker is dead.

    Silence is counted in scans of this process, not by any clock: a process that was stopped for a while, or could not
    reach Redis, has not scanned meanwhile.

    Args:
        broker: The Redis that holds the messages.
        remembered_seconds: For how long it is remembered that a message without an owner was given back.
    """

    broker: redis.Redis
    remembered_seconds: int
    #: By tag: the owner, and for how many scans nothing has changed.
    _seen: dict[str, tuple[_Owner, int]] = field(default_factory=dict)

    def scan(self) -> list[str]:
        """Scan the deliveries once; return the ids of the tasks that were given back."""
        try:
            tags, owners, beats = self._deliveries()
        except redis.RedisError:
            self._seen.clear()  # the workers may have been as unable to beat
            raise
        self._seen = {tag: self._count_silence(tag, _owner(owners.get(tag, ""), beats)) for tag in tags}
        if orphans := [tag for tag, worker in owners.items() if tag not in tags and not beats[worker]]:
            self.broker.hdel(OWNERS, *orphans)  # else the entries of dead workers would pile up
        abandoned = [(tag, owner) for tag, (owner, scans) in self._seen.items() if scans >= _max_scans(owner)]
        return [task for tag, owner in abandoned if (task := self._give_back(tag, owner)) is not None]

    def give_back_all_of(self, worker: str) -> None:
        """Give back what a worker still holds that stops."""
        tags, owners, beats = self._deliveries()
        for tag in sorted(tag for tag, owner in owners.items() if owner == worker and tag in tags):
            self._give_back(tag, _owner(worker, beats))

    def _deliveries(self) -> tuple[set[str], dict[str, str], dict[str, str]]:
        """Return the tags of all deliveries, their owners, and the heartbeats of these workers."""
        pipe = self.broker.pipeline(transaction=True)
        pipe.hkeys(_DELIVERED)
        pipe.hgetall(OWNERS)
        tags, owners = cast("tuple[list[str], dict[str, str]]", tuple(pipe.execute()))
        workers = sorted(set(owners.values()))
        beats = cast("list[str | None]", self.broker.mget([beats_key(worker) for worker in workers])) if workers else []
        return set(tags), owners, {worker: beat or "" for worker, beat in zip(workers, beats, strict=True)}

    def _count_silence(self, tag: str, owner: _Owner) -> tuple[_Owner, int]:
        before, scans = self._seen.get(tag, (None, 0))
        return owner, scans + 1 if before == owner else 0

    def _give_back(self, tag: str, owner: _Owner) -> str | None:
        """Requeue a delivery; return the id of its task, or None if another process has handled it."""
        text = cast("str | None", self.broker.hget(_DELIVERED, tag))
        found = _parse(text) if text is not None else None
        if text is None or found is None:
            return None
        message, queue = found
        task = str(message["headers"]["id"])
        message["headers"]["redelivered"] = True
        properties = message["properties"]
        properties.setdefault("delivery_info", {})["redelivered"] = True
        # Another tag than before: a worker that was only stopped acknowledges the old one when it goes on.
        properties["delivery_tag"] = str(uuid4())
        keys = (_DELIVERED, _DELIVERED_AT, OWNERS, beats_key(owner.worker), queue, f"icefleet:returned:{task}")
        arguments = (tag, text, owner.worker, owner.beats, json.dumps(message), str(self.remembered_seconds))
        if not self.broker.eval(_GIVE_BACK, len(keys), *keys, *arguments):
            return None
        if owner.worker and message["headers"].get("task") in STAGING.values():
            expire_lease(self.broker, job_of_unit(task), task)
        reason = f"{owner.worker} no longer works on it" if owner.worker else "no worker holds it"
        log.warning("%s goes to another worker: %s", task, reason)
        return task


def beats_key(worker: str) -> str:
    """Return the key under which a worker counts its heartbeats."""
    return f"icefleet:beats:{worker}"


def _max_scans(owner: _Owner) -> int:
    return _SCANS_OF_OWNED if owner.worker else _SCANS_OF_UNOWNED


def _owner(worker: str, beats: dict[str, str]) -> _Owner:
    return _Owner(worker, beats.get(worker, ""))


def _parse(text: str) -> tuple[dict[str, Any], str] | None:
    """Return a message of the fleet and its queue, or None if another application sent the message."""
    try:
        message = json.loads(text)[0]
        return message, QUEUES[message["headers"]["task"]]
    except (ValueError, LookupError, TypeError):
        return None
