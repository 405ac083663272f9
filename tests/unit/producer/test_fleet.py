"""Calls of the fleet: what can be told without the table is refused before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import redis

from producer import Fleet, Settings
from producer.broker.registry import JobRegistry
from producer.common.errors import Reason, Refused
from producer.job import Job, Progress
from producer.model.job import Report, Request, Status
from producer.state.job_store import JobStore

#: Nothing listens there: a call that reaches the broker is refused for that.
NOWHERE = Settings(_env_file=None, broker_url="redis://127.0.0.1:9/0")
LOCAL = Settings(_env_file=None, broker_url="")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Requests that a call makes."""
    requests: list[Request] = []
    monkeypatch.setattr(Fleet, "submit", lambda self, request, **_: requests.append(request))
    return requests


@pytest.mark.parametrize("settings", [NOWHERE, LOCAL], ids=["fleet", "local"])
@pytest.mark.parametrize("method", ["convert", "compact"])
def test_a_filter_that_cannot_be_parsed(method: str, settings: Settings) -> None:
    with pytest.raises(Refused, match="--where 'day =' cannot be understood at its end") as refused:
        getattr(Fleet(settings), method)("db.t", where="day =")
    assert refused.value.reason is Reason.WHERE


@pytest.mark.parametrize("method", ["convert", "compact", "plan"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"table": "t"}, "'t' is not a table name"),
        ({"table": ("db", "t")}, r"table must be text, such as 'db.events': \('db', 't'\) is a tuple"),
        ({"where": ["day = 1"]}, "where must be text, such as \"day = '2024-05-01'\": .* is a list"),
        ({"where": []}, "where must be text"),
        ({"branch": None}, "branch must be text, such as 'main': None is a NoneType"),
        ({"catalog": 1}, "catalog must be text"),
    ],
    ids=str,
)
def test_arguments_that_are_no_text(method: str, arguments: Mapping[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says) as refused:
        getattr(Fleet(NOWHERE), method)(**{"table": "db.t", **arguments})
    assert refused.value.reason is Reason.USAGE


@pytest.mark.parametrize("method", ["convert", "compact"])
@pytest.mark.parametrize("value", ["maybe", "false", None, 0])
def test_all_or_nothing_is_true_or_false(method: str, value: object) -> None:
    with pytest.raises(Refused, match=f"^all_or_nothing must be True or False, and is {value!r}") as refused:
        getattr(Fleet(NOWHERE), method)("db.t", all_or_nothing=value)
    assert refused.value.reason is Reason.USAGE


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"operation": "compackt"}, "There is no operation 'compackt'; there are convert, compact."),
        ({"operation": ["convert"]}, "There is no operation ['convert']; there are convert, compact."),
        (
            {"options": {"min-input-files": 2, "tier": "full"}},
            "A conversion takes no options: leave out min-input-files, tier.",
        ),
        (
            {"operation": "compact", "options": {"tier": "medium"}},
            "tier='medium' is not allowed: one of minor, major, full.",
        ),
        (
            {"operation": "compact", "options": {"min-file-size-bytes": 64}},
            "min-file-size-bytes=64 is 64 bytes: write 64MB",
        ),
    ],
    ids=str,
)
def test_a_plan_that_makes_no_sense(arguments: Mapping[str, Any], says: str) -> None:
    """It is refused before a catalog is asked: this one is not configured."""
    with pytest.raises(Refused, match=re.escape(says)) as refused:
        Fleet(LOCAL).plan("db.t", catalog="nowhere", **arguments)
    assert refused.value.reason is Reason.USAGE


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({"zorder": "id"}, {"zorder": "id"}),
        ({"zorder": "id,day"}, {"zorder": "id,day"}),
        ({"zorder": ["id", "day"]}, {"zorder": "id,day"}),
        pytest.param({"zorder": (name for name in ("id", "day"))}, {"zorder": "id,day"}, id="generator"),
        ({"zorder": {"id"}}, "zorder=.*since it is a set: names of columns, separated by commas"),
        ({"zorder": b"id"}, "zorder=b'id' is not allowed, since it is a bytes"),
        ({"zorder": []}, "zorder='' is not allowed: names of columns"),
        ({"sort_order": "id desc"}, {"sort-order": "id desc"}),
        ({"sort_order": ["id desc", "day"]}, {"sort-order": "id desc,day"}),
        ({"sort_order": {"id": "desc"}}, "sort-order=.*since it is a dict: columns, such as id desc"),
        ({"options": {"zorder": ("id",)}}, {"zorder": "id"}),
        ({"options": {"nonsense": {}}}, "nonsense={} is not allowed"),
    ],
    ids=str,
)
def test_columns_are_a_list_or_a_text(
    arguments: Mapping[str, Any], options: Mapping[str, str] | str, sent: list[Request]
) -> None:
    if isinstance(options, str):
        with pytest.raises(Refused, match=options):
            Fleet(LOCAL).compact("db.t", **arguments)
        assert not sent
    else:
        Fleet(LOCAL).compact("db.t", **arguments)
        assert [request.options for request in sent] == [{**options, "tier": "major"}]


@pytest.mark.parametrize("table", ["", "t", "db.", ".t"])
def test_jobs_of_what_is_not_a_table(table: str) -> None:
    with pytest.raises(Refused, match=f"^{re.escape(repr(table))} is not a table name: give namespace.table.$"):
        Fleet(NOWHERE).jobs(table)


@pytest.mark.parametrize("ask", [Fleet.jobs, Job.report, Job.progress, Job.wait, Job.cancel])
def test_redis_that_is_away(ask: Callable[[Fleet | Job], object]) -> None:
    fleet = Fleet(NOWHERE)
    asked = fleet if ask == Fleet.jobs else fleet.job("convert:default:db.t:20260101T000000-00000000")
    with pytest.raises(
        Refused, match=r"^The Redis at redis://127\.0\.0\.1:9/0 does not answer: nothing listens"
    ) as error:
        ask(asked)
    assert error.value.reason is Reason.BROKER


@pytest.mark.parametrize("known", [True, False])
def test_waiting_without_storage(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fleet's report in Redis is enough; if Redis does not know the job, the error says why nothing can be told."""
    request = Request.new("db.t")
    report = Report(job=request.job, table="db.t", status=Status.COMMITTED)
    reports = iter([None, None])

    def fail(_: Job) -> JobStore:
        raise OSError("no answer")

    monkeypatch.setattr(Job, "_store", property(fail))
    monkeypatch.setattr(JobRegistry, "report", lambda *_: next(reports, report))
    monkeypatch.setattr(JobRegistry, "knows", lambda *_: known)
    monkeypatch.setattr(JobRegistry, "problem", lambda *_: None)
    job = Job(request.job, NOWHERE, request=request)
    if known:
        assert job.wait(10) == report
    else:
        with pytest.raises(OSError, match="no answer"):
            job.wait(10)


def test_errors_of_the_callers_own_redis_stay_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "_reachable_progress", lambda _: Progress(Status.STAGING))

    def ask(_: Progress) -> None:
        raise redis.exceptions.ConnectionError("their own")

    with pytest.raises(redis.exceptions.ConnectionError, match="their own"):
        Fleet(NOWHERE).job("convert:default:db.t:20260101T000000-00000000").wait(progress=ask)
