"""The work of compacting one unit: the plan's terms into the engine's, and its result into a staged record."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from producer.common.errors import Failed
from producer.model.plan import Plan, Rewrite, Unit
from producer.model.staged import Attempt, Staged
from tasks.job.context import JobContext, check_inputs
from tasks.operations.base import Executor, Progress
from tasks.operations.delete_set import delete_set, engine_name
from workers.arrow.schema import arrow_schema, data_file_schema
from workers.model.units import RewriteUnit, Sizes
from workers.operations.rewrite import rewrite, tasks_of
from workers.runtime.machine import Budget
from workers.runtime.session import session


def prepare(context: JobContext, plan: Plan, unit: Unit, attempt: Attempt, budget: Budget) -> Executor:
    """Prepare an attempt at a unit of data files on the table as it is now."""
    table = context.reload(plan)
    check_inputs(table, plan, unit)
    journal = context.store.at(plan).journal(attempt)
    rewriting = _rewrite_unit(plan, unit, attempt, table, journal)

    def run(spill: Path | None, scratch: Path, progress: Progress) -> Staged:
        result = rewrite(rewriting, table.io, partial(session, budget, spill), budget, scratch, progress)
        return Staged(
            unit=unit.header.number,
            attempt=attempt.number,
            scopes=result.scopes,
            inputs=tuple(file.path for file in unit.data),
            data=result.files,
            read_rows=result.read_rows,
            deleted_rows=result.deleted_rows,
            named=dict(result.named),
        )

    return Executor(attempt.model_copy(update={"journal": journal, "tasks": tasks_of(budget)}), run)


def _rewrite_unit(plan: Plan, unit: Unit, attempt: Attempt, table: Table, journal: str) -> RewriteUnit:
    assert plan.rewrite is not None
    asked, metadata = plan.rewrite, table.metadata
    return RewriteUnit(
        name=engine_name(plan, unit, attempt),
        deletes=delete_set(metadata, unit),
        schema=_schema(table, asked),
        lineage=plan.format_version >= 3,
        spec=metadata.specs()[asked.spec_id],
        scopes=tuple(scope if scope.spec_id == asked.spec_id else None for scope in unit.scopes),
        sizes=Sizes(asked.target_size, asked.min_size, asked.max_size),
        location=table.location_provider(),
        journal=journal,
        properties=dict(metadata.properties),
        strategy=asked.strategy,
        order=asked.order,
        zorder=asked.zorder,
    )


def _schema(table: Table, asked: Rewrite) -> Schema:
    found = next((schema for schema in table.metadata.schemas if schema.schema_id == asked.schema_id), None)
    if found is None:
        raise Failed(f"the table has no schema {asked.schema_id} any more")
    try:
        arrow_schema(data_file_schema(found, lineage=False))
    except TypeError as error:
        raise Failed(str(error)) from error
    return found
