"""The board on a real Redis: of each table one job runs and one waits, and equal ones that wait are one."""

from __future__ import annotations

import threading

import pytest

from producer.broker.registry import Board
from producer.common.errors import Refused
from producer.common.settings import Settings
from producer.model.job import Operation, Report, Request, Status
from tests.fleet.localfleet import LocalFleet

pytestmark = pytest.mark.redis


@pytest.fixture
def board(server: LocalFleet) -> Board:
    server.redis.flushall()
    return Board(server.settings)


def _ended(request: Request, status: Status = Status.COMMITTED) -> Report:
    return Report(job=request.job, table=request.table, status=status)


def _finish(board: Board, request: Request, report: Report) -> Request | None:
    board.post(report)
    return board.release(request)


def test_one_runs_and_one_waits(board: Board) -> None:
    first, second = Request.new("db.events"), Request.new("db.events")
    assert board.enqueue(first) == first.job
    assert board.start(first)
    assert board.enqueue(second) == second.job
    assert not board.start(second)
    assert board.start(first), "a job that has its table keeps it when its message comes twice"
    assert board.heads() == [first], "the next one's turn comes when it has ended"


def test_equal_requests_that_wait_are_one(board: Board) -> None:
    running, waiting, third = (Request.new("db.events") for _ in range(3))
    board.enqueue(running)
    board.start(running)
    assert board.enqueue(waiting) == waiting.job
    assert board.enqueue(third) == waiting.job
    assert _finish(board, running, _ended(running)) == waiting
    assert board.heads() == [waiting]


def test_all_kinds_of_work_share_a_table(board: Board) -> None:
    """A compaction beside a conversion would only make conflicts for both."""
    conversion, compaction = Request.new("db.events"), Request.new("db.events", operation=Operation.COMPACT)
    board.enqueue(conversion)
    board.enqueue(compaction)
    assert board.start(conversion)
    assert not board.start(compaction)
    assert _finish(board, conversion, _ended(conversion)) == compaction
    assert board.start(compaction)
    assert _finish(board, compaction, _ended(compaction)) is None


def test_equal_compactions_have_equal_options(board: Board) -> None:
    def compaction(**options: str) -> Request:
        return Request.new("db.events", operation=Operation.COMPACT, options=options)

    first = compaction(tier="minor", strategy="sort")
    assert board.enqueue(first) == first.job
    assert board.enqueue(compaction(strategy="sort", tier="minor")) == first.job
    for other in (compaction(tier="full", strategy="sort"), compaction(), Request.new("db.events")):
        assert board.enqueue(other) == other.job


def test_other_requests_wait_in_turn(board: Board) -> None:
    requests = [
        Request.new("db.events"),
        Request.new("db.events", where="day = 1"),
        Request.new("db.events", all_or_nothing=True),
    ]
    assert [board.enqueue(request) for request in requests] == [request.job for request in requests]
    for position, request in enumerate(requests):
        assert board.start(request)
        following = _finish(board, request, _ended(request))
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
def test_other_tables_are_free(board: Board, other: Request) -> None:
    first = Request.new("db.events")
    for request in (first, other):
        board.enqueue(request)
        assert board.start(request)


def test_the_one_that_waits_comes_next(board: Board) -> None:
    first, second = Request.new("db.events"), Request.new("db.events")
    board.enqueue(first)
    board.start(first)
    board.enqueue(second)
    assert _finish(board, first, _ended(first)) == second
    assert board.start(second)
    assert board.heads() == [second], "until it has ended: who was to plan it may die"
    assert _finish(board, second, _ended(second)) is None


def test_what_ended_is_not_joined(board: Board) -> None:
    """A request that comes after the end must see what was written since, so it is a job of its own."""
    first, second = Request.new("db.events"), Request.new("db.events")
    board.enqueue(first)
    board.start(first)
    _finish(board, first, _ended(first))
    assert board.enqueue(second) == second.job
    assert board.start(second)


