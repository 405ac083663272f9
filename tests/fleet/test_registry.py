"""The registry on a real Redis: of each table one job runs and one waits, and equal ones that wait are one."""

from __future__ import annotations

import json
import threading

import pytest

from producer.broker.queue import Messenger
from producer.broker.registry import JobRegistry
from producer.common.errors import Refused
from producer.common.settings import Settings
from producer.model.job import Operation, Report, Request, Status, StorageRequests
from tasks.job.context import JobContext
from tasks.lifecycle.rounds import begin
from tasks.local import LocalEngine
from tasks.messaging.sweeper import current_jobs, sweep
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import streamed
from tests.support.dispatch import Dispatch

pytestmark = pytest.mark.redis


@pytest.fixture
def registry(server: LocalFleet) -> JobRegistry:
    server.redis.flushall()
    return JobRegistry(server.settings)


def _ended(request: Request, status: Status = Status.COMMITTED) -> Report:
    return Report(job=request.job, table=request.table, status=status)


def _finish(registry: JobRegistry, request: Request, report: Report) -> Request | None:
    registry.save_report(report)
    return registry.release(request)


def test_one_runs_and_one_waits(registry: JobRegistry) -> None:
    first, second = Request.new("db.events"), Request.new("db.events")
    assert registry.enqueue(first) == first.job
    assert registry.lock(first)
    assert registry.enqueue(second) == second.job
    assert not registry.lock(second)
    assert registry.lock(first), "a job that has its table keeps it when its message comes twice"
    assert registry.next_requests() == [first], "the next one's turn comes when it has ended"


def test_a_report_has_the_requests_of_all_steps(server: LocalFleet, registry: JobRegistry) -> None:
    """They are kept beside it: version 0.1.0 reads reports, and takes one with a field more for corrupt."""
    request = Request.new("db.events")
    registry.save_report(_ended(request))
    assert registry.report(request.job) == _ended(request)
    registry.add_requests(request.job, {"GET": 5, "repeated": 2})
    registry.add_requests(request.job, {"GET": 1, "PUT": 1})
    found = registry.report(request.job)
    assert found is not None
    assert found.storage == StorageRequests(requests=7, repeated=2, by_kind={"GET": 6, "PUT": 1})
    assert "storage" not in json.loads(str(server.redis.get(f"icefleet:report:{request.job}")))


def test_a_job_that_has_ended_locks_no_table(registry: JobRegistry) -> None:
    """A sweep that read the job as the first of its queue locks the table right after the job has released it."""
    ended, following = Request.new("db.events"), Request.new("db.events", where="day = 1")
    registry.enqueue(ended)
    registry.enqueue(following)
    (head,) = registry.next_requests()
    assert registry.lock(ended)
    assert _finish(registry, ended, _ended(ended)) == following
    assert not registry.lock(head)
    assert registry.lock(following)


@pytest.mark.parametrize(("queue", "branch"), [("convert", "main"), ("commit", "main"), ("convert", "audit")])
def test_a_table_that_the_sweeper_locked_for_a_job_without_a_broker(
    server: LocalFleet, registry: JobRegistry, monkeypatch: pytest.MonkeyPatch, queue: str, branch: str
) -> None:
    """The process that ends the job does not know this Redis: a message that comes late releases the table."""
    server.attach(monkeypatch)
    stream = streamed(server.catalog, f"db.{queue}_{branch}", partitions=2, upserts=1)
    if branch != "main":
        with stream.table.manage_snapshots() as refs:
            refs.create_branch(stream.table.metadata.current_snapshot_id or 0, branch)
    local = Settings(_env_file=None, broker_url="")
    own, following = (Request.new(stream.identifier, branch=branch) for _ in range(2))
    dispatch = Dispatch(monkeypatch)
    monkeypatch.setattr("tasks.app.settings", server.settings)
    begin(own, local)
    sweep(server.settings)
    if queue == "commit":
        dispatch.queue.clear()
        context = JobContext.open(own.job)
        Messenger(server.settings).commit(own.job, context.store.location)
    assert LocalEngine(local).run(own).status is Status.COMMITTED
    assert not registry.lock(following)
    dispatch.step()
    assert dispatch.done == [(f"icefleet.{queue}", "the job has ended")]
    assert registry.lock(following)


