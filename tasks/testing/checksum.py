"""A checksum of a whole table that does not depend on the order of rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from datafusion import SessionContext


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
        """The checksum of rows in memory, over all their columns in order."""
        from datafusion import SessionContext

        context = SessionContext()
        context.register_table("rows", context.from_arrow(rows))
        return cls.asked(context, "rows", rows.column_names)

    @classmethod
    def asked(cls, context: SessionContext, table: str, columns: Iterable[str]) -> Checksum:
        """The checksum of a table that a DataFusion session knows: the exact sum of a 64-bit hash of each row."""
        context.enable_spark_functions()  # xxhash64 is one of them
        hashed = ", ".join(f'"{column}"' for column in columns)
        query = f'select count(*) as n, sum(cast(xxhash64({hashed}) as decimal(38, 0))) as hashes from "{table}"'
        (row,) = context.sql(query).to_arrow_table().to_pylist()
        return cls(row["n"], int(row["hashes"] or 0))
