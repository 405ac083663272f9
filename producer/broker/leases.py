"""Who works on which unit: leases that a unit's worker renews in Redis while it works.

A lease tells people who holds a unit, how far it is, and since when its worker was not seen; it keeps a message that
came twice from having the unit worked on twice. Rows do not depend on it: a unit may run twice, and the first staged
record counts. All times are those of Redis' clock, so that machines whose clocks differ agree.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from producer.broker.connections import redis_at
from producer.common.settings import Settings

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

_NOW: Final = "local t = redis.call('time') local now = t[1] + t[2] / 1000000 "

#: Take a lease unless another process holds it; returns the worker that holds it, if so. A lease that has lapsed is
#: looked at a second time: Redis may have been away, and its holder unable to renew it.
_TAKE: Final = (
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

#: Renew a lease that is still one's own. One that another process took, or that Redis lost, stays as it is.
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

#: Have a lease count as lapsed as soon as it has not been renewed for long enough: its worker is known to be dead.
_LAPSE: Final = """
local text = redis.call('hget', KEYS[1], ARGV[1])
if not text then return 0 end
local lease = cjson.decode(text)
lease.doubted = lease.seen
redis.call('hset', KEYS[1], ARGV[1], cjson.encode(lease))
return 1
"""

_DROP: Final = """
local text = redis.call('hget', KEYS[1], ARGV[1])
if text and cjson.decode(text).token == ARGV[2] then return redis.call('hdel', KEYS[1], ARGV[1]) end
return 0
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """The worker that holds a unit; times are in seconds since 1970, by the clock of Redis."""

    unit: int
    partition: str
    #: The worker's name in Flower.
    worker: str
    #: When it began.
    since: float
    #: When it renewed its lease last.
    seen: float
    #: For how many seconds it has not been seen.
    silent: float
    #: Of the unit's data files, how many are done; 0 of 0 while that is not known.
    files_done: int = 0
    files: int = 0


class Holders:
    """The leases of the units that are worked on; without a Redis every unit is free."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url
        self._lease_seconds = settings.lease_seconds
        self._keep_seconds = settings.visibility_timeout

    def __bool__(self) -> bool:
        """Whether there is a Redis at all."""
        return bool(self._url)

    @property
    def _redis(self) -> redis.Redis:
        return redis_at(self._url)

    def take(self, job: str, task: str, worker: str, token: str) -> str | None:
        """Take the lease of a unit.

        Args:
            job: The unit's job.
            task: The id of the unit's task.
            worker: Who works on it, by its name in Flower.
            token: Tells processes of workers with one name apart.

        Returns:
            The other worker that holds the lease, and may live; None when the lease was taken.
        """
        if not self:
            return None
        arguments = (task, worker, token, self._lease_seconds, self._keep_seconds)
        return cast("str | None", self._redis.eval(_TAKE, 1, _key(job), *map(str, arguments)))

    def renew(self, job: str, task: str, token: str, files_done: int, files: int) -> None:
        """Say that the unit is still being worked on, and how far it is."""
        if self:
            arguments = (task, token, files_done, files, self._keep_seconds)
            self._redis.eval(_RENEW, 1, _key(job), *map(str, arguments))

    def drop(self, job: str, task: str, token: str) -> None:
        """Give the lease up."""
        if self:
            self._redis.eval(_DROP, 1, _key(job), task, token)

    def of(self, job: str, units: dict[str, tuple[int, str]]) -> tuple[Holder, ...]:
        """Who holds units of a job.

        Args:
            job: The job.
            units: Number and partition of each unit by the id of its task; leases of others are left out.

        Returns:
            Nobody where Redis does not answer: it is not needed to tell how far a job is.
        """
        if not self or not units:
            return ()
        from redis.exceptions import RedisError

        try:
            leases = cast("dict[str, str]", self._redis.hgetall(_key(job)))
            seconds, micros = self._redis.time()
        except RedisError as error:
            log.warning("who works on %s is not known: %s", job, error)
            return ()
        now = seconds + micros / 1_000_000
        found = ((units[task], json.loads(text)) for task, text in leases.items() if task in units)
        return tuple(sorted((_holder(*unit, lease, now) for unit, lease in found), key=lambda holder: holder.unit))


def lapse(broker: redis.Redis, job: str, task: str) -> None:
    """Say that the worker that held a unit is dead: nobody waits for a second look at its lease.

    A lease that is renewed all the same stays.
    """
    broker.eval(_LAPSE, 1, _key(job), task)


def _holder(unit: int, partition: str, lease: dict[str, float | str], now: float) -> Holder:
    seen = float(lease["seen"])
    return Holder(
        unit=unit,
        partition=partition,
        worker=str(lease["worker"]),
        since=float(lease["since"]),
        seen=seen,
        silent=max(now - seen, 0.0),
        files_done=int(lease["files_done"]),
        files=int(lease["files"]),
    )


def _key(job: str) -> str:
    return f"icefleet:holders:{job}"
