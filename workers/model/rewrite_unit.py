"""The values that the rewriting of data files is given and the values that it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import LocationProvider

from producer.model.plan import Scope, SortKey, Strategy, VectorRef
from producer.model.staged import StagedDataFile
from workers.model.convert_unit import ConversionUnit


@dataclass(frozen=True, slots=True)
class Input:
    """A data file that is rewritten. Its index is that of its target among the unit's deletes."""

    index: int
    path: str
    #: Data sequence number.
    sequence_number: int
    #: Index into the unit's scopes.
    scope: int
    record_count: int
    #: Bytes.
    size: int
    vector: VectorRef | None = None
    #: Row id of the first row; None for rows from before format version 3.
    first_row_id: int | None = None
    #: Values of identity partition fields by source field id, in Iceberg's internal form (days, microseconds, …).
    constants: Mapping[int, Any] = field(default_factory=dict)
    format: FileFormat = FileFormat.PARQUET


#: The part of the largest size that is planned for.
_ROOM: Final = 0.9


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the files that are written: no file exceeds ``most``, and only too few rows make one below ``least``."""

    target: int
    least: int
    most: int

    def files(self, size: float) -> int:
        """How many even files so many bytes make: none above the most, and none below the least where that can be.

        They are rather larger than the target than smaller: what is judged before it is written may turn out less.
        """
        files = max(1, int(size / self.target))
        while size / files > self.most * _ROOM:
            files += 1
        while files > 1 and size / files < self.least and size / (files - 1) <= self.most * _ROOM:
            files -= 1
        return files


@dataclass(frozen=True, slots=True)
class RewriteUnit:
    """Data files to be written anew without the rows that deletes remove, and how."""

    name: str
    #: The deletes that reach the inputs; its targets are the inputs, in order.
    deletes: ConversionUnit
    inputs: tuple[Input, ...]
    #: What is written: the table's current schema.
    schema: Schema
    #: Whether row ids and the sequence numbers of the last update are written too (spec, Row Lineage).
    lineage: bool
    #: The spec that is written under.
    spec: PartitionSpec
    #: The partition of each scope of the inputs; None for one of another spec, whose rows are routed one by one.
    scopes: tuple[Scope | None, ...]
    sizes: Sizes
    location: LocationProvider
    #: Where paths are noted before they are written to: a prefix on the table's storage.
    journal: str
    name_mapping: Any
    #: Table properties; they choose how is written and which metrics are kept.
    properties: Mapping[str, str]
    strategy: Strategy = Strategy.BINPACK
    order: tuple[SortKey, ...] = ()
    #: Field ids whose values are interleaved.
    zorder: tuple[int, ...] = ()


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
