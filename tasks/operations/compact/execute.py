"""The work of compacting one unit: the plan's terms into the engine's, and its result into a staged record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from producer.common.errors import Failed
from producer.model.plan import Plan, Rewrite, Unit
from producer.model.staged import Attempt, Staged
from tasks.job.context import JobContext, check_inputs
from tasks.operations.base import Progress
from tasks.operations.delete_set import delete_set, engine_name
from workers.arrow.schema import arrow_schema, data_file_schema
from workers.model.units import RewriteUnit, Sizes
from workers.operations.rewrite import rewrite, tasks_of
from workers.runtime.machine import Budget
from workers.runtime.session import session


@dataclass(frozen=True)
class CompactionExecutor:
    """One attempt at a unit of data files."""

    unit: Unit
    rewriting: RewriteUnit
    io: FileIO
    budget: Budget
    claim: Attempt

    @classmethod
    def of(cls, context: JobContext, plan: Plan, unit: Unit, attempt: Attempt, budget: Budget) -> Self:
        """Prepare the work on the table as it is now."""
        table = context.reload(plan)
        check_inputs(table, plan, unit)
        journal = context.store.at(plan).journal(attempt)
        claim = attempt.model_copy(update={"journal": journal, "tasks": tasks_of(budget)})
        return cls(unit, _rewrite_unit(plan, unit, attempt, table, journal), table.io, budget, claim)

    def run(self, spill: Path | None, scratch: Path, progress: Progress) -> Staged:
        """Write data files."""
        start = partial(session, self.budget, spill)
        result = rewrite(self.rewriting, self.io, start, self.budget, scratch, progress)
        return Staged(
            unit=self.unit.header.number,
            attempt=self.claim.number,
            scopes=result.scopes,
            inputs=tuple(file.path for file in self.unit.data),
            data=result.files,
            read_rows=result.read_rows,
            deleted_rows=result.deleted_rows,
            named=dict(result.named),
        )


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
