"""The board: what a Redis keeps beside the queue, so that people and jobs find each other.

It holds reports of ended jobs, the list of recent jobs, and who may work on a table. All of it saves work or eyes and
none of it keeps data right: a lost board loses no work. Without a Redis every method answers as an empty board does.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from producer.broker.connections import redis_at
from producer.common.broker_address import unanswered
from producer.common.errors import Corrupt, Newer
from producer.common.settings import Settings
from producer.model.codec import decode, encode
from producer.model.job import Report, Request

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

_DAY = 86_400
_PREFIX = "icefleet"
_RECENT = 1000  # jobs that are listed
_PLANNING = 300  # seconds that a plan may take

#: Deletes a key only while it still holds our value: compare and delete in one step.
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


class Board:
    """Reports, recent jobs and locks; every method is one round trip or two."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url
        self._report_seconds = settings.report_days * _DAY
        self._lock_seconds = settings.visibility_timeout

    def __bool__(self) -> bool:
        """Whether there is a Redis at all."""
        return bool(self._url)

    @property
    def _redis(self) -> redis.Redis:
        return redis_at(self._url)

    def check(self) -> None:
        """Refuse with the likely cause when Redis does not answer."""
        if not self:
            return
        from redis.exceptions import RedisError

        try:
            self._redis.ping()
        except RedisError as error:
            raise unanswered(self._url, error, what="Redis") from error

    # -- jobs --------------------------------------------------------------------------------------------------

    def enqueue(self, request: Request) -> str:
        """Note a job that waits for its turn; returns the id of an equal one that is waiting already."""
        if not self:
            return request.job
        key = self._waiting(request)
        if not self._redis.set(key, request.job, nx=True, ex=_DAY):
            waiting = cast("str | None", self._redis.get(key))
            # Ours: the answer was lost on the way, and the client has asked again.
            if waiting is not None and waiting != request.job and self.report(waiting) is None:
                return waiting
            self._redis.set(key, request.job, ex=_DAY)
        pipe = self._redis.pipeline()
        pipe.zadd(f"{_PREFIX}:jobs", {request.job: request.submitted})
        pipe.zremrangebyrank(f"{_PREFIX}:jobs", 0, -_RECENT - 1)
        pipe.rpush(self._key("queue", request), encode(request))
        pipe.set(f"{_PREFIX}:sent:{request.job}", _PLANNING, ex=_PLANNING)  # as sent() does
        pipe.execute()
        return request.job

    def start(self, request: Request) -> bool:
        """Take the table for a job; False while another one has it."""
        if not self:
            return True
        running = self._key("running", request)
        if not self._redis.set(running, request.job, nx=True, ex=self._lock_seconds):
            return cast("str | None", self._redis.get(running)) == request.job
        self._redis.eval(_RELEASE, 1, self._waiting(request), request.job)
        return True

    def keep(self, request: Request) -> None:
        """Hold the table a while longer, as long as the job has it."""
        if self and cast("str | None", self._redis.get(self._key("running", request))) == request.job:
            self._redis.expire(self._key("running", request), self._lock_seconds)

    def post(self, report: Report) -> None:
        """Say how a job ended."""
        if self:
            self._redis.set(f"{_PREFIX}:report:{report.job}", encode(report), ex=self._report_seconds)

    def release(self, request: Request) -> Request | None:
        """Give the table of a job that has ended free; returns the job that waits for it next."""
        if not self:
            return None
        self._redis.eval(_RELEASE, 1, self._waiting(request), request.job)
        self._dequeue(request)
        self._redis.eval(_RELEASE, 1, self._key("running", request), request.job)
        return self._head(self._key("queue", request))

    def report(self, job: str) -> Report | None:
        """How a job ended."""
        text = cast("str | None", self._redis.get(f"{_PREFIX}:report:{job}")) if self else None
        try:
            return decode(text, Report, f"{job} on the board") if text else None
        except Corrupt as error:  # storage and the table's history tell, too
            log.warning("%s", error)
            return None

    def jobs(self) -> list[tuple[str, float]]:
        """Recent jobs with the time of their submission, newest first."""
        if not self:
            return []
        return cast("list[tuple[str, float]]", self._redis.zrange(f"{_PREFIX}:jobs", 0, -1, desc=True, withscores=True))

    def knows(self, job: str) -> bool:
        """Whether the job was submitted here."""
        return bool(self) and self._redis.zscore(f"{_PREFIX}:jobs", job) is not None

    def heads(self) -> list[Request]:
        """Of each table the job that runs, or is to run next: a job leaves the queue when it has ended."""
        keys = list(self._redis.scan_iter(f"{_PREFIX}:queue:*")) if self else []
        return [head for key in keys if (head := self._head(key)) is not None]

    # -- messages ----------------------------------------------------------------------------------------------

    def may_send_again(self, job: str, seconds: int) -> bool:
        """Whether the time is over for which a job's messages were sent; counts as sending them now."""
        return not self or bool(self._redis.set(f"{_PREFIX}:sent:{job}", seconds, nx=True, ex=seconds))

    def sent(self, job: str, seconds: int = _PLANNING) -> None:
        """Note that a job's messages were sent, and that so many seconds may pass before all of them are done."""
        if self:
            self._redis.set(f"{_PREFIX}:sent:{job}", seconds, ex=seconds)

    def rested(self, job: str, seconds: int) -> bool:
        """Whether a job's messages were sent at least so many seconds ago, by the clock of Redis."""
        key = f"{_PREFIX}:sent:{job}"
        lasts = cast("str | None", self._redis.get(key)) if self else None
        return lasts is None or float(lasts) - self._redis.ttl(key) >= seconds

    def _head(self, key: str) -> Request | None:
        """The first of a queue, if this process can read it; what nobody can read is dropped on the way."""
        while text := cast("str | None", self._redis.lindex(key, 0)):
            try:
                return decode(text, Request, f"of the first job in {key}")
            except Newer as error:  # for a sweeper of its version
                log.warning("%s", error)
                return None
            except Corrupt as error:
                log.warning("%s", error)
                self._redis.lrem(key, 1, text)
        return None

    def _dequeue(self, request: Request) -> None:
        """Take a job out of its queue; another version may have written it there in other words."""
        key = self._key("queue", request)
        for text in cast("list[str]", self._redis.lrange(key, 0, -1)):
            with suppress(Corrupt, Newer):
                if decode(text, Request, key).job == request.job:
                    self._redis.lrem(key, 0, text)

    def _waiting(self, request: Request) -> str:
        """The key that equal requests share."""
        asked = (request.operation, request.where, request.all_or_nothing, sorted(request.options.items()))
        return self._key("waiting", request) + ":" + hashlib.sha256(repr(asked).encode()).hexdigest()[:12]

    def _key(self, kind: str, request: Request) -> str:
        # One job at a time, of whatever kind: two would only make conflicts for each other.
        return f"{_PREFIX}:{kind}:{request.catalog}:{request.table}:{request.branch}"
