"""The match of data rows with equality deletes: a join that has the sequence number as its second condition.

Deletes become an index in scratch that the tasks that read look rows up in. What scratch and the machine's memory
for files cannot hold is joined by Spark, which shuffles, sorts and spills it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from workers.deletes.bloom_filter import KeyFilter
from workers.deletes.delete_spool import Spool, arrow_schema, key_hashes, key_names, part_hashes, spool
from workers.deletes.key_index import ROW_BYTES, KeyIndex, read_part, write_index
from workers.deletes.position_runs import PositionRuns, PositionRunWriter, write_runs
from workers.formats.key_reader import KeyReader
from workers.model.delete_set import ContentFile, DeleteSet, EqualityDeletes, FileSplit
from workers.runtime.bulk_io import opened_soon
from workers.runtime.context import UnitContext
from workers.runtime.machine import trim_memory
from workers.runtime.parallel import balance, coalesce_batches, read_in_tasks, run_tasks
from workers.runtime.scratch import record_split

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: A file of more rows is read by several tasks, each with row groups of its own.
_SPLIT_ROWS: Final = 4_000_000
_TASKS_PER_CORE: Final = 3
#: What opening a file costs, in rows read in that time.
FILE_ROWS: Final = 50_000
#: Rows, and deletes, that are worth a task of their own.
_TASK_ROWS: Final = 1_000_000
_TASK_DELETES: Final = 1_000_000
#: Rows that are looked up in an index at a time, about. Each time the pages of a large index are mapped again, so that
#: more are worth their memory.
_LOOKED_UP: Final = 1 << 15
_LOOKED_UP_IN_PARTS: Final = 1 << 18
#: The first key column of candidates.
_KEYS: Final = 5


def key_splits(deletes: EqualityDeletes, data_files: Iterable[ContentFile]) -> list[FileSplit]:
    """Return the data files that some delete is newer than, large ones in several splits."""
    newest: dict[int, int] = defaultdict(int)
    for delete in deletes.files:
        scope = 0 if deletes.is_global else delete.scope
        newest[scope] = max(newest[scope], delete.sequence_number)
    return [
        FileSplit(file, number, count)
        for file in data_files
        if file.sequence_number < newest[0 if deletes.is_global else file.scope]
        for count in [max(1, -(-file.record_count // _SPLIT_ROWS))]
        for number in range(count)
    ]


def split_cost(split: FileSplit) -> int:
    """Return what reading a split costs, in rows."""
    return split.rows + FILE_ROWS


def match_deletes(context: UnitContext, deletes: DeleteSet, equality: EqualityDeletes, name: str) -> list[PositionRuns]:
    """Return the rows of a set's data files that some of its equality deletes remove, each once.

    Deletes and positions lie in scratch, under names that begin with ``name``.
    """
    budget = context.budget
    if not (splits := key_splits(equality, deletes.data_files)):
        return []
    reader = KeyReader(context.io, equality.columns, deletes.name_mapping, budget.batch_bytes)
    spooled = spool(equality, reader, context.scratch / name, budget, context.cancellation)
    if not spooled.rows:
        return []
    matcher = _Matcher(context, reader, equality.is_global, spooled)
    if spooled.bytes + spooled.rows * ROW_BYTES > budget.index_bytes:
        return write_runs(matcher.join(splits), context.scratch, name)
    trim_memory()  # what reading the deletes took, before tasks need as much
    matcher.write_index()
    return matcher.look_up(splits, name)


@dataclass(frozen=True, slots=True)
class _Matcher:
    """Reads the key columns of data files in Spark's tasks, and leaves out most rows that no delete can match.

    What is left are candidates: ``hash, file, pos, scope, seq, k0, …``, where the hash is that of the filter.
    """

    context: UnitContext
    reader: KeyReader
    is_global: bool
    deletes: Spool

    def write_index(self) -> None:
        """Replace the parts of the spool by their indexes."""
        paths, cancellation = self.deletes.paths, self.context.cancellation
        tasks = max(1, min(self.context.budget.cores, self.deletes.rows // _TASK_DELETES))

        def work(number: int) -> Iterator[None]:
            for path in cancellation.until_set(paths[number::tasks]):
                write_index(path, self.is_global)
            trim_memory()  # 80 MB of 300 after three million keys
            yield from ()

        run_tasks(self.context, tasks, work)

    def look_up(self, splits: Sequence[FileSplit], name: str) -> list[PositionRuns]:
        """Return the rows that the index of the deletes removes, in files of scratch that begin with ``name``."""
        tasks = _balance(splits, self.context.budget.cores)

        def work(number: int) -> Iterator[PositionRuns]:
            index = KeyIndex(self.deletes.paths, self.deletes.parts, self.is_global)
            most = _LOOKED_UP if index.stays_mapped else _LOOKED_UP_IN_PARTS
            candidates = self._candidates(tasks[number])
            with PositionRunWriter(self.context.scratch / f"{name}-{number}.positions") as writer:
                for rows in coalesce_batches(candidates, most, self.reader.batch_bytes):
                    hashes, files, positions, scopes, numbers = (column.to_numpy() for column in rows.columns[:_KEYS])
                    hashes = part_hashes(self.is_global, scopes, rows.columns[_KEYS:], hashes)
                    removed = index.removes(hashes, rows.columns[_KEYS:], scopes, numbers)
                    writer.add_ascending(files[removed], positions[removed])
                yield writer.close()
            trim_memory()

        return run_tasks(self.context, len(tasks), work)

    def join(self, splits: Sequence[FileSplit]) -> DataFrame:
        """Return the rows as ``file, pos``, by a semi join: it gives each once, however often its key is deleted."""
        from pyspark.sql import functions as f

        tasks = _balance(splits, self.context.budget.cores)
        schema = pa.schema([("file", pa.int32()), ("pos", pa.int64()), *arrow_schema(self.reader.columns)])

        def read(task: int) -> Iterator[pa.RecordBatch]:
            return (rows.select(schema.names) for rows in self._candidates(tasks[task]))

        # What keys take in Spark's heap is known by their number.
        small = self.deletes.broadcast_bytes <= self.context.budget.broadcast_bytes
        left = read_in_tasks(self.context, len(tasks), schema, read).alias("d")
        right = self._delete_rows().hint("broadcast" if small else "merge").alias("e")
        keys = [f.col(f"d.{key}").eqNullSafe(f.col(f"e.{key}")) for key in key_names(self.reader.columns)]
        conditions: list[Column] = [*keys, f.col("d.seq") < f.col("e.seq")]
        if not self.is_global:
            conditions.append(f.col("d.scope") == f.col("e.scope"))
        return left.join(right, reduce(and_, conditions), "left_semi").select("file", "pos")

    def _delete_rows(self) -> DataFrame:
        """Return the deletes as ``seq, scope, k0, …``; keys that repeat often once, with their highest number."""
        from pyspark.sql import functions as f

        parts, cores, keys = self.deletes.paths, self.context.budget.cores, key_names(self.reader.columns)
        schema = arrow_schema(self.reader.columns)
        tasks = [parts[index::cores] for index in range(min(cores, len(parts)))]

        def read(task: int) -> Iterator[pa.RecordBatch]:
            return (rows for part in tasks[task] for rows in read_part(part, schema.names))

        # What keys are the same by: those of a scoped delete only within their scope.
        group = keys if self.is_global else ["scope", *keys]
        frame = read_in_tasks(self.context, len(tasks), schema, read).select("seq", *group)
        return frame.groupBy(*group).agg(f.max("seq").alias("seq")) if self.deletes.repeats else frame

    def _candidates(self, splits: Sequence[FileSplit]) -> Iterator[pa.RecordBatch]:
        """Yield the candidates of splits. Row groups go by statistics, rows by the filter."""
        keys = KeyFilter.open(self.deletes.filter)
        own = [("hash", pa.uint64()), ("file", pa.int32()), ("pos", pa.int64())]
        schema = pa.schema([*own, *arrow_schema(self.reader.columns)])
        for split in opened_soon(self.reader.io, splits, attrgetter("path")):
            file = split.file
            for batch in self.context.cancellation.until_set(self.reader.read(split, bounds=self.deletes.bounds)):
                hashes = key_hashes(self.is_global, file, batch.columns)
                found = np.flatnonzero(keys.may_contain(hashes))
                if found.size:
                    columns = [
                        pa.array(hashes[found]),
                        pa.repeat(pa.scalar(file.index, pa.int32()), found.size),
                        pa.array(found + batch.start),
                        pa.repeat(pa.scalar(file.scope, pa.int32()), found.size),
                        pa.repeat(pa.scalar(file.sequence_number, pa.int64()), found.size),
                        *(column.take(pa.array(found)) for column in batch.columns),
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)
            record_split(self.context.scratch, file.index)


def _balance(splits: Sequence[FileSplit], cores: int) -> list[list[FileSplit]]:
    """Return the splits of each task, balanced by cost: small files share a task."""
    costs = [split_cost(split) for split in splits]
    tasks = balance(costs, max(1, min(cores * _TASKS_PER_CORE, sum(costs) // _TASK_ROWS)))
    return [[splits[index] for index in task] for task in tasks]
