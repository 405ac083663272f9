"""Reading of the live rows of one data file, whole and in the table's current schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.name_mapping import NameMapping

from workers.arrow.fields import field_index
from workers.arrow.schema import LAST_UPDATED, ROW_ID, arrow_schema, timestamp_unit
from workers.formats.format_model import DataFile, Positions, format_model
from workers.formats.projection import Mismatch, Projection, check_ids
from workers.model.delete_set import ContentFile, FileSplit
from workers.runtime.errors import CorruptFile

_MAX_ROWS: Final = 1 << 17


@dataclass(frozen=True)
class RowReader:
    """Reads live rows of any number of data files."""

    io: FileIO
    #: The columns to read, as :func:`workers.arrow.schema.data_file_schema` makes them: with those of row lineage,
    #: every row keeps the id and the sequence number that it has (spec, Row Lineage).
    fields: Schema
    #: For files without field ids.
    name_mapping: NameMapping | None
    #: Bytes of a batch at most, about.
    batch_bytes: int

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of what :meth:`read` yields."""
        return arrow_schema(self.fields)

    def read(
        self, split: FileSplit, deleted: Positions | None = None, seen: Callable[[int], None] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split in the order of its file, without deleted ones.

        Split ``i`` of ``n`` is the i-th of n runs of row groups.

        Args:
            deleted: Positions of the file's deleted rows, ascending.
            seen: Called with the number of rows of each batch that is read, deleted ones included.

        Raises:
            CorruptFile: the file is missing, cannot be decoded, or does not fit the table's schema.
            UnsupportedFile: it is not of its format, or has no field ids where the table has no name mapping.
        """
        file = split.file
        unit = timestamp_unit(field.field_type for field in index_by_id(self.fields).values())
        with format_model(file.format).open(self.io, file.path, timestamp_unit=unit) as data:
            check_ids(file.path, data.arrow_schema, self.name_mapping)
            try:
                projection = Projection.of(self.fields.fields, data.arrow_schema, self.name_mapping, file.constants)
            except Mismatch as error:
                raise CorruptFile(file.path, str(error)) from error
            yield from self._batches(file, data, projection, deleted, _groups(data, split), seen)

    def _batches(
        self,
        file: ContentFile,
        data: DataFile,
        projection: Projection,
        deleted: Positions | None,
        groups: range,
        seen: Callable[[int], None] | None,
    ) -> Iterator[pa.RecordBatch]:
        start = sum(data.row_groups[: groups.start])
        fields = {index: data.arrow_schema.field(index) for index in projection.sources}
        names, added = sorted({field.name for field in fields.values()}), projection.added
        for group in groups:
            for batch in data.batches(group, names, self.batch_bytes, _MAX_ROWS, added=added):
                columns = {index: batch.column(field_index(batch.schema, field)) for index, field in fields.items()}
                live = _live(deleted, start, batch.num_rows)
                try:
                    arrays = projection.arrays(columns.__getitem__, batch.num_rows)
                except ValueError as error:
                    raise CorruptFile(file.path, f"a column of it {error}") from error
                self._inherit(file, arrays, start, batch.num_rows)
                rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
                start += batch.num_rows
                if seen is not None:
                    seen(batch.num_rows)
                if live is None or live.any():
                    yield _without_nulls(file, rows if live is None else rows.filter(pa.array(live)))

    def _inherit(self, file: ContentFile, arrays: list[pa.Array], start: int, rows: int) -> None:
        """Fill in what the rows of a file inherit of their lineage; those from before format version 3 have none."""
        if file.first_row_id is None:
            return
        for index, field in enumerate(self.fields.fields):
            if field.field_id == ROW_ID.field_id:
                ids = pa.array(np.arange(start, start + rows, dtype=np.int64) + file.first_row_id)
                arrays[index] = pc.coalesce(arrays[index], ids)
            elif field.field_id == LAST_UPDATED.field_id:
                arrays[index] = pc.coalesce(arrays[index], pa.scalar(file.sequence_number, pa.int64()))


def _without_nulls(file: ContentFile, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows unchanged; raise CorruptFile if a required column has nulls in them."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            raise CorruptFile(file.path, f"its column {field.name} has nulls, and the table requires values")
    return rows


def _groups(data: DataFile, split: FileSplit) -> range:
    groups = len(data.row_groups)
    return range(groups * split.number // split.count, groups * (split.number + 1) // split.count)


def _live(deleted: Positions | None, start: int, rows: int) -> npt.NDArray[np.bool_] | None:
    """Return which rows of a batch are live; None for all of them."""
    if deleted is None:
        return None
    first, last = np.searchsorted(deleted, (start, start + rows))
    if first == last:
        return None
    live = np.ones(rows, dtype=np.bool_)
    live[np.asarray(deleted[first:last]) - start] = False
    return live
