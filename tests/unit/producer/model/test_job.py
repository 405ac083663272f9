"""Requests, job ids and reports: names that survive a round trip, and states that may follow each other."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from producer.broker.queue import QUEUES, STAGING, parse_plan_message
from producer.common.errors import Conflict, Corrupt, Failed, Reason, Refused
from producer.model.job import ENDED, TRANSITIONS, JobId, Operation, Report, Request, Status, StorageRequests
from producer.model.plan import DataFile, Plan, Retirement, UnitHeader, VectorRef
from producer.model.staged import Staged, StagedDeleteFile, StagedVector

NAMES = st.text(st.characters(exclude_characters=".`", exclude_categories=["Cs"]), min_size=1, max_size=12)


class TestJobIds:
    """A job's id says which table it is about."""

    @given(st.lists(NAMES, min_size=2, max_size=4), NAMES)
    def test_any_name_comes_back(self, parts: list[str], catalog: str) -> None:
        request = Request.new(".".join(parts), catalog=catalog)
        job = JobId.parse(request.job)
        assert (job.operation, job.catalog, job.table) == (Operation.CONVERT, catalog, ".".join(parts))
        assert job.token == request.token
        assert request.job.count(":") == 3

    def test_it_can_be_read(self) -> None:
        assert Request.new("lake.db.events", catalog="prod").job.startswith("convert:prod:lake.db.events:2")

    def test_two_are_never_equal(self) -> None:
        assert len({Request.new("db.t").job for _ in range(100)}) == 100

    def test_a_token_fits_into_file_names(self) -> None:
        assert Request.new("db.t").token.replace("-", "").isalnum()

    @pytest.mark.parametrize(
        "job", ["", "x", "convert:default:db.t", "vacuum:default:db.t:1", "convert::db.t:1", ":::"]
    )
    def test_what_is_none_is_refused(self, job: str) -> None:
        with pytest.raises(Refused, match="is not a job id") as refused:
            JobId.parse(job)
        assert refused.value.reason == Reason.UNKNOWN_JOB


def test_a_plan_message_carries_the_whole_request() -> None:
    request = Request.new(
        "db.t",
        operation=Operation.COMPACT,
        catalog="prod",
        branch="audit",
        where="p = 1",
        all_or_nothing=True,
        options={"min-input-files": "2"},
    )
    sent = request.model_dump(mode="json", exclude={"operation", "catalog"}, exclude_defaults=True)
    assert parse_plan_message(sent) == request
    assert set(QUEUES) >= set(STAGING.values())
    assert set(STAGING) == set(Operation)


@pytest.mark.parametrize("table", ["", "events", ".", "db.", ".events", "db..events"])
def test_a_table_needs_a_namespace(table: str) -> None:
    with pytest.raises(Refused, match=r"give namespace\.table") as refused:
        Request.new(table)
    assert refused.value.reason == Reason.USAGE


class TestStates:
    """Which status may follow which."""

    def test_what_has_ended_stays(self) -> None:
        assert {status for status in Status if status.ended} == ENDED
        assert not ENDED & TRANSITIONS.keys()

    def test_every_other_state_can_end(self) -> None:
        assert set(Status) - ENDED == TRANSITIONS.keys()
        assert all(following & ENDED for following in TRANSITIONS.values())

    def test_every_state_can_be_reached(self) -> None:
        assert {Status.QUEUED}.union(*TRANSITIONS.values()) == set(Status)

    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (Status.COMMITTED, 0),
            (Status.NOTHING_TO_DO, 0),
            (Status.FAILED, 1),
            (Status.CANCELLED, 1),
            (Status.REFUSED, 2),
            (Status.PARTIAL, 3),
        ],
    )
    def test_exit_statuses(self, status: Status, expected: int) -> None:
        assert Report(job="j", table="db.t", status=status).exit_status == expected

    def test_errors_have_theirs(self) -> None:
        assert Refused(Reason.USAGE, "no").exit_status == 2
        assert {error("no").exit_status for error in (Corrupt, Conflict, Failed)} == {1}


