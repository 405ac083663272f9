"""Compaction of data files with every delete applied: definition, options and planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from producer.common.errors import Reason, Refused
from producer.common.sizes import count_text, size_text
from producer.planning.compact.options import Options
from producer.planning.definition import OperationDefinition

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from producer.model.job import Report, Request
    from producer.model.plan import Plan
    from producer.planning.units import PlanWithUnits


def _check_table(table: Table, request: Request) -> None:
    from producer.iceberg.pyiceberg_metadata import unrewritable_column
    from producer.planning.compact.rewrite_options import resolve

    resolve(Options.parse(request.options), table.metadata)
    if (column := unrewritable_column(table.schema())) is not None:
        name = table.schema().find_column_name(column.field_id)
        sentence = f"Column {name} of {request.table} is of type {column.field_type}: it is not compacted so far."
        raise Refused(Reason.COLUMN_TYPE, sentence)


def _plan(table: Table, base: Plan, head: Snapshot, *, unit_bytes: int, only: frozenset[str] | None) -> PlanWithUnits:
    from producer.planning.compact.planner import CompactionPlanner

    return CompactionPlanner(table, base, head, unit_bytes, only).plan()


def _describe_result(report: Report) -> str:
    return (
        f"{count_text(report.rewritten_data_files, 'data file')} became {report.added_data_files:,}, "
        f"{size_text(report.removed_bytes)} became {size_text(report.added_bytes)}, "
        f"{count_text(report.removed_delete_files, 'delete file')} removed"
    )


COMPACT: Final = OperationDefinition(
    summary="Rewrite files of TABLE (namespace.table) that are small, large or have many deletes into well-sized ones.",
    check_options=Options.parse,
    check_table=_check_table,
    plan=_plan,
    describe_result=_describe_result,
    writes_data_files=True,
)
