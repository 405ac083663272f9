"""The values that the conversion engine is given and the values that it gives back.

A unit is self-contained: whoever made it has read all manifests, and the engine opens nothing but the files named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyiceberg.manifest import FileFormat
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import PrimitiveType

from producer.model.plan import PositionDeleteFile, VectorRef
from producer.model.staged import StagedDeleteFile, StagedVector


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a set of equality ids."""

    field_id: int
    #: The table's current type of the field, or the last one it had before it was dropped.
    type: PrimitiveType
    #: The field's ``initial-default``; None where it has none.
    default: Any | None = None
    #: The id of the struct that it lies in; None at the top level.
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A data file or an equality delete file whose key columns are read.

    Data files and delete files are numbered apart. A data file has the index of its target.
    """

    index: int
    path: str
    sequence_number: int
    #: A small number that names (partition spec, partition tuple) within the unit.
    scope: int
    record_count: int
    #: Bytes.
    size: int
    #: Values of identity partition fields by source field id, in Iceberg's internal form (days, microseconds, …).
    constants: Mapping[int, Any] = field(default_factory=dict)
    format: FileFormat = FileFormat.PARQUET


@dataclass(frozen=True, slots=True)
class Match:
    """Delete files with one set of equality ids and the data files they may reach.

    A row of data file ``d`` is deleted if and only if some row of a delete file ``e`` has the same keys (null equals
    null), ``d.sequence_number < e.sequence_number``, and the match is global or ``d.scope == e.scope``.
    """

    columns: tuple[KeyColumn, ...]
    is_global: bool
    deletes: tuple[KeyFile, ...]
    data: tuple[KeyFile, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A data file that may receive deletes. Order by index is order by (scope, path)."""

    index: int
    path: str
    sequence_number: int
    scope: int
    record_count: int
    #: Full path of the position delete file for this target alone (v2, granularity ``file``).
    destination: str
    vector: VectorRef | None = None


@dataclass(frozen=True, slots=True)
class ConversionUnit:
    """One piece of a conversion: equality deletes, the data they reach, and where to write what they become."""

    name: str
    format_version: int
    matches: tuple[Match, ...]
    targets: tuple[Target, ...]
    positions: tuple[PositionDeleteFile, ...]
    granularity: Literal["file", "partition"]
    #: Full path of the position delete file of each scope (v2, granularity ``partition``).
    scope_destinations: Mapping[int, str]
    #: Full path of the Puffin files with ``{task}`` where the number of the write task goes (v3).
    puffin_destination: str
    name_mapping: NameMapping | None
    #: Table properties; they choose the codec of what is written.
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """What a conversion wrote. Targets with nothing new appear nowhere."""

    deletes: tuple[StagedDeleteFile, ...]
    vectors: tuple[StagedVector, ...]
    #: For each existing position delete file of several data files, the paths of all that it names (v3).
    named: Mapping[str, tuple[str, ...]]
    rows_read: int
    #: Rows that were live before and are deleted now.
    new_positions: int
