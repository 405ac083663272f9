"""Sorted runs of rows in scratch, as Arrow files that are mapped when they are read: what an exchange goes through."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.model.rewrite_unit import Input
from workers.sorting.sorter import SORTING, Arranger


@dataclass(frozen=True, slots=True)
class Run:
    """A file of kept rows (:class:`workers.sorting.sorter.Arranger`): one batch for each range and sweep."""

    path: str
    #: Of partitions, by the numbers that stand for them.
    texts: tuple[str, ...]
    #: The range of each batch.
    batches: tuple[int, ...]
    #: Rows by range and text.
    rows: dict[tuple[int, str], int]


class RunWriter:
    """Gathers rows up to a number of bytes, sorts them, and writes them by range.

    A run is written in one sweep however many ranges there are, so neither open files nor memory grow with them.

    Args:
        path: Of the file.
        arranger: How rows are arranged.
        most: Bytes that are gathered, with what sorting takes.
    """

    def __init__(self, path: Path, arranger: Arranger, most: int) -> None:
        self._path = path
        self._arranger = arranger
        self._schema = arranger.schema
        self._most = most
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._numbers: dict[str, int] = {}
        self._batches: list[int] = []
        self._rows: Counter[tuple[int, str]] = Counter()
        self._file = pa.ipc.new_file(str(path), self._schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, file: Input, batch: pa.RecordBatch, place: int) -> None:
        """Take rows of a file that follow one another from a place on, which ascends from call to call.

        Raises:
            ValueError: a value is none that its partition's transform takes.
        """
        encoded = self._arranger.encoded(file, batch)
        numbers = [self._numbers.setdefault(text, len(self._numbers)) for text in encoded.dictionary.to_pylist()]
        parts = np.array(numbers, np.int32)[encoded.indices.to_numpy()]
        kept = pa.RecordBatch.from_arrays(self._arranger.kept(parts, place, batch), schema=self._schema)
        size = kept.nbytes + SORTING * kept.num_rows
        if self._bytes + size > 2 * self._most:
            self._flush()  # a few rows may be so large that they are better sorted alone
        self._waiting.append(kept)
        self._bytes += size
        if self._bytes >= self._most:
            self._flush()

    def close(self) -> Run:
        """Write what is left and describe the file."""
        self._flush()
        return Run(str(self._path), tuple(self._numbers), tuple(self._batches), dict(self._rows))

    def _flush(self) -> None:
        if not self._waiting:
            return
        texts = pa.array(list(self._numbers), pa.string())
        order = pa.array(self._arranger.order(self._waiting, [ranks_of(texts)] * len(self._waiting)))
        waiting = (batch.columns for batch in self._waiting)
        columns: list[Any] = [pa.chunked_array(chunks) for chunks in zip(*waiting, strict=True)]
        self._waiting, self._bytes = [], 0
        for index, column in enumerate(columns):  # each goes as soon as there is another
            columns[index] = column.take(order).combine_chunks()
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        starts = self._arranger.starts(batch, texts)
        for number, (start, end) in enumerate(pairwise([*starts, batch.num_rows])):
            if end > start:
                some = batch.slice(start, end - start)
                self._file.write_batch(some)
                self._batches.append(number)
                counts = np.bincount(some.column(0).to_numpy())
                for part in np.flatnonzero(counts).tolist():
                    self._rows[number, texts[part].as_py()] += int(counts[part])


def ranks_of(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Where each of some distinct texts is among them in order."""
    ranks = np.empty(len(texts), np.int64)
    ranks[pc.sort_indices(texts).to_numpy()] = np.arange(len(texts))
    return ranks
