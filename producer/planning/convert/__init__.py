"""Conversion of equality deletes into position deletes or deletion vectors: definition and planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from producer.common.errors import Reason, Refused
from producer.common.sizes import count_text
from producer.planning.definition import OperationDefinition

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from producer.model.job import Report, Request
    from producer.model.plan import Plan
    from producer.planning.units import PlanWithUnits


def _check_options(options: Mapping[str, str]) -> None:
    if options:
        raise Refused(Reason.USAGE, f"A conversion takes no options: leave out {', '.join(options)}.")


def _check_table(table: Table, request: Request) -> str | None:
    if table.metadata.format_version == 1:
        return "a table of format version 1 has no row-level deletes"
    return None


def _plan(table: Table, base: Plan, head: Snapshot, *, unit_bytes: int, only: frozenset[str] | None) -> PlanWithUnits:
    from producer.planning.convert.planner import ConversionPlanner

    return ConversionPlanner(table, base, head, unit_bytes, only).plan()


def _describe_result(report: Report) -> str:
    removed = count_text(report.removed_equality_delete_files, "equality delete file")
    vectors, files = report.added_dvs, report.added_position_delete_files
    added = [count_text(vectors, "deletion vector")] if vectors else []
    added += [count_text(files, "position delete file")] if files else []
    if not added:
        return f"{removed} removed, no vectors or position deletes needed: no row is left that they delete"
    return f"{removed} became {' and '.join(added)} with {count_text(report.added_position_deletes, 'position')}"


CONVERT: Final = OperationDefinition(
    summary="Turn the equality deletes of TABLE (namespace.table) into position deletes (v2) or deletion vectors (v3).",
    check_options=_check_options,
    check_table=_check_table,
    plan=_plan,
    describe_result=_describe_result,
    writes_delete_files=True,
)
