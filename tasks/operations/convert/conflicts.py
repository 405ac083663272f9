"""What of a job's staged work may be committed on a head: the rules of a correct conversion.

The positions that a unit stages for a data file are those of the rows whose keys are deleted, without the rows that
were deleted by position before. A data file is outdated, and must be planned again, once that has changed:

* An equality delete that the unit applied is no longer live. Nothing shows which of the positions come from it. If
  another writer withdrew it, its rows are alive again, and the staged positions would delete them. If another writer
  converted it, they would do no harm, but the head does not show which of the two happened.
* A position delete or a deletion vector that the unit relied on is no longer live. A row that it deleted, and that an
  equality delete covers too, has no staged position: it would come back when that equality delete retires.
* The data file itself left and came back under its path, in another partition or with another data sequence number.
  Other deletes apply to it now than those that the unit applied.

A data file that is no longer live needs no positions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent

from producer.common.errors import Corrupt
from producer.iceberg.manifest_entry import LiveFile
from producer.model.plan import (
    DataFile,
    EqualityDeleteFile,
    Plan,
    PositionDeleteFile,
    Retirement,
    Scope,
    Unit,
    VectorRef,
)
from producer.model.staged import Staged, StagedDeleteFile, StagedVector
from producer.planning.units import vector_ref
from producer.storage.files import map_parallel
from tasks.job.branch_head import BranchHead
from tasks.operations.delete_changes import DeleteChanges

#: Finds a unit with its files; returns None if its record is missing.
UnitOf = Callable[[int], Unit | None]


@dataclass(frozen=True)
class Merge:
    """A staged vector, and the one that another writer committed for the same data file in the meantime."""

    staged: StagedVector
    live: VectorRef


@dataclass(frozen=True)
class Decision:
    """What one commit attempt does.

    An equality delete is retired only when every data file that it reaches was handled; staged positions are right
    whether or not the delete that caused them is retired with them.
    """

    deletes: tuple[tuple[Staged, StagedDeleteFile], ...]
    vectors: tuple[tuple[Staged, StagedVector], ...]
    merges: tuple[tuple[Staged, Merge], ...]
    #: Equality deletes that leave.
    retired: tuple[LiveFile, ...]
    #: Vectors and position delete files whose content is part of what is added, or that no live file needs.
    superseded: tuple[LiveFile, ...]
    #: Equality deletes that must be planned again: data files that they reach are new, or outdated.
    again: frozenset[str]

    @property
    def adds(self) -> bool:
        """Whether delete files are added."""
        return bool(self.deletes or self.vectors or self.merges)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.adds or self.retired or self.superseded)


@dataclass(frozen=True, slots=True)
class OutdatedFile:
    """A live data file for which nothing that a unit staged may be committed."""

    path: str
    scope: Scope
    sequence_number: int

    def is_reached_by(self, retirement: Retirement) -> bool:
        """Return whether an equality delete applies to the file: then it must not retire without it."""
        return self.sequence_number < retirement.sequence_number and retirement.scope in (None, self.scope)


def decide(
    plan: Plan, staged: Mapping[int, Staged], head: BranchHead, outdated: Mapping[int, Collection[OutdatedFile]]
) -> Decision:
    """Check all staged units, by number, against the head; the others failed.

    Nothing is committed for outdated data files.
    """
    applied = {number for r in plan.retirements if r.path in head.equality_deletes for number in r.units}
    # If no equality delete of a unit is live, another writer has done its work.
    useful = {number: unit for number, unit in staged.items() if number in applied}
    dropped = {file.path for files in outdated.values() for file in files} | head.removed_data
    deletes, vectors, merges, superseded = [], [], [], {}
    for unit in useful.values():
        deletes += [(unit, d) for d in unit.deletes if not set(d.targets) <= dropped]
        for vector in unit.vectors:
            if vector.target in dropped:
                continue
            live = head.vectors.get(vector.target)
            if live is not None:
                superseded[live.identity] = live
            if live is not None and vector_ref(live) != vector.merged:
                merges.append((unit, Merge(vector, vector_ref(live))))
            else:
                vectors.append((unit, vector))
            for path in vector.absorbed:
                if path in head.position_deletes:
                    superseded[path, None] = head.position_deletes[path]
    with_vector = frozenset(head.vectors) | {v.target for _, v in vectors}
    for file in _unneeded(useful, head, with_vector):
        superseded[file.identity] = file
    retired, again = [], set()
    for retirement in plan.retirements:
        live = head.equality_deletes.get(retirement.path)
        if live is None:
            continue
        if retirement.path in head.changed_equality_deletes or any(
            file.is_reached_by(retirement) for unit in retirement.units for file in outdated.get(unit, ())
        ):
            again.add(retirement.path)
        elif retirement.complete and staged.keys() >= set(retirement.units):
            if _reaches_unscanned(retirement, live, head):
                again.add(retirement.path)
            else:
                retired.append(live)
    return Decision(
        tuple(deletes), tuple(vectors), tuple(merges), tuple(retired), tuple(superseded.values()), frozenset(again)
    )


def _reaches_unscanned(retirement: Retirement, delete: LiveFile, head: BranchHead) -> bool:
    """Return whether a data file came into the delete's scope, since the plan, that claims to be older than the delete.

    Appends claim higher numbers; a compaction that keeps its starting sequence number does not.
    """
    return any(
        file.sequence_number < retirement.sequence_number
        and (retirement.scope is None or file.partition_key == delete.partition_key)
        for file in head.added_data
    )


def _unneeded(staged: Mapping[int, Staged], head: BranchHead, with_vector: frozenset[str]) -> list[LiveFile]:
    """Return partition-scoped position delete files of which every data file has a vector or is not live (v3)."""
    if head.plan.format_version < 3:
        return []
    named: dict[str, set[str]] = defaultdict(set)
    for unit in staged.values():
        for path, targets in unit.named.items():
            named[path].update(targets)
    return [
        head.position_deletes[path]
        for path, targets in named.items()
        if path in head.position_deletes and not (targets & head.live_data) - with_vector
    ]


def outdated_files(
    plan: Plan, staged: Mapping[int, Staged], unit_of: UnitOf, head: BranchHead, changes: DeleteChanges
) -> dict[int, tuple[OutdatedFile, ...]]:
    """Return the outdated data files of each unit that has some; reads only units that may have such files.

    Raises:
        Corrupt: the record of a unit is missing or cannot be read.
    """
    removed = _RemovedDeletes.of(changes.removed(head), head) if head.later_snapshots else _RemovedDeletes()
    if removed.positions or removed.vectors or head.changed_data:
        numbers = sorted(staged)
    else:
        applied = {number for r in plan.retirements if r.path in removed.equality for number in r.units}
        numbers = sorted(staged.keys() & applied)

    def outdated(number: int) -> tuple[OutdatedFile, ...]:
        if (unit := unit_of(number)) is None:
            raise Corrupt(f"The record of unit {number} of {plan.request.job} is missing.")
        return _outdated(unit, staged[number], removed, head, changes)

    found = zip(numbers, map_parallel(outdated, numbers), strict=True)
    return {number: files for number, files in found if files}


@dataclass(frozen=True, slots=True)
class _RemovedDeletes:
    """Deletes that left the table since the plan's snapshot, without their data file."""

    #: Paths of equality delete files.
    equality: frozenset[str] = frozenset()
    #: Position delete files by path.
    positions: Mapping[str, LiveFile] = field(default_factory=dict)
    #: Data files whose vector was removed or replaced.
    vectors: frozenset[str] = frozenset()

    @classmethod
    def of(cls, removed: Iterable[LiveFile], head: BranchHead) -> _RemovedDeletes:
        # Those that left together with their data file matter to no other file.
        files = [file for file in removed if file.referenced_data_file not in head.removed_data]
        by_position = [file for file in files if file.content == DataFileContent.POSITION_DELETES]
        return cls(
            frozenset(file.path for file in files if file.content == DataFileContent.EQUALITY_DELETES),
            {file.path: file for file in by_position if not file.is_vector},
            frozenset(path for file in by_position if file.is_vector and (path := file.referenced_data_file)),
        )


