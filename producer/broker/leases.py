"""Leases of units in Redis: which worker works on which unit.

A worker renews its lease while it works. A lease shows who holds a unit, its progress and when its worker was last
seen, and keeps a unit whose message came twice from running twice. Correctness does not depend on it: the first staged
record of a unit counts. All times are by the clock of Redis, since those of machines differ.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from producer.broker.connections import FleetRedis
from producer.common.settings import Settings

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

_NOW: Final = "local t = redis.call('time') local now = t[1] + t[2] / 1000000 "

#: Acquire a lease unless another process holds it; else return that process's worker. An expired lease is checked a
#: second time before it is taken over: Redis may have been away, so that its holder could not renew it.
_ACQUIRE: Final = (
    _NOW
    + """
local text = redis.call('hget', KEYS[1], ARGV[1])
if text then
  local other, lasts = cjson.decode(text), tonumber(ARGV[4])
  if other.token ~= ARGV[3] then
    if now - other.seen < lasts then return other.worker end
    if not other.doubted then
      other.doubted = now
      redis.call('hset', KEYS[1], ARGV[1], cjson.encode(other))
    end
    if now - other.doubted < lasts / 2 then return other.worker end
  end
end
local lease = {worker = ARGV[2], token = ARGV[3], since = now, seen = now, files_done = 0, files = 0}
redis.call('hset', KEYS[1], ARGV[1], cjson.encode(lease))
redis.call('expire', KEYS[1], ARGV[5])
return false
"""
)

#: Renew a lease that this process still holds. One that another process acquired, or that Redis lost, stays as it is.
_RENEW: Final = (
    _NOW
    + """
local text = redis.call('hget', KEYS[1], ARGV[1])
if not text then return 0 end
local lease = cjson.decode(text)
if lease.token ~= ARGV[2] then return 0 end
lease.seen, lease.files_done, lease.files, lease.doubted = now, tonumber(ARGV[3]), tonumber(ARGV[4]), nil
redis.call('hset', KEYS[1], ARGV[1], cjson.encode(lease))
redis.call('expire', KEYS[1], ARGV[5])
return 1
"""
)

#: Skip the second check of a lease because its worker is known to be dead.
_EXPIRE: Final = """
local text = redis.call('hget', KEYS[1], ARGV[1])
if not text then return 0 end
local lease = cjson.decode(text)
lease.doubted = lease.seen
redis.call('hset', KEYS[1], ARGV[1], cjson.encode(lease))
return 1
"""

#: Release a lease that this process still holds.
_RELEASE: Final = """
local text = redis.call('hget', KEYS[1], ARGV[1])
if text and cjson.decode(text).token == ARGV[2] then return redis.call('hdel', KEYS[1], ARGV[1]) end
return 0
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """The worker that holds a unit. Times are in seconds since 1970, by the clock of Redis."""

    unit: int
    partition: str
    #: The worker's name in Flower.
    worker: str
    #: When it started the unit.
    since: float
    #: When it last renewed its lease.
    seen: float
    #: Seconds since then.
    silent: float
    #: Data files of the unit that are done, and all of them; 0 of 0 while unknown.
    files_done: int = 0
    files: int = 0


class Leases(FleetRedis):
    """The leases of units. Without Redis every unit is free."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._lease_seconds = settings.lease_seconds
        self._keep_seconds = settings.visibility_timeout

    def acquire(self, job: str, task: str, worker: str, token: str) -> str | None:
        """Acquire the lease of a unit; ``token`` identifies the process among workers of the same name in Flower.

        Returns:
            The other worker that holds the lease and may be alive, or None if the lease was acquired.
        """
        if not self:
            return None
        arguments = (task, worker, token, self._lease_seconds, self._keep_seconds)
        return cast("str | None", self._redis.eval(_ACQUIRE, 1, _key(job), *map(str, arguments)))

    def renew(self, job: str, task: str, token: str, files_done: int, files: int) -> None:
        """Renew a lease and record the unit's progress."""
        if self:
            arguments = (task, token, files_done, files, self._keep_seconds)
            self._redis.eval(_RENEW, 1, _key(job), *map(str, arguments))

    def release(self, job: str, task: str, token: str) -> None:
        """Release a lease."""
        if self:
            self._redis.eval(_RELEASE, 1, _key(job), task, token)

    def holders_of(self, job: str, units: dict[str, tuple[int, str]]) -> tuple[Holder, ...]:
        """Return the holders of these units of a job in the order of their numbers; none if Redis does not answer.

        ``units`` has the number and the partition of each unit by the id of its task.
        """
        if not self or not units:
            return ()
        from redis.exceptions import RedisError

        try:
            leases = cast("dict[str, str]", self._redis.hgetall(_key(job)))
            seconds, micros = self._redis.time()
        except RedisError as error:
            log.warning("the workers of %s are unknown: %s", job, error)
            return ()
        now = seconds + micros / 1_000_000
        found = ((units[task], json.loads(text)) for task, text in leases.items() if task in units)
        return tuple(sorted((_holder(*unit, lease, now) for unit, lease in found), key=lambda holder: holder.unit))


def expire_lease(broker: redis.Redis, job: str, task: str) -> None:
    """Let a lease expire without a second check because its worker is dead; one that is renewed nevertheless stays."""
    broker.eval(_EXPIRE, 1, _key(job), task)


def _holder(unit: int, partition: str, lease: dict[str, Any], now: float) -> Holder:
    since, seen = float(lease["since"]), float(lease["seen"])
    files_done, files = int(lease["files_done"]), int(lease["files"])
    return Holder(unit, partition, lease["worker"], since, seen, max(now - seen, 0.0), files_done, files)


def _key(job: str) -> str:
    return f"icefleet:holders:{job}"
