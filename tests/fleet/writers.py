"""A writer that goes on while jobs run, and knows what its own commits alone leave."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from producer.iceberg.manifest_entry import LiveFile
from producer.state.commit_history import JOB, ROUND
from tasks.testing import StreamTable
from tests.fleet.tables import SCHEMA, SPEC, rows_of
from tests.support import oracle

PARTITIONS = 3


@dataclass
class Writer:
    """Appends, upserts and deletes rows of a small table of some partitions; a row's partition follows from its id."""

    table: StreamTable
    #: What is in the table, by id.
    notes: dict[int, str] = field(default_factory=dict)
    _commits: Iterator[int] = field(default_factory=itertools.count)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def of(cls, catalog: Catalog, name: str, format_version: int) -> Writer:
        """A table with several data files in each partition and deletes of every kind."""
        writer = cls(StreamTable.create(catalog, name, SCHEMA, spec=SPEC, format_version=format_version))
        for _ in range(4):
            writer.append(60)
        writer.delete_positions(0)
        writer.upsert([0, 1, 2, 70, 71])
        writer.delete([5, 6, 100])
        return writer

    def append(self, rows: int = 9) -> None:
        """Add rows of new keys."""
        self.table.append(self._put(list(itertools.islice(self._ids, rows))))

    def upsert(self, ids: Sequence[int]) -> None:
        """Write rows anew, whether they are there or not."""
        self.table.upsert(self._put(ids), ["id"])

    def delete(self, ids: Sequence[int]) -> None:
        """Delete rows by key."""
        self.table.delete_where_equal(_rows(ids, "").select(["id", "part"]), ["id"])
        for id_ in ids:
            self.notes.pop(id_, None)

    def delete_positions(self, partition: int, rows: int = 3) -> None:
        """Delete some rows of a partition's largest data file by position; nobody may rewrite it meanwhile."""
        found = [file for file in self.table.data_files() if file.partition[0] == partition]
        path, live = self._live(max(found, key=lambda file: file.record_count))
        chosen = dict(itertools.islice(live.items(), rows))
        version = self.table.table.metadata.format_version
        (self.table.delete_vector if version >= 3 else self.table.delete_positions)({path: list(chosen)})
        for id_ in chosen.values():
            del self.notes[id_]

    def goes_on(self, until: Callable[[], bool]) -> None:
        """Append and upsert until something has happened: a busy stream, yet not one that keeps others from all."""
        while not until():
            self.append()
            known = sorted(self.notes)
            self.upsert([*known[::40], known[-1] + 1000])
            time.sleep(0.2)

    @property
    def rows(self) -> Counter[oracle.Row]:
        """What the writer's commits alone leave."""
        return Counter((id_, id_ % PARTITIONS, note) for id_, note in self.notes.items())

    def _live(self, file: LiveFile) -> tuple[str, dict[int, int]]:
        """Ids of a data file's live rows by their positions."""
        rows = pq.read_table(file.path.removeprefix("file://")).to_pylist()
        live = {at: row["id"] for at, row in enumerate(rows) if self.notes.get(row["id"]) == row["note"]}
        return file.path, live

    def _put(self, ids: Sequence[int]) -> pa.Table:
        note = f"commit {next(self._commits)}"
        self.notes.update(dict.fromkeys(ids, note))
        return _rows(ids, note)


def _rows(ids: Sequence[int], note: str) -> pa.Table:
    parts = pa.array([id_ % PARTITIONS for id_ in ids], pa.int32())
    return pa.table({"id": pa.array(ids, pa.int64()), "part": parts, "note": [note] * len(ids)})


def judge(table: Table) -> None:
    """Every snapshot that a job made left the rows as they were, those of a version 3 table their ids too.

    Each round of a job made one at most.
    """
    made = [s for s in table.metadata.snapshots if s.summary is not None and s.summary[JOB]]
    rounds = Counter((s.summary[JOB], s.summary[ROUND]) for s in made if s.summary is not None)
    assert set(rounds.values()) <= {1}, rounds
    for snapshot in made:
        assert snapshot.parent_snapshot_id is not None
        rows = rows_of(table, snapshot.parent_snapshot_id)  # columns may have come since
        assert rows_of(table, snapshot.snapshot_id).select(rows.column_names) == rows
        parent = table.metadata.snapshot_by_id(snapshot.parent_snapshot_id)
        if parent is not None and parent.first_row_id is not None:  # else rows get their ids with the job's commit
            after, before = (_lineage(table, id_) for id_ in (snapshot.snapshot_id, snapshot.parent_snapshot_id))
            assert after == before


def compactions(table: Table) -> list[str]:
    """Which jobs made `replace` snapshots, in their order."""
    return [
        str(s.summary[JOB])
        for s in table.metadata.snapshots
        if s.summary is not None and s.summary.operation == Operation.REPLACE
    ]


def _lineage(table: Table, snapshot_id: int) -> Counter[oracle.Row]:
    table.manage_snapshots().create_tag(snapshot_id, f"at-{snapshot_id}").commit()
    return oracle.rows(table, f"at-{snapshot_id}", lineage=True)
