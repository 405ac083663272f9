"""Reading of Parquet row groups in batches that are bounded by what their rows take in memory, not in the file.

A dictionary holds a long value once, however many rows have it, and a list of equal values takes next to nothing: a
file of some hundred kilobytes can unfold to gigabytes. What rows may take is therefore computed from the widths of
types, the longest value of each dictionary, and the bytes of all pages. Arrow then decodes a few rows at a time, and
small steps are put together into batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

#: Column chunks are streamed in pieces of this many bytes, so that a chunk of any size takes little memory.
STREAM_BYTES: Final = 4 << 20
#: The same while only the beginning of a chunk is wanted.
_PEEK_BYTES: Final = 64 << 10
#: Rows that are read until all dictionaries have come: nulls and empty lists have no dictionary.
_PEEK_ROWS: Final = 1 << 20
#: Values that are decoded at a time where nothing tells how long they may be.
_UNKNOWN_STEP: Final = 1 << 6
#: Steps of at most so many rows begin with the first one below; each is twice the one before at most.
_SMALL_STEP: Final = 1 << 12
_FIRST_STEP: Final = 1 << 8
#: What a value takes as an index of a dictionary, at most.
_INDEX_BYTES: Final = 4
#: A column chunk of so many bytes does not count as mixed.
_SMALL_CHUNK_BYTES: Final = 512 << 10
#: Where some rows may be much wider than most, what is decoded at a time takes so many bytes on average, and so many
#: rows at least. Smaller steps cost noticeably more.
_UNEVEN_STEP_BYTES: Final = 512 << 10
_UNEVEN_STEP_ROWS: Final = 16
#: A batch of so many rows, or of this part of the bytes that it may have, is large enough.
_MIN_BATCH_ROWS: Final = 1 << 15
_MIN_BATCH_PART: Final = 4
#: What a batch may hold so that Arrow's 32-bit offsets reach.
_MAX_BYTES: Final = 1 << 30

_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
#: Of a decimal; offsets and validity of other values take less.
_DECIMAL_WIDTH: Final = 16
_OFFSET_WIDTH: Final = 5


class BoundedFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file whose row groups are read in bounded batches; its options are those of ``ParquetFile``."""

    def __init__(self, source: pa.NativeFile, **options: Any) -> None:
        super().__init__(source, pre_buffer=False, buffer_size=STREAM_BYTES, **options)
        self._bytes_from = source

    def batches(
        self, group: int, columns: Sequence[str], max_bytes: int, max_rows: int, *, added: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group; see :meth:`workers.formats.format_model.DataFile.batches`."""
        chunks = self.metadata.row_group(group)
        leaves = [leaf for leaf in range(chunks.num_columns) if _selected(chunks.column(leaf).path_in_schema, columns)]
        is_even = self._is_even(leaves)
        max_bytes = min(max(1, max_bytes), _MAX_BYTES)
        self._read_ahead(group, leaves)
        max_step = self._step(group, leaves, max_bytes, max_rows, added)
        step = max_step if is_even or max_step > _SMALL_STEP else min(max_step, _FIRST_STEP)
        read = self.iter_batches(batch_size=step, row_groups=[group], columns=list(columns), use_threads=False)
        if is_even:
            yield from (batch for batch in read if batch.num_rows)
            return
        buffer = _BatchBuffer(max_bytes, max_rows)
        while (batch := next(read, None)) is not None:
            if not batch.num_rows:
                continue
            if any(_has_dictionary(field.type) for field in batch.schema):
                yield batch  # takes more than it says, once it is decoded
                continue
            size = batch.nbytes + added * batch.num_rows
            yield from buffer.add(batch, size)
            step = min(max_step, 2 * step, max(1, batch.num_rows * max_bytes // max(1, size)))
            self.reader.set_batch_size(step)
        yield from buffer.flush()

    def _read_ahead(self, group: int, leaves: Sequence[int]) -> None:
        """Announce the column chunks that are read next, if the source reads ahead."""
        if (expect := getattr(self._bytes_from, "expect", None)) is not None:
            expect([_range(self.metadata.row_group(group).column(leaf)) for leaf in leaves])

    def _is_even(self, leaves: Sequence[int]) -> bool:
        """Return whether all rows take the same, so that no batch must be measured."""
        columns = map(self.schema.column, leaves)
        return all(_width(column) is not None and not column.max_repetition_level for column in columns)

    def _step(self, group: int, leaves: Sequence[int], max_bytes: int, max_rows: int, added: int) -> int:
        """Return how many rows may be decoded at a time."""
        chunks = self.metadata.row_group(group)
        rows = max(1, chunks.num_rows)
        encoded = [
            leaf for leaf in leaves if _width(self.schema.column(leaf)) is None and not _is_plain(chunks.column(leaf))
        ]
        # No value is longer than the column chunk that its dictionary is in; mostly that is enough to know.
        longest = {leaf: int(chunks.column(leaf).total_uncompressed_size) for leaf in encoded}
        if rows * sum(longest.values()) > max_bytes:
            longest = self._longest(group, encoded)
        # Bytes that every row has, and bytes that all rows have together, in whatever rows they may be.
        row_bytes, spread, step = added, 0, max_rows
        for leaf in leaves:
            chunk, column = chunks.column(leaf), self.schema.column(leaf)
            width: int | None = _width(column)
            if width is None:
                spread += chunk.total_uncompressed_size
                width = 0 if _is_plain(chunk) else longest.get(leaf)
            if width is None:
                values = max(_UNKNOWN_STEP, max_bytes // max(1, chunk.total_uncompressed_size))
                step = min(step, max(1, values * rows // max(rows, chunk.num_values)))
            elif column.max_repetition_level:
                spread += chunk.num_values * (width + _OFFSET_WIDTH)
            else:
                row_bytes += width + _OFFSET_WIDTH
                if _is_mixed(chunk):
                    step = min(step, _MIN_BATCH_ROWS)
        step = min(step, max_bytes // max(1, row_bytes))
        if spread > max_bytes:
            mean = max(1, spread // rows)
            step = min(step, max(_UNEVEN_STEP_BYTES // mean, min(_UNEVEN_STEP_ROWS, max_bytes // mean)))
        return max(1, step)

    def _longest(self, group: int, leaves: Sequence[int]) -> dict[int, int]:
        """Return the bytes of the longest value in the dictionary of each leaf that has one.

        A dictionary comes before the values of its column chunk, and Arrow returns it with the first of them.
        """
        chunks = self.metadata.row_group(group)
        # Of deltas dictionaries tell nothing, and Arrow does not make dictionaries of them.
        leaves = [leaf for leaf in leaves if not any("DELTA" in encoding for encoding in chunks.column(leaf).encodings)]
        paths = [chunks.column(leaf).path_in_schema for leaf in leaves]
        found: dict[int, int] = {}
        with pq.ParquetFile(
            self._bytes_from, metadata=self.metadata, read_dictionary=paths, pre_buffer=False, buffer_size=_PEEK_BYTES
        ) as file:
            columns = list(dict.fromkeys(path.partition(".")[0] for path in paths))  # a map's keys with its values
            read = file.iter_batches(batch_size=1, row_groups=[group], columns=columns, use_threads=False)
            rows = 0
            while len(found) < len(leaves) and rows < _PEEK_ROWS and (batch := next(read, None)) is not None:
                rows += batch.num_rows
                dictionaries = [d for column in batch.columns for d in _dictionaries(column)]
                if len(dictionaries) != len(leaves):
                    break  # names may repeat
                for leaf, dictionary in zip(leaves, dictionaries, strict=True):
                    if len(dictionary):
                        found[leaf] = max(found.get(leaf, 0), pc.max(pc.binary_length(dictionary)).as_py() or 0)
                file.reader.set_batch_size(rows * 3)
        return found


class _BatchBuffer:
    """Combines small batches."""

    def __init__(self, max_bytes: int, max_rows: int) -> None:
        self._max_bytes = max_bytes
        self._max_rows = max_rows
        self._buffer: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0

    def add(self, batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
        """Add a batch; yield what is large enough, and what would grow too large with it."""
        if self._bytes + size > self._max_bytes or self._rows + batch.num_rows > self._max_rows:
            yield from self.flush()
        self._buffer.append(batch)
        self._bytes += size
        self._rows += batch.num_rows
        if self._rows >= _MIN_BATCH_ROWS or self._bytes >= self._max_bytes // _MIN_BATCH_PART:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield what is buffered."""
        buffered, self._buffer, self._bytes, self._rows = self._buffer, [], 0, 0
        if buffered:
            yield buffered[0] if len(buffered) == 1 else pa.concat_batches(buffered)


def _range(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Return where a column chunk begins and ends."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _selected(path: str, columns: Sequence[str]) -> bool:
    return any(path == column or path.startswith(f"{column}.") for column in columns)


def _width(column: pq.ColumnSchema) -> int | None:
    """Return the bytes of a value; None where each value has its own."""
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(_DECIMAL_WIDTH, int(column.length))
    if column.logical_type.type == "DECIMAL":
        return _DECIMAL_WIDTH
    return None if column.physical_type == "BYTE_ARRAY" else _WIDTHS.get(column.physical_type, _DECIMAL_WIDTH)


def _is_plain(chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether values take no more bytes than the pages that they are in."""
    folding = ("DICTIONARY", "DELTA_BYTE_ARRAY")
    return not chunk.has_dictionary_page and not any(
        kind in encoding for encoding in chunk.encodings for kind in folding
    )


def _is_mixed(chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether most values are not from a dictionary, though there is one: larger steps would gain nothing."""
    size = int(chunk.total_uncompressed_size)
    return size > _INDEX_BYTES * chunk.num_values and size > _SMALL_CHUNK_BYTES


def _dictionaries(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the dictionaries in an array, in the order of its leaves."""
    if isinstance(array, pa.ExtensionArray):
        yield from _dictionaries(array.storage)
    elif pa.types.is_dictionary(array.type):
        yield array.dictionary
    elif pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            yield from _dictionaries(array.field(index))
    elif pa.types.is_map(array.type):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        yield from _dictionaries(array.values)


def _has_dictionary(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return True
    return any(_has_dictionary(type_.field(index).type) for index in range(type_.num_fields))
