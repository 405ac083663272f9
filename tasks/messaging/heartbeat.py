"""Heartbeats of workers in Redis, and recovery of the messages that dead workers hold.

A thread of each worker's main process, which holds the messages, counts beats and records which deliveries the worker
holds, three times in ``ICEFLEET_LEASE_SECONDS``. The same thread requeues the deliveries of dead workers: a message
that a killed worker held, machine and all, goes to another worker in little more than that time, long before Redis'
visibility timeout, which is longer than a unit may take. Brokers other than Redis notice themselves when a worker dies.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast
from uuid import uuid4

import redis
from celery.signals import task_received, worker_ready, worker_shutdown
from celery.worker import state
from celery.worker.request import Request

from producer.broker.connections import connection_error, is_redis, redis_at
from producer.broker.leases import expire_lease
from producer.broker.queue import QUEUES, STAGING, job_of_unit
from producer.common.settings import Settings

log = logging.getLogger(__name__)

#: Scans in a row after which a silent worker is dead, and those after which a delivery without an owner is abandoned:
#: workers of the release before record no owner, and a worker may die before it has recorded what it took.
_SCANS_OF_OWNED: Final = 3
_SCANS_OF_UNOWNED: Final = 6

#: Seconds after a message came at which the worker records it as its own, with those that have come since.
_RECORD_DELAY: Final = 0.05

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


class _Owner(NamedTuple):
    """The worker that owns a delivery, and its count of heartbeats; both are empty if there is none."""

    worker: str = ""
    beats: str = ""


@dataclass
class DeliveryRecovery:
    """Scans the deliveries again and again, and gives back those whose worker is dead.

    Silence is counted in scans of this process, not by any clock: a process that was stopped for a while, or could not
    reach Redis, has not scanned in that time.
    """

    broker: redis.Redis
    #: For how long it is remembered that a message without an owner was given back.
    remembered_seconds: int
    #: By tag: the owner, and for how many scans nothing has changed.
    _seen: dict[str, tuple[_Owner, int]] = field(default_factory=dict)

    def scan(self) -> list[str]:
        """Scan the deliveries once; return the ids of the tasks that were given back."""
        try:
            tags, owners = self._deliveries()
        except redis.RedisError:
            self._seen.clear()  # the workers may have been as unable to beat
            raise
        self._seen = {tag: self._count_silence(tag, owners.get(tag, _Owner())) for tag in tags}
        if orphans := [tag for tag, owner in owners.items() if tag not in tags and not owner.beats]:
            self.broker.hdel(OWNERS, *orphans)  # else the entries of dead workers would pile up
        abandoned = [
            (tag, owner)
            for tag, (owner, scans) in self._seen.items()
            if scans >= (_SCANS_OF_OWNED if owner.worker else _SCANS_OF_UNOWNED)
        ]
        return [task for tag, owner in abandoned if (task := self._give_back(tag, owner)) is not None]

    def give_back_all_of(self, worker: str) -> None:
        """Give back what a worker still holds that stops."""
        tags, owners = self._deliveries()
        for tag, owner in sorted(owners.items()):
            if owner.worker == worker and tag in tags:
                self._give_back(tag, owner)

    def _deliveries(self) -> tuple[set[str], dict[str, _Owner]]:
        """Return the tags of all deliveries, and the owners by tag."""
        pipe = self.broker.pipeline(transaction=True)
        pipe.hkeys(_DELIVERED)
        pipe.hgetall(OWNERS)
        tags, owners = cast("tuple[list[str], dict[str, str]]", tuple(pipe.execute()))
        workers = sorted(set(owners.values()))
        beats = cast("list[str | None]", self.broker.mget([beats_key(worker) for worker in workers])) if workers else []
        known = {worker: _Owner(worker, beat or "") for worker, beat in zip(workers, beats, strict=True)}
        return set(tags), {tag: known[worker] for tag, worker in owners.items()}

    def _count_silence(self, tag: str, owner: _Owner) -> tuple[_Owner, int]:
        before, scans = self._seen.get(tag, (None, 0))
        return owner, scans + 1 if before == owner else 0

    def _give_back(self, tag: str, owner: _Owner) -> str | None:
        """Requeue a delivery; return the id of its task, or None if another process has handled it."""
        text = cast("str | None", self.broker.hget(_DELIVERED, tag))
        if text is None or (parsed := _parse(text)) is None:
            return None
        message, queue = parsed
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


def _parse(text: str) -> tuple[dict[str, Any], str] | None:
    """Return a message of the fleet and its queue, or None if another application sent the message."""
    try:
        message = json.loads(text)[0]
        return message, QUEUES[message["headers"]["task"]]
    except (ValueError, LookupError, TypeError):
        return None


class Heartbeat:
    """Beats, records deliveries and recovers those of dead workers for as long as the worker lives."""

    def __init__(self, settings: Settings) -> None:
        self._worker = ""
        self._settings = settings
        self._interval = settings.lease_seconds / 3
        self._recorded: set[str] = set()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self, sender: Any, **_: object) -> None:
        """Begin to beat, when the worker is ready; it is ready again each time that it lost Redis."""
        if not self._worker:
            # A worker that is started again under its name does not own what the one before held.
            self._worker = f"{sender.hostname}/{secrets.token_hex(4)}"
            self._thread.start()

    def record_soon(self, **_: object) -> None:
        """Record a message that has just come, soon."""
        self._wake.set()

    def stop(self, **_: object) -> None:
        """Give back what the worker still holds, and remove all traces that would look like a dead worker."""
        if not self._worker:
            return
        self._stop.set()
        self._wake.set()
        self._thread.join(self._interval)
        try:
            DeliveryRecovery(self._broker, self._settings.visibility_timeout).give_back_all_of(self._worker)
            self._record(frozenset())
            self._broker.delete(beats_key(self._worker))
        except redis.RedisError as error:
            log.warning("the worker cannot sign off: %s", error)

    @property
    def _broker(self) -> redis.Redis:
        return redis_at(self._settings.broker_url)

    def _run(self) -> None:
        recovery = DeliveryRecovery(self._broker, self._settings.visibility_timeout)
        next_beat = time.monotonic()
        while not self._stop.is_set():
            due = time.monotonic() >= next_beat
            if due:
                next_beat = time.monotonic() + self._interval
            try:
                if due:
                    self._beat()
                self._record(held_deliveries())
                if due:
                    recovery.scan()
            except redis.RedisError as error:
                reason = connection_error(self._settings.broker_url, error)
                log.warning("the worker cannot send its heartbeat: %s", reason)
            except Exception:  # this thread has to live as long as the worker
                log.warning("the deliveries of dead workers cannot be recovered", exc_info=True)
            if self._wake.wait(max(next_beat - time.monotonic(), 0.0)):
                self._wake.clear()
                self._stop.wait(_RECORD_DELAY)

    def _beat(self) -> None:
        pipe = self._broker.pipeline(transaction=True)
        pipe.incr(beats_key(self._worker))
        pipe.expire(beats_key(self._worker), self._settings.visibility_timeout)
        pipe.execute()

    def _record(self, tags: Collection[str]) -> None:
        """Record this worker as the owner of exactly these deliveries."""
        pipe = self._broker.pipeline(transaction=True)
        if tags:
            pipe.hset(OWNERS, mapping=dict.fromkeys(tags, self._worker))
        if released := self._recorded.difference(tags):
            pipe.hdel(OWNERS, *released)
        pipe.execute()
        self._recorded = set(tags)


def held_deliveries() -> frozenset[str]:
    """Return the tags of the deliveries that this worker holds: scheduled, reserved for a child, or active."""
    while True:
        try:
            requests: list[Request] = [*state.scheduled_requests, *state.reserved_requests, *state.active_requests]
            return frozenset(str(request.message.delivery_tag) for request in requests)
        except RuntimeError:  # one came during the iteration
            continue


def send_heartbeats(settings: Settings) -> None:
    """Have the worker of this process send heartbeats, if its broker is a Redis."""
    if not is_redis(settings.broker_url):
        return
    heartbeat = Heartbeat(settings)
    worker_ready.connect(heartbeat.start, weak=False)
    task_received.connect(heartbeat.record_soon, weak=False)
    worker_shutdown.connect(heartbeat.stop, weak=False)