def test_a_running_job_is_not_joined(board: Board) -> None:
    """What runs was planned on an older snapshot, and does not do what is asked for now."""
    first, second = Request.new("db.events"), Request.new("db.events")
    board.enqueue(first)
    board.start(first)
    assert board.enqueue(second) == second.job


def test_nobody_releases_what_another_has(board: Board) -> None:
    first, second = Request.new("db.events"), Request.new("db.events")
    board.enqueue(first)
    board.start(first)
    _finish(board, second, _ended(second, Status.FAILED))
    assert not board.start(second)
    assert board.start(first)


def test_a_lock_whose_job_is_lost_runs_out(server: LocalFleet, board: Board) -> None:
    first, second = Request.new("db.events"), Request.new("db.events")
    board.enqueue(first)
    board.start(first)
    (key,) = server.redis.scan_iter("icefleet:running:*")
    assert 0 < server.redis.ttl(key) <= server.settings.visibility_timeout
    server.redis.expire(key, 10)
    board.keep(second)
    assert server.redis.ttl(key) <= 10
    board.keep(first)
    assert server.redis.ttl(key) > 10
    server.redis.delete(key)
    assert board.start(second)


def test_a_race_has_one_winner(server: LocalFleet, board: Board) -> None:
    requests = [Request.new("db.events") for _ in range(8)]
    barrier = threading.Barrier(len(requests))
    joined: list[str] = []
    started: list[bool] = []

    def compete(request: Request) -> None:
        own = Board(server.settings)
        barrier.wait()
        joined.append(own.enqueue(request))
        barrier.wait()
        started.append(own.start(request))

    threads = [threading.Thread(target=compete, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(joined)) == 1
    assert sum(started) == 1


def test_recent_jobs_come_newest_first(board: Board) -> None:
    requests = [Request.new(f"db.t{number}").model_copy(update={"submitted": float(number)}) for number in range(3)]
    for request in requests:
        board.enqueue(request)
    assert [job for job, _ in board.jobs()] == [request.job for request in reversed(requests)]
    assert board.knows(requests[0].job)
    assert not board.knows(Request.new("db.t0").job)


def test_reports_are_kept_for_a_while(server: LocalFleet, board: Board) -> None:
    request = Request.new("db.events")
    board.enqueue(request)
    assert board.report(request.job) is None
    _finish(board, request, _ended(request))
    assert board.report(request.job) == _ended(request)
    assert server.redis.ttl(f"icefleet:report:{request.job}") > 6 * 86_400


def test_messages_are_not_sent_again_at_once(board: Board) -> None:
    assert board.may_send_again("job", 60)
    assert not board.may_send_again("job", 60)
    assert board.may_send_again("other", 60)
    board.sent("third")
    assert not board.may_send_again("third", 60)


def test_how_long_ago_messages_were_sent(server: LocalFleet, board: Board) -> None:
    assert board.rested("nobody's", 60)
    board.sent("job", 100)
    assert board.rested("job", 0)
    assert not board.rested("job", 2)
    server.redis.expire("icefleet:sent:job", 50)
    assert board.rested("job", 49)
    assert not board.rested("job", 60)


def test_without_redis_it_answers_as_if_empty() -> None:
    board = Board(Settings(_env_file=None, broker_url="amqp://localhost"))
    request = Request.new("db.events")
    assert not board
    assert board.enqueue(request) == request.job
    assert board.start(request)
    assert _finish(board, request, _ended(request)) is None
    assert board.report(request.job) is None
    assert board.jobs() == []
    assert board.heads() == []


def test_a_redis_that_is_away_is_said_in_a_sentence() -> None:
    board = Board(Settings(_env_file=None, broker_url="redis://:secret@127.0.0.1:1/0"))
    with pytest.raises(Refused, match="does not answer") as refused:
        board.check()
    assert "secret" not in str(refused.value)