def _outdated(
    unit: Unit, staged: Staged, removed: _RemovedDeletes, head: BranchHead, changes: DeleteChanges
) -> tuple[OutdatedFile, ...]:
    removed_reach = _any_reaches(delete for delete in unit.deletes if delete.path in removed.equality)
    live_reach = _any_reaches(delete for delete in unit.deletes if delete.path in head.equality_deletes)
    positions = [file for file in unit.positions if file.path in removed.positions]
    written = [delete.targets for delete in staged.deletes] + [(vector.target,) for vector in staged.vectors]
    targets = {target for group in written for target in group}

    def is_outdated(file: DataFile) -> bool:
        if file.path in head.removed_data:
            return False
        if file.path in head.changed_data or (file.path in targets and removed_reach(file)):
            return True
        is_needed = file.path in targets or live_reach(file)
        return is_needed and _rows_may_return(file, positions, removed, head, changes)

    found = {file.path for file in unit.data if is_outdated(file)}
    # A delete file of several data files that is not committed for one of them is missing for the others too.
    pending = [group for group in written if len(group) > 1]
    while shared := [group for group in pending if not found.isdisjoint(group)]:
        found.update(target for group in shared for target in group if target not in head.removed_data)
        pending = [group for group in pending if group not in shared]
    return tuple(
        OutdatedFile(file.path, unit.scopes[file.scope], file.sequence_number)
        for file in unit.data
        if file.path in found
    )


def _rows_may_return(
    file: DataFile,
    positions: Iterable[PositionDeleteFile],
    removed: _RemovedDeletes,
    head: BranchHead,
    changes: DeleteChanges,
) -> bool:
    """Return whether rows that were deleted by position when the job was planned may be live again."""
    if file.vector is not None:
        if file.path not in removed.vectors:
            return False
        live = head.vectors.get(file.path)
        return live is None or not changes.contains(head.io, vector_ref(live), file.vector, file.path)
    return any(
        delete.scope == file.scope
        and delete.sequence_number >= file.sequence_number
        and delete.referenced in (None, file.path)
        and changes.names(head.io, removed.positions[delete.path], file.path)
        for delete in positions
    )


def _any_reaches(deletes: Iterable[EqualityDeleteFile]) -> Callable[[DataFile], bool]:
    """Return a function that returns whether one of some equality deletes of a unit applies to a data file."""
    newest: dict[int | None, int] = {}
    for delete in deletes:
        newest[delete.scope] = max(delete.sequence_number, newest.get(delete.scope, 0))
    return lambda file: file.sequence_number < max(newest.get(file.scope, 0), newest.get(None, 0))
