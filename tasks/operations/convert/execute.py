"""The work of converting one unit: the plan's terms into the engine's, and its result into a staged record."""

from __future__ import annotations

from collections import defaultdict
from functools import cache, partial
from pathlib import Path

from pyiceberg.table import Table

from producer.model.plan import Plan, PositionDeleteFile, Unit
from producer.model.staged import Attempt, Staged, StagedVector
from tasks.job.context import JobContext, check_inputs
from tasks.operations.base import Executor, Progress
from tasks.operations.delete_set import delete_set, engine_name
from workers.model.delete_set import ContentFile
from workers.model.units import ConversionResult, ConversionUnit
from workers.operations.convert import convert, paths
from workers.runtime.machine import Budget
from workers.runtime.session import session


def prepare(context: JobContext, plan: Plan, unit: Unit, attempt: Attempt, budget: Budget) -> Executor:
    """Prepare an attempt at a unit of equality deletes on the table as it is now."""
    table = context.reload(plan)
    check_inputs(table, plan, unit)
    conversion = conversion_unit(plan, unit, attempt, table)

    def run(spill: Path | None, scratch: Path, progress: Progress) -> Staged:
        result = convert(conversion, table.io, partial(session, budget, spill), budget, scratch, progress)
        return staged_conversion(unit, attempt, result)

    return Executor(attempt.model_copy(update={"paths": paths(conversion, budget)}), run)


def conversion_unit(plan: Plan, unit: Unit, attempt: Attempt, table: Table) -> ConversionUnit:
    """Return a unit in the engine's terms."""
    name, deletes = engine_name(plan, unit, attempt), delete_set(table.metadata, unit)
    locations = table.location_provider()

    @cache
    def location(file_name: str, scope: int | None = None) -> str:
        partition = unit.scopes[scope] if scope is not None and unit.scopes[scope].label else None
        return locations.new_data_location(file_name, partition)  # type: ignore[arg-type]

    by_partition = table.properties.get("write.delete.granularity", "file").lower() == "partition"

    def destination(file: ContentFile) -> str:
        suffix = f"p{file.scope:05d}" if by_partition else f"{file.index:05d}"
        return location(f"{name}-{suffix}-deletes.parquet", file.scope)

    return ConversionUnit(
        name=name,
        format_version=plan.format_version,
        deletes=deletes,
        destinations=tuple(map(destination, deletes.data_files)) if plan.format_version < 3 else (),
        puffin_destination=location(f"{name}-{{task}}-deletes.puffin"),
        properties=dict(table.properties),
    )


def staged_conversion(unit: Unit, attempt: Attempt, result: ConversionResult) -> Staged:
    """Return the record of what the engine wrote."""
    numbers = {file.path: file.sequence_number for file in unit.data}
    of_one_file: dict[str, list[PositionDeleteFile]] = defaultdict(list)
    for file in unit.positions:
        if file.referenced is not None:
            of_one_file[file.referenced].append(file)

    def absorbed(vector: StagedVector) -> tuple[str, ...]:
        files = of_one_file[vector.target]
        return tuple(file.path for file in files if file.sequence_number >= numbers[vector.target])

    return Staged(
        unit=unit.header.number,
        attempt=attempt.number,
        scopes=unit.scopes,
        deletes=result.deletes,
        vectors=tuple(
            vector if vector.merged else vector.model_copy(update={"absorbed": absorbed(vector)})
            for vector in result.vectors
        ),
        named=dict(result.named),
        new_positions=result.new_positions,
    )
