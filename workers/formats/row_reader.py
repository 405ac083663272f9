"""Reading of the live rows of one data file, whole and in the table's current schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import IcebergType, ListType, MapType, StructType, TimestampNanoType, TimestamptzNanoType

from workers.arrow.schema import LAST_UPDATED, ROW_ID, arrow_schema
from workers.formats.batch_decoder import BoundedFile, pieces
from workers.formats.parquet import open_parquet
from workers.formats.projection import Mismatch, Projection, check_ids
from workers.model.rewrite_unit import Input
from workers.runtime.errors import CorruptFile

Positions = npt.NDArray[np.int64]

_MAX_ROWS: Final = 1 << 17


@dataclass(frozen=True)
class RowReader:
    """Reads live rows of any number of data files.

    Args:
        io: The table's file access.
        fields: The columns that are given, as :func:`workers.arrow.schema.written_schema` makes them: with those of row
            lineage, every row keeps the id and the sequence number that it has (spec, Row Lineage).
        name_mapping: For files without field ids.
        batch_bytes: What a batch holds at most, about.
    """

    io: FileIO
    fields: Schema
    name_mapping: NameMapping | None
    batch_bytes: int

    @cached_property
    def schema(self) -> pa.Schema:
        """What :meth:`read` gives."""
        return arrow_schema(self.fields)

    def read(
        self,
        file: Input,
        gone: Positions | None = None,
        share: tuple[int, int] = (0, 1),
        seen: Callable[[int], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a file in its order, without those that are gone.

        Args:
            file: What to read.
            gone: Positions of deleted rows, ascending.
            share: ``(i, n)`` reads the i-th of n runs of row groups.
            seen: Told how many rows were read, deleted ones too.

        Raises:
            CorruptFile: the file is missing, cannot be decoded, or does not fit the table's schema.
            UnsupportedFile: it is no Parquet file, or has no field ids where the table has no name mapping.
        """
        with open_parquet(self.io, file.path, int96_unit=self._int96_unit) as parquet:
            check_ids(file.path, parquet.schema_arrow, self.name_mapping)
            try:
                projection = Projection.of(self.fields.fields, parquet.schema_arrow, self.name_mapping, file.constants)
                yield from self._batches(file, parquet, projection, gone, _groups(parquet, share), seen)
            except Mismatch as error:
                raise CorruptFile(file.path, str(error)) from error

    def _batches(
        self,
        file: Input,
        parquet: BoundedFile,
        projection: Projection,
        gone: Positions | None,
        groups: range,
        seen: Callable[[int], None] | None,
    ) -> Iterator[pa.RecordBatch]:
        start = sum(parquet.metadata.row_group(index).num_rows for index in range(groups.start))
        for index in groups:
            for batch in _read(parquet, index, projection.sources, self.batch_bytes, projection.added):
                live = _live(gone, start, len(batch))
                try:
                    arrays = projection.arrays(batch.columns, len(batch))
                except Mismatch:
                    raise
                except ValueError as error:
                    raise Mismatch(f"a column of it {error}") from error
                self._inherit(file, arrays, start, len(batch))
                rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
                start += len(batch)
                if seen is not None:
                    seen(len(batch))
                if live is None:
                    yield rows
                elif live.any():
                    yield rows.filter(pa.array(live))

    def _inherit(self, file: Input, arrays: list[pa.Array], start: int, rows: int) -> None:
        """Fill in what the rows of a file inherit of their lineage; those from before format version 3 have none."""
        if file.first_row_id is None:
            return
        for index, field in enumerate(self.fields.fields):
            if field.field_id == ROW_ID.field_id:
                ids = pa.array(np.arange(start, start + rows, dtype=np.int64) + file.first_row_id)
                arrays[index] = pc.coalesce(arrays[index], ids)
            elif field.field_id == LAST_UPDATED.field_id:
                arrays[index] = pc.coalesce(arrays[index], pa.scalar(file.sequence_number, pa.int64()))

    @property
    def _int96_unit(self) -> str:
        return "ns" if any(_is_nanoseconds(field.field_type) for field in self.fields.fields) else "us"


@dataclass(frozen=True, slots=True)
class _Read:
    """A batch of a file: its columns by their index among the file's top-level columns."""

    columns: dict[int, pa.Array]
    rows: int

    def __len__(self) -> int:
        return self.rows


def _read(parquet: BoundedFile, group: int, sources: Sequence[int], most_bytes: int, added: int) -> Iterator[_Read]:
    if not sources:  # the file has none of the columns
        for rows in pieces(parquet.metadata.row_group(group).num_rows, added, most_bytes, _MAX_ROWS):
            yield _Read({}, rows)
        return
    schema = parquet.schema_arrow
    names = sorted({schema.field(index).name for index in sources})
    for batch in parquet.batches(group, names, most_bytes, _MAX_ROWS, added=added):
        yield _Read({index: batch.column(_index(batch.schema, schema, index)) for index in sources}, batch.num_rows)


def _index(read: pa.Schema, schema: pa.Schema, source: int) -> int:
    """Where a column of the file is among those that were read; names may repeat, ids do not."""
    wanted = schema.field(source)
    indexes: list[int] = read.get_all_field_indices(wanted.name)
    return next((i for i in indexes if read.field(i).metadata == wanted.metadata), indexes[0])


def _groups(parquet: pq.ParquetFile, share: tuple[int, int]) -> range:
    part, parts = share
    groups: int = parquet.metadata.num_row_groups
    return range(groups * part // parts, groups * (part + 1) // parts)


def _live(gone: Positions | None, start: int, rows: int) -> npt.NDArray[np.bool_] | None:
    """Which rows of a batch are live; None for all of them."""
    if gone is None:
        return None
    first, last = np.searchsorted(gone, (start, start + rows))
    if first == last:
        return None
    live = np.ones(rows, dtype=np.bool_)
    live[np.asarray(gone[first:last]) - start] = False
    return live


def _is_nanoseconds(type_: IcebergType) -> bool:
    if isinstance(type_, StructType):
        return any(_is_nanoseconds(field.field_type) for field in type_.fields)
    if isinstance(type_, ListType):
        return _is_nanoseconds(type_.element_type)
    if isinstance(type_, MapType):
        return _is_nanoseconds(type_.key_type) or _is_nanoseconds(type_.value_type)
    return isinstance(type_, TimestampNanoType | TimestamptzNanoType)
