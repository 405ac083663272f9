"""The match: a join of data rows with deletes that has the sequence number as its second condition.

Deletes become an index in scratch that the tasks that read look rows up in. What scratch and the machine's memory
for files cannot hold is joined by Spark, which shuffles, sorts and spills it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.table.name_mapping import NameMapping

from workers.deletes.delete_spool import Spool, key_names, spark_schema, spool
from workers.deletes.key_index import ROW_BYTES, write_index
from workers.deletes.key_partitions import read_part
from workers.deletes.position_runs import PositionRuns, written
from workers.deletes.scan import Piece, Scan, pieces
from workers.formats.key_reader import KeyReader
from workers.model.convert_unit import Match
from workers.runtime.context import UnitContext
from workers.runtime.machine import trim_memory
from workers.runtime.parallel import read_in_tasks, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Deletes that a task of their own is worth.
_TASK_DELETES: Final = 1_000_000


@dataclass(frozen=True)
class Matcher:
    """Finds the rows that a match's deletes remove.

    Args:
        context: What the unit's work uses; deletes and positions lie in its scratch.
        mapping: The table's name mapping.
    """

    context: UnitContext
    mapping: NameMapping | None

    def removed(self, match: Match, name: str) -> list[PositionRuns]:
        """The rows, each once, in files of scratch that begin with ``name``."""
        context, budget = self.context, self.context.budget
        reader = KeyReader(context.io, match.columns, self.mapping, budget.batch_bytes)
        deletes = spool(match, reader, context.scratch / name, budget, context.cancellation)
        if not deletes.rows:
            return []
        work = pieces(match)
        data = Scan(reader, match.is_global, deletes, context.scratch)
        if deletes.bytes + deletes.rows * ROW_BYTES <= budget.index_bytes:
            trim_memory()  # what reading the deletes took, before tasks need as much
            self._write_index(deletes, match.is_global)
            return data.removed(context, work, name)
        return written(self._joined(match, deletes, data, work), context.scratch, name)

    def _write_index(self, deletes: Spool, is_global: bool) -> None:
        """Replace the parts of a spool by their indexes."""
        paths, cancellation = deletes.paths, self.context.cancellation
        tasks = max(1, min(self.context.budget.cores, deletes.rows // _TASK_DELETES))

        def work(number: int) -> Iterator[None]:
            for path in cancellation.until_set(paths[number::tasks]):
                write_index(path, is_global)
            trim_memory()  # 80 MB of 300 after three million keys
            yield from ()

        run_tasks(self.context, tasks, work)

    def _joined(self, match: Match, deletes: Spool, data: Scan, work: Sequence[Piece]) -> DataFrame:
        """The rows as ``file, pos``, by a semi join: it gives each once, however often its key is deleted."""
        from pyspark.sql import functions as f

        # What keys take in Spark's heap is known by their number.
        small = deletes.broadcast_bytes <= self.context.budget.broadcast_bytes
        frame = self._deletes(match, deletes).hint("broadcast" if small else "merge")
        left, right = data.passed(self.context, work).alias("d"), frame.alias("e")
        keys = [f.col(f"d.{key}").eqNullSafe(f.col(f"e.{key}")) for key in key_names(match.columns)]
        conditions: list[Column] = [*keys, f.col("d.seq") < f.col("e.seq")]
        if not match.is_global:
            conditions.append(f.col("d.scope") == f.col("e.scope"))
        return left.join(right, reduce(and_, conditions), "left_semi").select("file", "pos")

    def _deletes(self, match: Match, deletes: Spool) -> DataFrame:
        """The deletes as ``seq, scope, k0, …``; keys that come again and again once, with their highest number."""
        from pyspark.sql import functions as f

        parts, cores = deletes.paths, self.context.budget.cores
        names = ["scope", "seq", *key_names(match.columns)]
        shares = [parts[index::cores] for index in range(min(cores, len(parts)))]

        def read(task: int) -> Iterator[pa.RecordBatch]:
            return (rows for part in shares[task] for rows in read_part(part, names))

        # What keys are the same by: those of a scoped delete only within their scope.
        group = key_names(match.columns) if match.is_global else ["scope", *key_names(match.columns)]
        rows = read_in_tasks(self.context, len(shares), spark_schema(match.columns), read)
        frame = rows.select("seq", *group)
        return frame.groupBy(*group).agg(f.max("seq").alias("seq")) if deletes.repeats else frame
