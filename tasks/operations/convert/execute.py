"""The work of converting one unit's equality deletes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from pyiceberg.io import FileIO

from producer.model.plan import Plan, Unit
from producer.model.staged import Attempt, Staged
from tasks.job.context import JobContext, check_inputs
from tasks.operations.base import Progress
from tasks.operations.unit_spec import Conversion
from workers.model.convert_unit import ConversionUnit
from workers.operations.convert import convert, paths
from workers.runtime.machine import Budget
from workers.runtime.session import session


@dataclass(frozen=True)
class Converting:
    """One attempt at a unit of equality deletes."""

    conversion: Conversion
    unit: ConversionUnit
    io: FileIO
    budget: Budget
    claim: Attempt

    @classmethod
    def of(cls, context: JobContext, plan: Plan, unit: Unit, attempt: Attempt, budget: Budget) -> Self:
        """Prepare the work on the table as it is now.

        Raises:
            Failed: the table was dropped or replaced, or the unit names files that are none of its.
        """
        table = context.reload(plan)
        check_inputs(table, plan, unit)
        conversion = Conversion(plan, unit, attempt, table.metadata, table)
        work = conversion.engine_unit()
        claim = attempt.model_copy(update={"paths": tuple(paths(work, budget))})
        return cls(conversion, work, table.io, budget, claim)

    def run(self, spill: Path | None, scratch: Path, progress: Progress) -> Staged:
        """Write position delete files or vectors."""
        start = partial(session, self.budget, spill)
        return self.conversion.staged(convert(self.unit, self.io, start, self.budget, scratch, progress))
