"""Reading of the key columns of one Parquet file, in canonical form and by field id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType

from workers.arrow.canonical import canonical_array, canonical_type, canonical_value
from workers.arrow.fields import Leaf, has_field_ids, leaves, structs
from workers.formats.batch_decoder import BoundedFile, pieces
from workers.formats.parquet import open_parquet
from workers.model.convert_unit import KeyColumn, KeyFile
from workers.runtime.errors import CorruptFile, UnsupportedFile

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
        self,
        file: KeyFile,
        *,
        required: bool = False,
        share: tuple[int, int] = (0, 1),
        keep: Callable[[pq.RowGroupMetaData, Sequence[Leaf | None]], bool] | None = None,
    ) -> Iterator[KeyBatch]:
        """The keys of a file, row group by row group.

        Args:
            file: What to read.
            required: A key column that the file lacks is an error, as in an equality delete file.
            share: ``(i, n)`` reads every n-th row group from the i-th on.
            keep: Leaves out the row groups for which it is false.

        Raises:
            CorruptFile: the file is missing, cannot be decoded, or lacks a required column.
            UnsupportedFile: it is no Parquet file, or has no field ids where the table has no name mapping.
        """
        with open_parquet(self.io, file.path, int96_unit=self._int96_unit) as parquet:
            found = self._leaves(file, parquet, required)
            start = 0
            for index in range(parquet.metadata.num_row_groups):
                group = parquet.metadata.row_group(index)
                if index % share[1] == share[0] and (keep is None or keep(group, found)):
                    yield from self._group(file, parquet, index, start, found)
                start += group.num_rows

    def _group(
        self, file: KeyFile, parquet: BoundedFile, index: int, start: int, found: Sequence[Leaf | None]
    ) -> Iterator[KeyBatch]:
        names = sorted({leaf.name for leaf in found if leaf is not None})
        added = sum(self._constant(file, c, 1).nbytes for c, leaf in zip(self.columns, found, strict=True) if not leaf)
        if not names:
            for rows in pieces(parquet.metadata.row_group(index).num_rows, added, self.batch_bytes, _MAX_ROWS):
                yield KeyBatch(start, tuple(self._constant(file, column, rows) for column in self.columns))
                start += rows
            return
        for batch in parquet.batches(index, names, self.batch_bytes, _MAX_ROWS, added=added):
            arrays = tuple(
                self._constant(file, column, batch.num_rows)
                if leaf is None
                else self._key(file, _column(batch, parquet.schema_arrow, leaf), column)
                for column, leaf in zip(self.columns, found, strict=True)
            )
            yield KeyBatch(start, arrays)
            start += batch.num_rows

    def _leaves(self, file: KeyFile, parquet: pq.ParquetFile, required: bool) -> list[Leaf | None]:
        schema = parquet.schema_arrow
        with_ids = has_field_ids(schema)
        if not with_ids and self.name_mapping is None:
            raise UnsupportedFile(file.path, "it has no field ids, and the table has no schema.name-mapping.default")
        known = leaves(schema, None if with_ids else self.name_mapping)
        found = [known.get(column.field_id) for column in self.columns]
        for column, leaf in zip(self.columns, found, strict=True):
            if required and leaf is None and column.field_id not in file.constants:
                raise CorruptFile(file.path, f"it is an equality delete file without its key column {column.field_id}")
        if any(leaf is None and c.default is not None for c, leaf in zip(self.columns, found, strict=True)):
            around = structs(schema, None if with_ids else self.name_mapping)
            found = [
                around.get(c.parent)
                if leaf is None and c.parent is not None and c.field_id not in file.constants
                else leaf
                for c, leaf in zip(self.columns, found, strict=True)
            ]
        return found

    def _key(self, file: KeyFile, array: pa.Array, column: KeyColumn) -> pa.Array:
        if pa.types.is_struct(
            array.type
        ):  # the one around a column that the file lacks: null where it is, else default
            scalar = canonical_value(column.default, column.type)
            return pc.if_else(array.is_valid(), scalar, pa.scalar(None, scalar.type))
        try:
            return canonical_array(array, column.type)
        except ValueError as error:
            raise CorruptFile(file.path, f"its column {column.field_id} {error}") from error

    def _constant(self, file: KeyFile, column: KeyColumn, rows: int) -> pa.Array:
        """The partition's value, else the column's initial default, else null (spec, Column Projection).

        A default inside a struct that the file lacks as a whole does not count: the struct is null.
        """
        value = file.constants.get(column.field_id, column.default if column.parent is None else None)
        scalar = canonical_value(value, column.type)
        return pa.nulls(rows, canonical_type(column.type)) if not scalar.is_valid else pa.repeat(scalar, rows)

    @property
    def _int96_unit(self) -> str:
        nanoseconds = any(isinstance(c.type, TimestampNanoType | TimestamptzNanoType) for c in self.columns)
        return "ns" if nanoseconds else "us"


def _column(batch: pa.RecordBatch, schema: pa.Schema, leaf: Leaf) -> pa.Array:
    """The leaf's values; null where a struct above it is."""
    name = schema.field(leaf.path[0]).name
    index = _index(batch.schema, schema, leaf, name)
    array, type_ = batch.column(index), schema.field(leaf.path[0]).type
    for position in leaf.path[1:]:
        child = type_.field(position)
        array = pc.struct_field(array, [_child(array.type, child)])
        type_ = child.type
    return array


def _index(read: pa.Schema, schema: pa.Schema, leaf: Leaf, name: str) -> int:
    """Where the top-level field of a leaf is among those that were read; names may repeat, ids do not."""
    wanted = schema.field(leaf.path[0])
    indexes: list[int] = read.get_all_field_indices(name)
    return next((i for i in indexes if read.field(i).metadata == wanted.metadata), indexes[0])


def _child(type_: pa.StructType, wanted: pa.Field) -> int:
    indexes: list[int] = type_.get_all_field_indices(wanted.name)
    return next((i for i in indexes if type_.field(i).metadata == wanted.metadata), indexes[0])
