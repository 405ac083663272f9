"""The units that the engine is given, and the results that it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import LocationProvider

from producer.model.plan import Scope, SortKey, Strategy
from producer.model.staged import StagedDataFile, StagedDeleteFile, StagedVector
from workers.model.delete_set import ContentFile, DeleteSet

#: The part of the largest size that is planned for.
_ROOM: Final = 0.9


@dataclass(frozen=True, slots=True)
class ConversionUnit:
    """A share of a conversion: deletes to convert, and where to write the result."""

    name: str
    format_version: int
    deletes: DeleteSet
    #: Full path of the position delete file of each data file (v2). Data files of one scope may share theirs.
    destinations: tuple[str, ...]
    #: Full path of the Puffin files with ``{task}`` where the number of the write task goes (v3).
    puffin_destination: str
    #: Table properties; they choose the codec of what is written.
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """What a conversion wrote. Data files with nothing new appear nowhere."""

    deletes: tuple[StagedDeleteFile, ...]
    vectors: tuple[StagedVector, ...]
    #: For each existing position delete file of several data files, the paths of all that it names (v3).
    named: Mapping[str, tuple[str, ...]]
    rows_read: int
    #: Rows that were live before and are deleted now.
    new_positions: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the files that are written: no file exceeds ``most``, and only too few rows make one below ``least``."""

    target: int
    least: int
    most: int

    def files(self, size: float) -> int:
        """Return the number of even files for ``size`` bytes: none above the most, none below the least if possible.

        They are larger than the target rather than smaller, as the size is an estimate that may be too high.
        """
        files = max(1, int(size / self.target))
        while size / files > self.most * _ROOM:
            files += 1
        while files > 1 and size / files < self.least and size / (files - 1) <= self.most * _ROOM:
            files -= 1
        return files


@dataclass(frozen=True, slots=True)
class RewriteUnit:
    """Data files to rewrite without the rows that deletes remove, and how."""

    name: str
    #: The data files, and the deletes that reach them.
    deletes: DeleteSet
    #: What is written: the table's current schema.
    schema: Schema
    #: Whether row ids and the sequence numbers of the last update are written (spec, Row Lineage).
    lineage: bool
    #: The spec that is written under.
    spec: PartitionSpec
    #: The partition of each scope of the inputs; None for one of another spec, whose rows are routed one by one.
    scopes: tuple[Scope | None, ...]
    sizes: Sizes
    location: LocationProvider
    #: Where paths are noted before they are written to: a prefix on the table's storage.
    journal: str
    #: Table properties; they choose the layout of files and which metrics are recorded.
    properties: Mapping[str, str]
    strategy: Strategy = Strategy.BINPACK
    order: tuple[SortKey, ...] = ()
    #: Field ids whose values are interleaved.
    zorder: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[ContentFile, ...]:
        """The data files."""
        return self.deletes.data_files


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What a rewrite wrote."""

    #: The partitions that were written to.
    scopes: tuple[Scope, ...]
    #: The scope of each file is an index into ``scopes``.
    files: tuple[StagedDataFile, ...]
    #: Rows of the inputs, deleted ones included.
    read_rows: int
    #: Rows of them that deletes had removed.
    deleted_rows: int
    #: For each existing position delete file of several data files, the paths of all that it names.
    named: Mapping[str, tuple[str, ...]]
