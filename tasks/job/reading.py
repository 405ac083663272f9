"""What a unit reads: files of the table's own places, and such as the table itself refers to elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table

from producer.common.errors import Elsewhere
from producer.common.storage import Places
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests
from producer.model.plan import Plan, Unit
from producer.planning.planner import branch_head


def check_reading(table: Table, plan: Plan, unit: Unit) -> None:
    """See that a unit names no file that is none of the table's.

    A table may have been given files from elsewhere. Only then is its metadata looked into; planning has read the same.

    Raises:
        Elsewhere: it does; with the first of them.
    """
    places = Places.of(table.metadata)
    foreign = {path for path in _paths(unit) if not places.hold(path)}
    if foreign and (unknown := foreign - _referred(table, plan)):
        raise Elsewhere(f"{min(unknown)} is no file of {plan.request.table}: it is not read.")


def _paths(unit: Unit) -> Iterator[str]:
    for data in unit.data:
        yield data.path
        if data.vector is not None:
            yield data.vector.path
    yield from (delete.path for delete in unit.deletes)
    yield from (positions.path for positions in unit.positions)


def _referred(table: Table, plan: Plan) -> frozenset[str]:
    """Files that were live when the round was planned."""
    snapshot = table.metadata.snapshot_by_id(plan.snapshot_id) if plan.snapshot_id is not None else None
    if snapshot is None and (snapshot := branch_head(table, plan.request.branch)) is None:
        return frozenset()
    return frozenset(file.path for file in read_manifests(table.io, read_manifest_list(table.io, snapshot)))
