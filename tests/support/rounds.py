"""One round of a conversion step by step, without a fleet, its records or Spark."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from producer.model.job import Request
from producer.model.staged import Attempt, Staged
from producer.planning.planner import plan
from producer.planning.units import PlanWithUnits
from tasks.job.branch_head import BranchHead
from tasks.operations.convert.conflicts import Decision, decide, outdated_files
from tasks.operations.convert.execute import conversion_unit, staged_conversion
from tasks.operations.delete_changes import DeleteChanges
from tasks.testing import StreamTable
from tests.support.plainengine import convert


@dataclass
class Round:
    """A plan, and what of it has been staged."""

    stream: StreamTable
    planned: PlanWithUnits
    staged: dict[int, Staged] = field(default_factory=dict)

    def stage(self, *numbers: int) -> Round:
        """Stage some units; all of them when none is given."""
        for unit in self.planned.units:
            if unit.header.refused is None and (not numbers or unit.header.number in numbers):
                table = self.stream.table
                attempt = Attempt(
                    unit=unit.header.number, number=0, token=secrets.token_hex(4), host="here", started=0.0
                )
                result = convert(conversion_unit(self.planned.plan, unit, attempt, table), table.io)
                self.staged[unit.header.number] = staged_conversion(unit, attempt, result)
        return self

    def head(self) -> BranchHead:
        """The branch's head as it is now."""
        return BranchHead.of(self.stream.table, self.planned.plan)

    def decide(self) -> Decision:
        """What would be committed on the head as it is now."""
        plan, head = self.planned.plan, self.head()
        units = {unit.header.number: unit for unit in self.planned.units}
        return decide(plan, self.staged, head, outdated_files(plan, self.staged, units.get, head, DeleteChanges()))


def planned(
    stream: StreamTable, *, unit_bytes: int = 1 << 28, only: frozenset[str] | None = None, **asked: Any
) -> Round:
    """Plan a conversion of a table as it is now."""
    request = Request.new(stream.identifier, **asked)
    return Round(stream, plan(stream.table, request, unit_bytes=unit_bytes, only=only))
