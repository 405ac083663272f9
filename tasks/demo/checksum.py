"""A checksum of a whole table that does not depend on the order of rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from datafusion import SessionContext

from tasks.demo.lineitem import SCHEMA

#: Rows, and the sum of a 64-bit hash of each row's columns, exactly.
QUERY = f"""
    select count(*) as rows, sum(cast(xxhash64({", ".join(SCHEMA.column_names)}) as decimal(38, 0))) as hashes
    from lineitem
"""


@dataclass(frozen=True, slots=True)
class Checksum:
    """Rows and the sum of their hashes. It adds up: a table's is that of what was written less what was deleted."""

    rows: int = 0
    hashes: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, self.hashes + other.hashes)

    def __sub__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows - other.rows, self.hashes - other.hashes)

    def __str__(self) -> str:
        return f"{self.hashes % 2**64:016x}"

    def figures(self) -> dict[str, object]:
        """Both for programs."""
        return {"rows": self.rows, "checksum": str(self)}

    @classmethod
    def of(cls, rows: pa.Table) -> Checksum:
        """The checksum of rows in memory."""
        context = SessionContext()
        context.register_table("lineitem", context.from_arrow(rows))
        return cls.asked(context)

    @classmethod
    def asked(cls, context: SessionContext) -> Checksum:
        """The checksum of the table ``lineitem`` that a DataFusion session knows."""
        context.enable_spark_functions()  # xxhash64 is one of them
        (row,) = context.sql(QUERY).to_arrow_table().to_pylist()
        return cls(row["rows"], int(row["hashes"] or 0))