def test_a_report_has_what_programs_read() -> None:
    """The object that ``--json`` prints."""
    given = Report(job="j", table="db.t", status=Status.COMMITTED).model_dump(mode="json")
    assert given["status"] == "committed"
    assert given["operation"] == "convert"
    assert given.keys() >= {
        "job",
        "table",
        "operation",
        "status",
        "snapshot_id",
        "units",
        "failed_units",
        "removed_equality_delete_files",
        "added_position_delete_files",
        "added_dvs",
        "added_position_deletes",
        "seconds",
    }


def test_a_report_says_how_many_requests_were_repeated() -> None:
    """Nothing of them where there were none: records of reports stay as version 0.1.0 reads them."""
    assert StorageRequests.of({}) is None
    calm, busy = StorageRequests.of({"GET": 3}), StorageRequests.of({"GET": 1400, "PUT": 12, "repeated": 37})
    assert calm is not None
    assert busy is not None
    assert calm.warning is None
    assert busy.warning == "the storage was busy: 37 of 1,412 requests were repeated"
    report = Report(job="j", table="db.t", status=Status.COMMITTED)
    assert "storage" not in report.model_dump(mode="json")
    assert "storage" not in report.model_dump_json()
    assert report.model_copy(update={"storage": busy}).model_dump(mode="json")["storage"] == {
        "requests": 1412,
        "repeated": 37,
        "by_kind": {"GET": 1400, "PUT": 12},
    }


def plan(**changes: Any) -> Plan:
    return Plan(
        **{
            "request": Request.new("db.t"),
            "round": 0,
            "table_uuid": "u",
            "location": "file:///t",
            "format_version": 2,
            "snapshot_id": 1,
            "sequence_number": 1,
            **changes,
        }
    )


def test_a_plan_is_empty_when_nothing_is_staged_and_nothing_leaves() -> None:
    unit = UnitHeader(number=0, label="p", files=1, delete_files=1, rows=1, delete_rows=1, cost=1)
    stays = Retirement(path="e", sequence_number=1, scope=None, units=(), complete=False)
    assert plan().empty
    assert plan(retirements=(stays,)).empty
    assert not plan(retirements=(stays, stays.model_copy(update={"complete": True}))).empty
    assert not plan(units=(unit,)).empty


def test_records_come_back_from_json_as_they_were() -> None:
    report = Report(job="j", table="db.t", status=Status.COMMITTING)
    ref = VectorRef(path="v", offset=4, size=40, cardinality=3)
    staged = Staged(
        unit=0,
        attempt=1,
        scopes=(),
        deletes=(
            StagedDeleteFile(
                path="p",
                size=1,
                records=1,
                column_sizes={2147483546: 5},
                lower=("ä", 0),
                upper=("ä", 2**40),
                split_offsets=(4,),
                scope=0,
                targets=("ä",),
            ),
        ),
        vectors=(
            StagedVector(
                path="q",
                size=1,
                offset=4,
                content_size=1,
                cardinality=1,
                new_positions=1,
                scope=0,
                target="d",
                merged=ref,
                absorbed=("x",),
            ),
        ),
        named={"x": ("d",)},
    )
    for value in (plan(before=report), staged, report):
        assert type(value).model_validate_json(value.model_dump_json()) == value
    assert staged.paths == {"p", "q"}


def test_values_do_not_change_and_know_no_other_fields() -> None:
    file = DataFile(path="d", sequence_number=1, records=1, size=1, scope=0)
    with pytest.raises(ValidationError):
        file.path = "e"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        DataFile(path="d", sequence_number=1, records=1, size=1, scope=0, colour="red")  # type: ignore[call-arg]


def test_refusals_cross_processes() -> None:
    """Pools of processes pickle errors."""
    for error in (Refused(Reason.WHERE, "no."), Corrupt("m.avro is missing.")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_job_knows_when_it_was_asked_for() -> None:
    request = Request.new("db.t")
    assert JobId.parse(request.job).submitted == pytest.approx(request.submitted, abs=0.0011)
    assert JobId.parse("convert:default:db.t:20240501T101500-1a2b3c4d").submitted == 1714558500.418
    assert JobId.parse("convert:default:db.t:20240501T101500-ffffffff").submitted == 1714558500.999  # one of 0.1.0
    assert JobId.parse("convert:default:db.t:99999999T999999-1a2b3c4d").submitted is None
