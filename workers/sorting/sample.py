"""A sample of the keys of a unit's rows: only the key columns are read, and few rows of them are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.runtime.context import UnitContext
from workers.sorting.ranges import comparable
from workers.sorting.sort_keys import RowKeys
from workers.sorting.sources import AnySplit, Batches, RowSource, read_splits

#: Rows; ranges come out some percent uneven.
_ROWS: Final = 1 << 16
#: Of one value: what lies between rows need not be a value itself.
_BYTES: Final = 128
#: Rows of one split are numbered below this.
_SPLIT_ROWS: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Sample:
    """Keys of rows picked evenly, the beginnings of long ones."""

    parts: pa.Array
    columns: tuple[pa.Array, ...]
    #: Where the rows were in the inputs.
    places: pa.Array
    #: Bytes that a row takes in Arrow, on average; 0 where there are no rows.
    width: float


def sample_keys(
    context: UnitContext,
    keys: RowKeys,
    splits: Sequence[AnySplit],
    source: RowSource[AnySplit],
    whole: Callable[[AnySplit], Batches],
) -> Sample:
    """Read the key columns of all splits, and pick rows; each task reads a few whole rows as well.

    Args:
        context: The unit's; the tasks of its session read the splits.
        keys: Of the rows of ``source``.
        splits: What there is.
        source: Key columns alone.
        whole: Whole rows of a split.
    """
    step = max(1, sum(split.rows for split in splits) // _ROWS)

    until_cancelled = context.cancellation.until_set

    def pick(_: int, mine: Iterator[tuple[int, AnySplit]]) -> Iterator[tuple[bytes, int, int]]:
        found, rows, size = [], 0, 0
        for number, split in mine:
            start = 0
            for batch in until_cancelled(source.read_uncounted(split)):
                picked = pa.array(sampled_rows(number, start, batch.num_rows, step))
                few, places = batch.take(picked), pc.add(picked, place_of(number, start))
                found.append(_key_batch(keys.parts(split.file, few), keys.columns(few), places))
                start += batch.num_rows
            if start and not rows:  # a split has no rows where its file has fewer row groups than splits
                for batch in islice(whole(split), 1):
                    rows, size = batch.num_rows, batch.nbytes
        yield _packed(found), rows, size

    tasks = read_splits(context, splits, pick)
    nothing = keys.columns(pa.RecordBatch.from_pylist([], schema=source.schema))
    picked = [_key_batch(pa.array([], pa.string()), nothing, pa.array([], pa.int64()))]
    for stream, _, _ in tasks:
        if stream:
            picked.extend(pa.ipc.open_stream(stream))
    parts, *columns, places = pa.concat_batches(picked).columns
    width = sum(size for _, _, size in tasks) / max(1, sum(rows for _, rows, _ in tasks))
    return Sample(parts, tuple(columns), places, width)


def place_of(number: int, row: int) -> int:
    """Where a row is in the inputs, by the number of its split: ascending as they are."""
    return number * _SPLIT_ROWS + row


def of_place(places: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The numbers of splits and of rows in them."""
    numbers = pc.divide(places, _SPLIT_ROWS)
    return numbers, pc.subtract(places, pc.multiply(numbers, _SPLIT_ROWS))


def sampled_rows(number: int, start: int, rows: int, step: int) -> npt.NDArray[np.int64]:
    """Indexes in a batch of the rows that are picked: one of each ``step``, anywhere in it."""
    blocks = np.arange(start // step, (start + rows - 1) // step + 1, dtype=np.int64) if rows else np.zeros(0, np.int64)
    mixed = (blocks.astype(np.uint64) + np.uint64(number + 1)) * np.uint64(0x9E3779B97F4A7C15)
    found: npt.NDArray[np.int64] = blocks * step + ((mixed >> np.uint64(33)) % np.uint64(step)).astype(np.int64) - start
    return found[(found >= 0) & (found < rows)]


def _key_batch(parts: pa.Array, columns: Sequence[pa.Array], places: pa.Array) -> pa.RecordBatch:
    arrays = [parts, *(_cut(comparable(column)) for column in columns), places]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{index}" for index in range(len(arrays))])


def _packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        stream.write_batch(pa.concat_batches(batches))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _cut(column: pa.Array) -> pa.Array:
    return pc.binary_slice(column, 0, _BYTES) if pa.types.is_binary(column.type) else column
