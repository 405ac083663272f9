"""Data files, and the deletes that reach them.

A delete set is self-contained: whoever made it has read all manifests, and the engine opens only files that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import FileFormat
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import PrimitiveType

from producer.model.plan import PositionDeleteFile, VectorRef


@dataclass(frozen=True, slots=True)
class ContentFile:
    """A data file or an equality delete file that a unit reads. The two are numbered apart."""

    index: int
    path: str
    #: Data sequence number.
    sequence_number: int
    #: A small number that names (partition spec, partition tuple) within the unit.
    scope: int
    record_count: int
    #: Bytes.
    size: int
    #: The live deletion vector of a data file.
    vector: VectorRef | None = None
    #: Row id of a data file's first row; None for rows from before format version 3.
    first_row_id: int | None = None
    #: Values of identity partition fields by source field id, in Iceberg's internal form (days, microseconds, …).
    constants: Mapping[int, Any] = field(default_factory=dict)
    format: FileFormat = FileFormat.PARQUET


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A data file, or one of ``count`` parts of its row groups."""

    file: ContentFile
    number: int = 0
    count: int = 1

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.file.path

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self.file.size // self.count

    @property
    def rows(self) -> int:
        """Rows, about."""
        return self.file.record_count // self.count


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
class EqualityDeletes:
    """Equality delete files with one set of equality ids.

    A row of data file ``d`` is deleted if and only if some row of a delete file ``e`` has the same keys (null equals
    null), ``d.sequence_number < e.sequence_number``, and the deletes are global or ``d.scope == e.scope``.
    """

    columns: tuple[KeyColumn, ...]
    is_global: bool
    files: tuple[ContentFile, ...]


@dataclass(frozen=True, slots=True)
class DeleteSet:
    """Data files with every delete that reaches them."""

    #: Each at its index; ordered by (scope, path).
    data_files: tuple[ContentFile, ...]
    equality: tuple[EqualityDeletes, ...]
    positions: tuple[PositionDeleteFile, ...]
    name_mapping: NameMapping | None
