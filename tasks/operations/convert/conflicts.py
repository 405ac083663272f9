"""What of a job's staged work may be committed on a head: the rules of a right conversion, without I/O of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from producer.iceberg.manifest_entry import LiveFile
from producer.model.plan import Plan, Retirement, VectorRef
from producer.model.staged import Staged, StagedDeleteFile, StagedVector
from producer.planning.units import vector_ref
from tasks.job.branch_head import BranchHead
from tasks.operations.outdated import OutdatedFile


@dataclass(frozen=True)
class Merge:
    """A staged vector and the one that somebody else has committed for the same data file meanwhile."""

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
    #: Equality deletes that must be planned again: data files that they reach are new, or were not staged rightly.
    again: frozenset[str]

    @property
    def adds(self) -> bool:
        """Whether delete files are added."""
        return bool(self.deletes or self.vectors or self.merges)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.adds or self.retired or self.superseded)

    @property
    def staged_paths(self) -> frozenset[str]:
        """The staged files that the commit refers to."""
        return frozenset(d.path for _, d in self.deletes) | frozenset(v.path for _, v in self.vectors)


def decide(
    plan: Plan,
    staged: Mapping[int, Staged],
    head: BranchHead,
    outdated: Mapping[int, Collection[OutdatedFile]] = MappingProxyType({}),
) -> Decision:
    """Check all staged units against the head.

    Args:
        plan: What was planned, and at which snapshot.
        staged: The units that are staged, by number; the others failed.
        head: The branch's head at this attempt.
        outdated: For each unit the data files that nothing may be committed for.
    """
    useful = {number: unit for number, unit in staged.items() if _useful(plan, number, head)}
    dropped = {file.path for files in outdated.values() for file in files} | head.gone_data
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
    for file in _needless(useful, head, with_vector):
        superseded[file.identity] = file
    retired, again = [], set()
    for retirement in plan.retirements:
        live = head.equality_deletes.get(retirement.path)
        if live is None:
            continue
        if retirement.path in head.changed_equality_deletes:
            again.add(retirement.path)
            continue
        if any(file.is_reached_by(retirement) for unit in retirement.units for file in outdated.get(unit, ())):
            again.add(retirement.path)
            continue
        if not retirement.complete or not staged.keys() >= set(retirement.units):
            continue
        if _reaches_unscanned(retirement, live, head):
            again.add(retirement.path)
        else:
            retired.append(live)
    return Decision(
        tuple(deletes), tuple(vectors), tuple(merges), tuple(retired), tuple(superseded.values()), frozenset(again)
    )


def _useful(plan: Plan, unit: int, head: BranchHead) -> bool:
    """Whether some equality delete of the unit is still live; if not, somebody else has done its work."""
    return any(unit in r.units and r.path in head.equality_deletes for r in plan.retirements)


def _reaches_unscanned(retirement: Retirement, delete: LiveFile, head: BranchHead) -> bool:
    """Whether a data file has come into the delete's scope, since the plan, that claims to be older than the delete.

    Appends claim higher numbers; a compaction that keeps its starting sequence number does not.
    """
    return any(
        file.sequence_number < retirement.sequence_number
        and (retirement.scope is None or file.partition_key == delete.partition_key)
        for file in head.added_data
    )


def _needless(staged: Mapping[int, Staged], head: BranchHead, with_vector: frozenset[str]) -> list[LiveFile]:
    """Partition-scoped position delete files of which every data file has a vector or is gone (v3)."""
    if head.plan.format_version < 3:
        return []
    named: dict[str, set[str]] = {}
    for unit in staged.values():
        for path, targets in unit.named.items():
            named.setdefault(path, set()).update(targets)
    return [
        head.position_deletes[path]
        for path, targets in named.items()
        if path in head.position_deletes and not (targets & head.live_data) - with_vector
    ]
