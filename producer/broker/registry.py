"""The registry of jobs in Redis: reports of ended jobs, recent jobs, and locks of tables.

It saves work and informs people, and correctness does not depend on it: if Redis loses it, no work is lost. Without
Redis every method behaves as with an empty registry.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from producer.broker.connections import FleetRedis, check_redis
from producer.common.errors import Corrupt, Newer
from producer.common.settings import Settings
from producer.model.codec import decode, encode
from producer.model.job import Report, Request, StorageRequests

log = logging.getLogger(__name__)

_DAY = 86_400
_PREFIX = "icefleet"
_RECENT = 1000  # jobs kept in the list
_PLANNING = 300  # seconds that planning may take
_PROBLEM = 120  # seconds, more than between two attempts

#: Delete a key only if it still holds the given value.
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


class JobRegistry(FleetRedis):
    """Reports, recent jobs and locks. Every method takes one or two round trips."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._report_seconds = settings.report_days * _DAY
        self._lock_seconds = settings.visibility_timeout

    def check(self) -> None:
        """Check that Redis answers.

        Raises:
            Refused: It does not answer; the sentence names the likely cause.
        """
        if self:
            check_redis(self._url)

    def enqueue(self, request: Request) -> str:
        """Enqueue a job; return its id, or the id of an equal job that is already waiting."""
        if not self:
            return request.job
        key = self._waiting(request)
        if not self._redis.set(key, request.job, nx=True, ex=_DAY):
            waiting = cast("str | None", self._redis.get(key))
            # If it is this job, Redis' answer was lost and the client repeated the command.
            if waiting is not None and waiting != request.job and self.report(waiting) is None:
                return waiting
            self._redis.set(key, request.job, ex=_DAY)
        pipe = self._redis.pipeline()
        pipe.zadd(f"{_PREFIX}:jobs", {request.job: request.submitted})
        pipe.zremrangebyrank(f"{_PREFIX}:jobs", 0, -_RECENT - 1)
        pipe.rpush(self._key("queue", request), encode(request))
        pipe.set(f"{_PREFIX}:sent:{request.job}", _PLANNING, ex=_PLANNING)  # as mark_sent() does
        pipe.execute()
        return request.job

    def lock(self, request: Request) -> bool:
        """Lock the table for a job; return False while another job holds the lock, and for a job that has ended.

        A job posts its report before it releases its table; nothing would release a lock that is acquired later.
        """
        if not self:
            return True
        running = self._key("running", request)
        if not self._redis.set(running, request.job, nx=True, ex=self._lock_seconds):
            return self.has_lock(request)
        if self._redis.exists(_report_key(request.job)):  # it ended while the caller was about to lock
            self._redis.eval(_RELEASE, 1, running, request.job)
            return False
        self._redis.eval(_RELEASE, 1, self._waiting(request), request.job)
        return True

    def has_lock(self, request: Request) -> bool:
        """Return whether the job holds the lock of its table."""
        return bool(self) and cast("str | None", self._redis.get(self._key("running", request))) == request.job

    def extend_lock(self, request: Request) -> None:
        """Extend the job's lock, if it still holds it."""
        if self.has_lock(request):
            self._redis.expire(self._key("running", request), self._lock_seconds)

    def save_report(self, report: Report) -> None:
        """Save the report of an ended job."""
        if self:
            self._redis.set(_report_key(report.job), encode(report), ex=self._report_seconds)

    def add_requests(self, job: str, counts: Mapping[str, int]) -> None:
        """Add requests to object stores that were made for a job, by kind."""
        if not self or not counts:
            return
        pipe = self._redis.pipeline()
        for kind, number in counts.items():
            pipe.hincrby(_requests_key(job), kind, number)
        pipe.expire(_requests_key(job), self._report_seconds)
        pipe.execute()

    def release(self, request: Request) -> Request | None:
        """Release the lock of an ended job; return the next job that waits for the table."""
        if not self:
            return None
        self._redis.eval(_RELEASE, 1, self._waiting(request), request.job)
        self._dequeue(request)
        self._redis.eval(_RELEASE, 1, self._key("running", request), request.job)
        return self._first(self._key("queue", request))

    def report(self, job: str) -> Report | None:
        """Return the report of an ended job, or None if it is missing or unreadable."""
        if not self:
            return None
        pipe = self._redis.pipeline(transaction=False)  # a Redis whose memory is full refuses all that is in one
        pipe.get(_report_key(job))
        pipe.hgetall(_requests_key(job))
        text, counts = cast("tuple[str | None, dict[str, str]]", tuple(pipe.execute()))
        if not text:
            return None
        try:
            report = decode(text, Report, f"of {job} in Redis")
            storage = StorageRequests.of({kind: int(number) for kind, number in counts.items()})
            return report.model_copy(update={"storage": storage})
        except Corrupt as error:  # storage and the table's history have the result too
            log.warning("%s", error)
            return None

    def save_problem(self, job: str, problem: str) -> None:
        """Save why a step of a job is tried again, until the next attempt has had its time."""
        if self:
            self._redis.set(f"{_PREFIX}:problem:{job}", problem, ex=_PROBLEM)

    def problem(self, job: str) -> str | None:
        """Return why a step of a job is tried again, or None if no step has failed lately."""
        return cast("str | None", self._redis.get(f"{_PREFIX}:problem:{job}")) if self else None

    def jobs(self) -> list[tuple[str, float]]:
        """Return recent jobs with the times of their submission, newest first."""
        if not self:
            return []
        return cast("list[tuple[str, float]]", self._redis.zrange(f"{_PREFIX}:jobs", 0, -1, desc=True, withscores=True))

    def knows(self, job: str) -> bool:
        """Return whether the job was submitted through this Redis."""
        return bool(self) and self._redis.zscore(f"{_PREFIX}:jobs", job) is not None

    def next_requests(self) -> list[Request]:
        """Return for each table the job that runs or is next: a job leaves the queue when it has ended."""
        keys = list(self._redis.scan_iter(f"{_PREFIX}:queue:*")) if self else []
        return [first for key in keys if (first := self._first(key)) is not None]

    def may_send_again(self, job: str, seconds: int) -> bool:
        """Return whether a job's messages are due to be sent again; if so, mark them as sent now."""
        return not self or bool(self._redis.set(f"{_PREFIX}:sent:{job}", seconds, nx=True, ex=seconds))

    def mark_sent(self, job: str, seconds: int = _PLANNING) -> None:
        """Mark a job's messages as sent, and not due again for so many seconds."""
        if self:
            self._redis.set(f"{_PREFIX}:sent:{job}", seconds, ex=seconds)

    def sent_before(self, job: str, seconds: int) -> bool:
        """Return whether a job's messages were sent at least so many seconds ago, by the clock of Redis."""
        key = f"{_PREFIX}:sent:{job}"
        seconds_due = cast("str | None", self._redis.get(key)) if self else None
        return seconds_due is None or float(seconds_due) - self._redis.ttl(key) >= seconds

    def _first(self, key: str) -> Request | None:
        """Return the first request of a queue if this version can read it; drop unreadable ones before it."""
        while text := cast("str | None", self._redis.lindex(key, 0)):
            try:
                return decode(text, Request, f"of the first job in {key}")
            except Newer as error:  # a sweeper of that version handles it
                log.warning("%s", error)
                return None
            except Corrupt as error:
                log.warning("%s", error)
                self._redis.lrem(key, 1, text)
        return None

    def _dequeue(self, request: Request) -> None:
        """Remove a job from its queue, by id: another version may have encoded it differently."""
        key = self._key("queue", request)
        for text in cast("list[str]", self._redis.lrange(key, 0, -1)):
            with suppress(Corrupt, Newer):
                if decode(text, Request, key).job == request.job:
                    self._redis.lrem(key, 0, text)

    def _waiting(self, request: Request) -> str:
        """Return the key that equal requests share."""
        content = (request.operation, request.where, request.all_or_nothing, sorted(request.options.items()))
        return self._key("waiting", request) + ":" + hashlib.sha256(repr(content).encode()).hexdigest()[:12]

    def _key(self, kind: str, request: Request) -> str:
        # One job at a time, of any operation: two would conflict with each other.
        return f"{_PREFIX}:{kind}:{request.catalog}:{request.table}:{request.branch}"


def _report_key(job: str) -> str:
    return f"{_PREFIX}:report:{job}"


def _requests_key(job: str) -> str:
    return f"{_PREFIX}:requests:{job}"
