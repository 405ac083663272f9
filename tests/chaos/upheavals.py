"""What may happen to a table while a job works on it, done as other engines and administrators do it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation as SnapshotOperation
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType

from producer.iceberg.manifest_entry import LiveFile
from tasks.testing import RowDelta, StreamTable
from tests.fleet.tables import SCHEMA, SPEC
from tests.fleet.writers import Writer
from tests.support import oracle
from tests.support.unreferenced import referenced

_NUMBERS = itertools.count()


@dataclass
class Scene:
    """A table with its writer, and what was in it at a moment to which somebody may go back."""

    catalog: Catalog
    writer: Writer
    random: Random
    branch: str = "main"
    past: int = 0
    past_rows: Counter[oracle.Row] = field(default_factory=Counter)
    #: Files of a table that was dropped: whoever drops it may keep them.
    kept: frozenset[str] = frozenset()
    #: Where the table lies, whatever it is called, and whether it is there at all.
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = Path(_local(self.writer.table.table.location()))

    @classmethod
    def of(cls, catalog: Catalog, version: int, random: Random) -> Scene:
        """A table of its own; the moment is a few commits ago."""
        writer = Writer.of(catalog, f"db.scene{next(_NUMBERS)}", version)
        scene = cls(catalog, writer, random)
        scene.past, scene.past_rows = scene.head, writer.rows
        writer.append(30)
        writer.upsert(random.sample(sorted(writer.notes), 8))
        return scene

    @property
    def name(self) -> str:
        """The table's name."""
        return self.writer.table.identifier

    @property
    def table(self) -> Table | None:
        """The table, if there is one."""
        try:
            return self.catalog.load_table(self.name)
        except NoSuchTableError:
            return None

    @property
    def head(self) -> int:
        """The snapshot at the head of main."""
        snapshot = self.writer.table.table.current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    @property
    def files(self) -> frozenset[str]:
        """All that lies in the table's folder."""
        return frozenset(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def drop(self) -> None:
        """Drop the table; its files stay where they are."""
        self.kept = frozenset(str(Path(path).relative_to(self.folder)) for path in referenced(self.writer.table.table))
        self.catalog.drop_table(self.name)

    def rename(self, name: str) -> None:
        """Have the table under another name."""
        self.catalog.rename_table(self.name, name)
        self.writer.table = StreamTable(self.catalog, name)


#: Does something to a table, and tells the rows that must be in it afterwards.
Upheaval = Callable[[Scene], Counter[oracle.Row]]


def deletes(scene: Scene) -> Counter[oracle.Row]:
    """Rows of the files that are being worked on are deleted by position, and by key."""
    for partition in range(3):
        scene.writer.delete_positions(partition)
    scene.writer.delete(scene.random.sample(sorted(scene.writer.notes), 4))
    return scene.writer.rows


def compaction(scene: Scene) -> Counter[oracle.Row]:
    """Another compactor writes a data file anew, with the number that it had."""
    stream = scene.writer.table
    named = {delete.referenced_data_file for delete in stream.delete_files()}
    chosen = scene.random.choice([file for file in stream.data_files() if file.path not in named])
    rows = pq.read_table(_local(chosen.path))
    if _deleted_by_position(stream.delete_files(), chosen):
        return scene.writer.rows
    new = stream.write_data(rows, sequence_number=chosen.sequence_number)
    stream.commit(RowDelta(new, [chosen]), operation=SnapshotOperation.REPLACE)
    return scene.writer.rows


def another_schema(scene: Scene) -> Counter[oracle.Row]:
    """A column comes."""
    with scene.writer.table.table.update_schema() as update:
        update.add_column("extra", IntegerType())
    return Counter({(*row, None): times for row, times in scene.writer.rows.items()})


def another_spec(scene: Scene) -> Counter[oracle.Row]:
    """The table is partitioned in another way from now on."""
    with scene.writer.table.table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "bucket")
    scene.writer.append()
    return scene.writer.rows


def upgrade(scene: Scene) -> Counter[oracle.Row]:
    """The table is of version 3 from now on."""
    if scene.writer.table.table.metadata.format_version < 3:
        scene.writer.table.upgrade()
    return scene.writer.rows


def rollback(scene: Scene) -> Counter[oracle.Row]:
    """The head is set back behind what was planned."""
    scene.writer.table.table.manage_snapshots().rollback_to_snapshot(scene.past).commit()
    return scene.past_rows


def branch(scene: Scene) -> Counter[oracle.Row]:
    """The branch that is worked on is taken away, and made again elsewhere."""
    table = scene.writer.table.table
    table.manage_snapshots().remove_branch(scene.branch).commit()
    scene.writer.table.table.manage_snapshots().create_branch(scene.past, scene.branch).commit()
    return scene.past_rows


def expiry(scene: Scene) -> Counter[oracle.Row]:
    """All snapshots but the newest expire, that of the plan too, and what is theirs alone is deleted."""
    scene.writer.append()
    table = scene.writer.table.table
    before = {path for path in referenced(table) if path.endswith(".avro")}
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != scene.head]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    for path in before - set(referenced(scene.writer.table.table)):
        Path(path).unlink()
    return scene.writer.rows


def drop(scene: Scene) -> Counter[oracle.Row]:
    """There is no such table any more."""
    scene.drop()
    return Counter()


def rename(scene: Scene) -> Counter[oracle.Row]:
    """The table has another name."""
    scene.rename(f"{scene.name}_renamed")
    return scene.writer.rows


def recreation(scene: Scene) -> Counter[oracle.Row]:
    """The table is dropped, and another one of its name is made, where it lay."""
    table = scene.writer.table.table
    scene.drop()
    properties = {"format-version": str(table.metadata.format_version)}
    scene.catalog.create_table(
        scene.name, SCHEMA, location=table.location(), partition_spec=SPEC, properties=properties
    )
    scene.writer = Writer(StreamTable(scene.catalog, scene.name))
    scene.writer.append()
    return scene.writer.rows


def _deleted_by_position(deletes: list[LiveFile], data: LiveFile) -> bool:
    """Whether some position delete file of its partition may name a data file."""
    named = (pq.read_table(_local(delete.path))["file_path"] for delete in deletes if _lists_positions(delete))
    return any(data.path in column.to_pylist() for column in named)


def _lists_positions(delete: LiveFile) -> bool:
    return delete.content == DataFileContent.POSITION_DELETES and delete.path.endswith(".parquet")


def _local(path: str) -> str:
    return path.removeprefix("file://")