def test_a_job_without_a_broker_that_ends_during_a_sweep(
    server: LocalFleet, registry: JobRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep has read it, and finds its messages sent: none is to come that would release the table."""
    server.attach(monkeypatch)
    table = streamed(server.catalog, "db.swept", partitions=2, upserts=1).identifier
    local, own = Settings(_env_file=None, broker_url=""), Request.new(table)
    begin(own, local)
    registry.mark_sent(own.job)
    read = list(current_jobs(server.settings))
    assert LocalEngine(local).run(own).status is Status.COMMITTED
    monkeypatch.setattr("tasks.messaging.sweeper.current_jobs", lambda *_: read)
    assert sweep(server.settings) == []
    assert registry.lock(Request.new(table))


def test_equal_requests_that_wait_are_one(registry: JobRegistry) -> None:
    running, waiting, third = (Request.new("db.events") for _ in range(3))
    registry.enqueue(running)
    registry.lock(running)
    assert registry.enqueue(waiting) == waiting.job
    assert registry.enqueue(third) == waiting.job
    assert _finish(registry, running, _ended(running)) == waiting
    assert registry.next_requests() == [waiting]


def test_all_kinds_of_work_share_a_table(registry: JobRegistry) -> None:
    """A compaction beside a conversion would only make conflicts for both."""
    conversion, compaction = Request.new("db.events"), Request.new("db.events", operation=Operation.COMPACT)
    registry.enqueue(conversion)
    registry.enqueue(compaction)
    assert registry.lock(conversion)
    assert not registry.lock(compaction)
    assert _finish(registry, conversion, _ended(conversion)) == compaction
    assert registry.lock(compaction)
    assert _finish(registry, compaction, _ended(compaction)) is None


def test_equal_compactions_have_equal_options(registry: JobRegistry) -> None:
    def compaction(**options: str) -> Request:
        return Request.new("db.events", operation=Operation.COMPACT, options=options)

    first = compaction(tier="minor", strategy="sort")
    assert registry.enqueue(first) == first.job
    assert registry.enqueue(compaction(strategy="sort", tier="minor")) == first.job
    for other in (compaction(tier="full", strategy="sort"), compaction(), Request.new("db.events")):
        assert registry.enqueue(other) == other.job


def test_other_requests_wait_in_turn(registry: JobRegistry) -> None:
    requests = [
        Request.new("db.events"),
        Request.new("db.events", where="day = 1"),
        Request.new("db.events", all_or_nothing=True),
    ]
    assert [registry.enqueue(request) for request in requests] == [request.job for request in requests]
    for position, request in enumerate(requests):
        assert registry.lock(request)
        following = _finish(registry, request, _ended(request))
        assert following == (requests[position + 1] if position < 2 else None)


@pytest.mark.parametrize(
    "other",
    [
        Request.new("db.clicks"),
        Request.new("db.events", branch="audit"),
        Request.new("db.events", catalog="prod"),
    ],
    ids=["table", "branch", "catalog"],
)
def test_other_tables_are_free(registry: JobRegistry, other: Request) -> None:
    first = Request.new("db.events")
    for request in (first, other):
        registry.enqueue(request)
        assert registry.lock(request)


def test_the_one_that_waits_comes_next(registry: JobRegistry) -> None:
    first, second = Request.new("db.events"), Request.new("db.events")
    registry.enqueue(first)
    registry.lock(first)
    registry.enqueue(second)
    assert _finish(registry, first, _ended(first)) == second
    assert registry.lock(second)
    assert registry.next_requests() == [second], "until it has ended: who was to plan it may die"
    assert _finish(registry, second, _ended(second)) is None


def test_what_ended_is_not_joined(registry: JobRegistry) -> None:
    """A request that comes after the end must see what was written since, so it is a job of its own."""
    first, second = Request.new("db.events"), Request.new("db.events")
    registry.enqueue(first)
    registry.lock(first)
    _finish(registry, first, _ended(first))
    assert registry.enqueue(second) == second.job
    assert registry.lock(second)


def test_a_running_job_is_not_joined(registry: JobRegistry) -> None:
    """What runs was planned on an older snapshot, and does not do what is asked for now."""
    first, second = Request.new("db.events"), Request.new("db.events")
    registry.enqueue(first)
    registry.lock(first)
    assert registry.enqueue(second) == second.job


def test_nobody_releases_what_another_has(registry: JobRegistry) -> None:
    first, second = Request.new("db.events"), Request.new("db.events")
    registry.enqueue(first)
    registry.lock(first)
    _finish(registry, second, _ended(second, Status.FAILED))
    assert not registry.lock(second)
    assert registry.lock(first)


def test_a_lock_whose_job_is_lost_runs_out(server: LocalFleet, registry: JobRegistry) -> None:
    first, second = Request.new("db.events"), Request.new("db.events")
    registry.enqueue(first)
    registry.lock(first)
    (key,) = server.redis.scan_iter("icefleet:running:*")
    assert 0 < server.redis.ttl(key) <= server.settings.visibility_timeout
    server.redis.expire(key, 10)
    registry.extend_lock(second)
    assert server.redis.ttl(key) <= 10
    registry.extend_lock(first)
    assert server.redis.ttl(key) > 10
    server.redis.delete(key)
    assert registry.lock(second)


def test_a_race_has_one_winner(server: LocalFleet, registry: JobRegistry) -> None:
    requests = [Request.new("db.events") for _ in range(8)]
    barrier = threading.Barrier(len(requests))
    joined: list[str] = []
    started: list[bool] = []

    def compete(request: Request) -> None:
        own = JobRegistry(server.settings)
        barrier.wait()
        joined.append(own.enqueue(request))
        barrier.wait()
        started.append(own.lock(request))

    threads = [threading.Thread(target=compete, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(joined)) == 1
    assert sum(started) == 1


def test_recent_jobs_come_newest_first(registry: JobRegistry) -> None:
    requests = [Request.new(f"db.t{number}").model_copy(update={"submitted": float(number)}) for number in range(3)]
    for request in requests:
        registry.enqueue(request)
    assert [job for job, _ in registry.jobs()] == [request.job for request in reversed(requests)]
    assert registry.knows(requests[0].job)
    assert not registry.knows(Request.new("db.t0").job)


def test_reports_are_kept_for_a_while(server: LocalFleet, registry: JobRegistry) -> None:
    request = Request.new("db.events")
    registry.enqueue(request)
    assert registry.report(request.job) is None
    _finish(registry, request, _ended(request))
    assert registry.report(request.job) == _ended(request)
    assert server.redis.ttl(f"icefleet:report:{request.job}") > 6 * 86_400


def test_messages_are_not_sent_again_at_once(registry: JobRegistry) -> None:
    assert registry.may_send_again("job", 60)
    assert not registry.may_send_again("job", 60)
    assert registry.may_send_again("other", 60)
    registry.mark_sent("third")
    assert not registry.may_send_again("third", 60)


def test_how_long_ago_messages_were_sent(server: LocalFleet, registry: JobRegistry) -> None:
    assert registry.sent_before("nobody's", 60)
    registry.mark_sent("job", 100)
    assert registry.sent_before("job", 0)
    assert not registry.sent_before("job", 2)
    server.redis.expire("icefleet:sent:job", 50)
    assert registry.sent_before("job", 49)
    assert not registry.sent_before("job", 60)


def test_without_redis_it_answers_as_if_empty() -> None:
    registry = JobRegistry(Settings(_env_file=None, broker_url="amqp://localhost"))
    request = Request.new("db.events")
    assert not registry
    assert registry.enqueue(request) == request.job
    assert registry.lock(request)
    assert _finish(registry, request, _ended(request)) is None
    assert registry.report(request.job) is None
    assert registry.jobs() == []
    assert registry.next_requests() == []


def test_a_redis_that_is_away_is_said_in_a_sentence() -> None:
    registry = JobRegistry(Settings(_env_file=None, broker_url="redis://:secret@127.0.0.1:1/0"))
    with pytest.raises(Refused, match="does not answer") as refused:
        registry.check()
    assert "secret" not in str(refused.value)
