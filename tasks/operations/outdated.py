"""Data files whose staged positions are no longer right, since other writers took away deletes they were made from.

The positions that a unit stages for a data file are those of the rows whose keys are deleted, without the rows that
were deleted by position before. Both may change while the unit is staged:

* An equality delete that the unit applied has gone. Nothing tells which of the positions come from it. If somebody
  withdrew it, its rows are alive again, and the staged positions would delete them. If somebody converted it, they
  would do no harm, but no head tells the one from the other.
* A position delete or a deletion vector that the unit took for granted has gone. A row that it deleted, and that an
  equality delete covers too, has no staged position: it would come back when that equality delete retires.

* The data file itself has left and come back under its path, in another partition or with another data sequence
  number. Other deletes apply to it now than those that the unit applied.

To plan such a data file again is always right. A data file that has gone itself needs no positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent

from producer.common.errors import Corrupt
from producer.common.storage import map_parallel
from producer.iceberg.manifest_entry import LiveFile
from producer.model.plan import DataFile, EqualityDeleteFile, Plan, PositionDeleteFile, Retirement, Scope, Unit
from producer.model.staged import Staged
from producer.planning.units import vector_ref
from tasks.job.branch_head import BranchHead
from tasks.operations.compact.since import DeletesSince

#: Finds a unit with its files; None when its record is gone.
UnitOf = Callable[[int], Unit | None]


@dataclass(frozen=True, slots=True)
class OutdatedFile:
    """A live data file for which nothing that a unit staged may be committed."""

    path: str
    scope: Scope
    sequence_number: int

    def is_reached_by(self, retirement: Retirement) -> bool:
        """Whether an equality delete applies to the file: then it must not retire without it."""
        return self.sequence_number < retirement.sequence_number and retirement.scope in (None, self.scope)


def outdated_files(
    plan: Plan, staged: Mapping[int, Staged], unit_of: UnitOf, head: BranchHead, since: DeletesSince
) -> dict[int, tuple[OutdatedFile, ...]]:
    """The outdated data files of each unit that has some.

    Args:
        plan: The round.
        staged: The units that are staged, by number.
        unit_of: Reads what a unit was made of; only asked for units that may have such files.
        head: The branch's head at this attempt.
        since: What earlier attempts have read of deletes.

    Raises:
        Corrupt: the record of a unit is missing or cannot be read.
    """
    gone = _Gone.of(since.gone(head), head) if head.since else _Gone()
    if gone.positions or gone.vectors or head.changed_data:
        numbers = sorted(staged)
    else:
        numbers = sorted(staged.keys() & {n for r in plan.retirements if r.path in gone.equality for n in r.units})

    def outdated(number: int) -> tuple[OutdatedFile, ...]:
        if (unit := unit_of(number)) is None:
            raise Corrupt(f"The record of unit {number} of {plan.request.job} is gone.")
        return _outdated(unit, staged[number], gone, head, since)

    found = zip(numbers, map_parallel(outdated, numbers), strict=True)
    return {number: files for number, files in found if files}


@dataclass(frozen=True, slots=True)
class _Gone:
    """Deletes that were live at the plan's snapshot and are not any more, while what they were for may be."""

    #: Paths of equality delete files.
    equality: frozenset[str] = frozenset()
    #: Position delete files by path.
    positions: Mapping[str, LiveFile] = field(default_factory=dict)
    #: Data files whose vector has gone, or was replaced.
    vectors: frozenset[str] = frozenset()

    @classmethod
    def of(cls, gone: Iterable[LiveFile], head: BranchHead) -> _Gone:
        # Those that left together with their data file are nobody's loss; others need no look at it.
        files = [file for file in gone if file.referenced_data_file not in head.gone_data]
        by_position = [file for file in files if file.content == DataFileContent.POSITION_DELETES]
        return cls(
            frozenset(file.path for file in files if file.content == DataFileContent.EQUALITY_DELETES),
            {file.path: file for file in by_position if not file.is_vector},
            frozenset(path for file in by_position if file.is_vector and (path := file.referenced_data_file)),
        )


def _outdated(
    unit: Unit, staged: Staged, gone: _Gone, head: BranchHead, since: DeletesSince
) -> tuple[OutdatedFile, ...]:
    newest_gone = _Newest(delete for delete in unit.deletes if delete.path in gone.equality)
    newest_live = _Newest(delete for delete in unit.deletes if delete.path in head.equality_deletes)
    earlier = [file for file in unit.positions if file.path in gone.positions]
    written = [delete.targets for delete in staged.deletes] + [(vector.target,) for vector in staged.vectors]
    targets = {target for group in written for target in group}

    def is_outdated(file: DataFile) -> bool:
        if file.path in head.gone_data:
            return False
        if file.path in head.changed_data:
            return True
        if file.path in targets and newest_gone.reach(file):
            return True
        return (file.path in targets or newest_live.reach(file)) and _rows_may_return(file, earlier, gone, head, since)

    found = {file.path for file in unit.data if is_outdated(file)}
    # What is not committed of a file that is for several data files is missing for the others as well.
    pending = [group for group in written if len(group) > 1]
    while shared := [group for group in pending if not found.isdisjoint(group)]:
        found.update(target for group in shared for target in group if target not in head.gone_data)
        pending = [group for group in pending if group not in shared]
    return tuple(
        OutdatedFile(file.path, unit.scopes[file.scope], file.sequence_number)
        for file in unit.data
        if file.path in found
    )


def _rows_may_return(
    file: DataFile, earlier: Iterable[PositionDeleteFile], gone: _Gone, head: BranchHead, since: DeletesSince
) -> bool:
    """Whether rows that were deleted by position when the job was planned may not be so any more."""
    if file.vector is not None:
        if file.path not in gone.vectors:
            return False
        live = head.vectors.get(file.path)
        return live is None or not since.holds(head.io, vector_ref(live), file.vector, file.path)
    return any(
        delete.scope == file.scope
        and delete.sequence_number >= file.sequence_number
        and delete.referenced in (None, file.path)
        and since.names(head.io, gone.positions[delete.path], file.path)
        for delete in earlier
    )


class _Newest:
    """The newest of some equality deletes of a unit, for each of its scopes."""

    def __init__(self, deletes: Iterable[EqualityDeleteFile]) -> None:
        self._numbers: dict[int | None, int] = {}
        for delete in deletes:
            self._numbers[delete.scope] = max(delete.sequence_number, self._numbers.get(delete.scope, 0))

    def reach(self, file: DataFile) -> bool:
        """Whether one of them applies to a data file."""
        newest = max(self._numbers.get(file.scope, 0), self._numbers.get(None, 0))
        return file.sequence_number < newest
