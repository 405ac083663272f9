"""Reading of key columns, in canonical form and by field id, with the positions of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping

from workers.arrow.canonical import canonical_array, canonical_type, canonical_value
from workers.arrow.fields import Leaf, field_index, has_field_ids, leaves
from workers.arrow.schema import timestamp_unit
from workers.formats.format_model import Bounds, DataFile, format_model
from workers.formats.projection import check_ids
from workers.model.delete_set import ContentFile, FileSplit, KeyColumn
from workers.runtime.errors import CorruptFile

_MAX_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """Keys of consecutive rows: one canonical array per key column, and the position of the first row in its file."""

    start: int
    columns: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.columns[0])


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Reads one set of key columns from any number of files."""

    io: FileIO
    columns: tuple[KeyColumn, ...]
    name_mapping: NameMapping | None
    #: Bytes of decoded keys that a batch holds at most, about.
    batch_bytes: int

    def read(
        self, split: FileSplit, *, required: bool = False, bounds: Sequence[Bounds | None] | None = None
    ) -> Iterator[KeyBatch]:
        """Yield the keys of a split, row group by row group.

        Split ``i`` of ``n`` has every n-th row group from the i-th on.

        Args:
            required: Whether a key column that the file lacks is an error, as in an equality delete file.
            bounds: Of each key column; row groups that cannot hold keys within them are left out.

        Raises:
            CorruptFile: the file is missing, cannot be decoded, or lacks a required column.
            UnsupportedFile: it is not of its format, or has no field ids where the table has no name mapping.
        """
        file = split.file
        unit = timestamp_unit(column.type for column in self.columns)
        with format_model(file.format).open(self.io, file.path, timestamp_unit=unit) as data:
            found = self._leaves(file, data.arrow_schema, required)
            start = 0
            for group, rows in enumerate(data.row_groups):
                if group % split.count == split.number and (
                    bounds is None or data.may_match(group, self.columns, found, bounds)
                ):
                    yield from self._read_group(file, data, group, start, found)
                start += rows

    def _read_group(
        self, file: ContentFile, data: DataFile, group: int, start: int, found: Sequence[Leaf | None]
    ) -> Iterator[KeyBatch]:
        names = sorted({leaf.name for leaf in found if leaf is not None})
        added = sum(self._constant(file, c, 1).nbytes for c, leaf in zip(self.columns, found, strict=True) if not leaf)
        for batch in data.batches(group, names, self.batch_bytes, _MAX_ROWS, added=added):
            arrays = tuple(
                self._constant(file, column, batch.num_rows)
                if leaf is None
                else self._key(file, _column(batch, data.arrow_schema, leaf), column)
                for column, leaf in zip(self.columns, found, strict=True)
            )
            yield KeyBatch(start, arrays)
            start += batch.num_rows

    def _leaves(self, file: ContentFile, schema: pa.Schema, required: bool) -> list[Leaf | None]:
        check_ids(file.path, schema, self.name_mapping)
        mapping = None if has_field_ids(schema) else self.name_mapping
        known = leaves(schema, mapping)
        found = []
        for column in self.columns:
            leaf = known.get(column.field_id)
            is_absent = leaf is None and column.field_id not in file.constants
            if is_absent and required:
                raise CorruptFile(file.path, f"it is an equality delete file without its key column {column.field_id}")
            if is_absent and column.parent is not None and column.default is not None:
                leaf = leaves(schema, mapping, structs=True).get(column.parent)
            found.append(leaf)
        return found

    def _key(self, file: ContentFile, array: pa.Array, column: KeyColumn) -> pa.Array:
        # A struct is the one around a column that the file lacks: null where the struct is null, else the default.
        if pa.types.is_struct(array.type):
            scalar = canonical_value(column.default, column.type)
            return pc.if_else(array.is_valid(), scalar, pa.scalar(None, scalar.type))
        try:
            return canonical_array(array, column.type)
        except ValueError as error:
            raise CorruptFile(file.path, f"its column {column.field_id} {error}") from error

    def _constant(self, file: ContentFile, column: KeyColumn, rows: int) -> pa.Array:
        """Return the partition's value, else the column's initial default, else null (spec, Column Projection).

        A default inside a struct that the file lacks as a whole does not count: the struct is null.
        """
        value = file.constants.get(column.field_id, column.default if column.parent is None else None)
        scalar = canonical_value(value, column.type)
        return pa.nulls(rows, canonical_type(column.type)) if not scalar.is_valid else pa.repeat(scalar, rows)


def _column(batch: pa.RecordBatch, schema: pa.Schema, leaf: Leaf) -> pa.Array:
    """Return the values of a leaf; null where a struct around it is null."""
    field = schema.field(leaf.path[0])
    array, type_ = batch.column(field_index(batch.schema, field)), field.type
    for position in leaf.path[1:]:
        child = type_.field(position)
        array = pc.struct_field(array, [field_index(array.type, child)])
        type_ = child.type
    return array
