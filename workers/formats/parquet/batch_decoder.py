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
#: Rows that are peeked into until all dictionaries have shown: nulls and empty lists have no dictionary.
_PEEK_ROWS: Final = 1 << 20
#: Values that are decoded at a time where nothing tells how long they may be.
_BLIND_STEP: Final = 1 << 6
#: The same where most values are plain: smaller steps would cost noticeably more. Here the bound does not hold at once:
#: where short values turn into long ones of the dictionary, one step may take so many times the longest value.
_MIXED_STEP: Final = 1 << 12
#: Where steps are small, the first one; each is twice the one before at most.
_FIRST_STEP: Final = 1 << 8
#: What a value takes as an index of a dictionary, at most.
_INDEX_BYTES: Final = 4
#: A dictionary in a column chunk of so many bytes is looked at whatever else is there.
_CHEAP_BYTES: Final = 512 << 10
#: Where some rows may be much wider than most, what is decoded at a time takes so many bytes on average, and so many
#: rows at least. Smaller steps cost noticeably more.
_WARY_BYTES: Final = 512 << 10
_WARY_ROWS: Final = 16
#: A batch of so many rows, or of this part of the most bytes, is worth being one.
_WORTH_ROWS: Final = 1 << 12
_WORTH_PART: Final = 4
#: What a batch may hold so that Arrow's 32-bit offsets reach.
_MOST_BYTES: Final = 1 << 30

_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
#: Of a decimal; offsets and validity of other values take less.
_DECIMAL_WIDTH: Final = 16
_OFFSET_WIDTH: Final = 5


class BoundedFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file whose row groups are read in bounded batches.

    Args:
        source: Where the file is read from.
        options: As of ``pyarrow.parquet.ParquetFile``.
    """

    def __init__(self, source: pa.NativeFile, **options: Any) -> None:
        super().__init__(source, pre_buffer=False, buffer_size=STREAM_BYTES, **options)
        self._bytes_from = source

    def batches(
        self, group: int, columns: Sequence[str], most_bytes: int, most_rows: int, *, added: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a row group in batches of about ``most_bytes`` in memory at most; a batch has one row at least.

        Only one iteration may go on at a time.

        Args:
            group: The row group.
            columns: Names that select columns, as ``iter_batches`` takes them.
            most_bytes: Bytes of a batch in memory.
            most_rows: Rows of a batch.
            added: Bytes that each row takes besides, once the caller has filled in what the file lacks.
        """
        most_bytes = min(max(1, most_bytes), _MOST_BYTES)
        most_step = self._step(group, columns, most_bytes, most_rows, added)
        step = most_step if most_step > _MIXED_STEP else min(most_step, _FIRST_STEP)
        read = self.iter_batches(batch_size=step, row_groups=[group], columns=list(columns), use_threads=False)
        if self._is_even(group, columns):
            yield from (batch for batch in read if batch.num_rows)
            return
        buffer = _BatchBuffer(most_bytes, most_rows)
        while (batch := next(read, None)) is not None:
            if not batch.num_rows:
                continue
            if any(_has_dictionary(field.type) for field in batch.schema):
                yield batch  # takes more than it says, once it is decoded
                continue
            size = batch.nbytes + added * batch.num_rows
            yield from buffer.add(batch, size)
            step = min(most_step, 2 * step, max(1, batch.num_rows * most_bytes // max(1, size)))
            self.reader.set_batch_size(step)
        yield from buffer.flush()

    def _is_even(self, group: int, columns: Sequence[str]) -> bool:
        """Whether all rows take the same, so that no batch needs a look at what it takes."""
        chunks = self.metadata.row_group(group)
        selected = (
            self.schema.column(leaf)
            for leaf in range(chunks.num_columns)
            if _selected(chunks.column(leaf).path_in_schema, columns)
        )
        return all(_width(column) is not None and not column.max_repetition_level for column in selected)

    def _step(self, group: int, columns: Sequence[str], most_bytes: int, most_rows: int, added: int) -> int:
        """How many rows may be decoded at a time."""
        chunks = self.metadata.row_group(group)
        rows = max(1, chunks.num_rows)
        leaves = [leaf for leaf in range(chunks.num_columns) if _selected(chunks.column(leaf).path_in_schema, columns)]
        folded = [
            leaf for leaf in leaves if _width(self.schema.column(leaf)) is None and not _is_plain(chunks.column(leaf))
        ]
        # No value is longer than the column chunk that its dictionary is in; mostly that is enough to know.
        longest = {leaf: int(chunks.column(leaf).total_uncompressed_size) for leaf in folded}
        if rows * sum(longest.values()) > most_bytes:
            longest = self._longest(group, [leaf for leaf in folded if not _is_mixed(chunks.column(leaf))])
        # Of each row for certain; of all rows together, in whatever rows they may be.
        certain, spread, step = added, 0, most_rows
        for leaf in leaves:
            chunk, column = chunks.column(leaf), self.schema.column(leaf)
            width: int | None = _width(column)
            if width is None:
                spread += chunk.total_uncompressed_size
                width = 0 if _is_plain(chunk) else longest.get(leaf)
            if width is None:
                blind = _MIXED_STEP if _is_mixed(chunk) else _BLIND_STEP
                blind = max(blind, most_bytes // max(1, chunk.total_uncompressed_size))
                step = min(step, max(1, blind * rows // max(rows, chunk.num_values)))
            elif column.max_repetition_level:
                spread += chunk.num_values * (width + _OFFSET_WIDTH)
            else:
                certain += width + _OFFSET_WIDTH
        step = min(step, most_bytes // max(1, certain))
        if spread > most_bytes:
            mean = max(1, spread // rows)
            step = min(step, max(_WARY_BYTES // mean, min(_WARY_ROWS, most_bytes // mean)))
        return max(1, step)

    def _longest(self, group: int, leaves: Sequence[int]) -> dict[int, int]:
        """Bytes of the longest value in the dictionary of each leaf; without those that show none.

        A dictionary comes before the values of its column chunk, and Arrow gives it away with the first of them.
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

    def __init__(self, most_bytes: int, most_rows: int) -> None:
        self._most_bytes = most_bytes
        self._most_rows = most_rows
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0

    def add(self, batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
        """Add a batch; yield what is large enough, and what would grow too large with it."""
        if self._bytes + size > self._most_bytes or self._rows + batch.num_rows > self._most_rows:
            yield from self.flush()
        self._waiting.append(batch)
        self._bytes += size
        self._rows += batch.num_rows
        if self._rows >= _WORTH_ROWS or self._bytes >= self._most_bytes // _WORTH_PART:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield what is buffered."""
        waiting, self._waiting, self._bytes, self._rows = self._waiting, [], 0, 0
        if waiting:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)


def _selected(path: str, columns: Sequence[str]) -> bool:
    return any(path == column or path.startswith(f"{column}.") for column in columns)


def _width(column: pq.ColumnSchema) -> int | None:
    """Bytes of a value, None where values have bytes of their own."""
    if column.physical_type == "BYTE_ARRAY":
        return _DECIMAL_WIDTH if column.logical_type.type == "DECIMAL" else None
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(_DECIMAL_WIDTH, int(column.length))
    width = _WIDTHS.get(column.physical_type, _DECIMAL_WIDTH)
    return _DECIMAL_WIDTH if column.logical_type.type == "DECIMAL" else width


def _is_plain(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether values take no more bytes than the pages that they are in."""
    folding = ("DICTIONARY", "DELTA_BYTE_ARRAY")
    return not chunk.has_dictionary_page and not any(
        kind in encoding for encoding in chunk.encodings for kind in folding
    )


def _is_mixed(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether most values are not from a dictionary, though there is one: a large one, dear to look at."""
    size = int(chunk.total_uncompressed_size)
    return size > _INDEX_BYTES * chunk.num_values and size > _CHEAP_BYTES


def _dictionaries(array: pa.Array) -> Iterator[pa.Array]:
    """The dictionaries in an array, in the order of its leaves."""
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
