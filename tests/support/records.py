"""Records of jobs made up for tests of those who keep them."""

from __future__ import annotations

from typing import Any

from producer.model.job import Failure, Request
from producer.model.plan import Plan, Unit, UnitHeader
from producer.model.staged import Attempt, Staged
from producer.state.job_store import JobStore

REQUEST = Request.new("db.t")


def unit(number: int, refused: str | None = None) -> Unit:
    header = UnitHeader(
        number=number, label=f"p={number}", files=1, delete_files=1, rows=1, delete_rows=1, cost=1, refused=refused
    )
    return Unit(header=header, scopes=(), data=(), deletes=(), positions=())


def plan(*units: Unit, round_: int = 0) -> Plan:
    return Plan(
        request=REQUEST,
        round=round_,
        table_uuid="u",
        location="s3://lake/db/t",
        format_version=2,
        snapshot_id=1,
        sequence_number=1,
        units=tuple(unit.header for unit in units),
    )


def written(store: JobStore, *units: Unit, round_: int = 0) -> Plan:
    """A plan that is on storage."""
    made = plan(*units, round_=round_)
    store.write_plan(made, units)
    return made


def attempt(unit: int, number: int, token: str = "t", **fields: Any) -> Attempt:
    return Attempt(unit=unit, number=number, token=token, host="here", started=0.0, **fields)


def staged(unit: int, number: int) -> Staged:
    return Staged(unit=unit, attempt=number, scopes=())


def failure(unit: int) -> Failure:
    return Failure(unit=unit, partition="p", reason="no")
