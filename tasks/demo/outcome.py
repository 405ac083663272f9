"""What a demonstration measures: the table at each step, how the jobs ended, and whether all rows are right."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent

from producer.model.job import Report, Status
from tasks.demo.reading import Reading, read, scan_with_pyiceberg
from tasks.testing import StreamTable
from tasks.testing.reader import Checksum


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The number of live files of each kind."""

    data: int
    equality_deletes: int
    position_deletes: int
    vectors: int

    @classmethod
    def of(cls, table: StreamTable) -> FileCounts:
        """Count the files of a table's head."""
        kinds = Counter("vector" if file.is_vector else file.content for file in table.files())
        return cls(
            kinds[DataFileContent.DATA],
            kinds[DataFileContent.EQUALITY_DELETES],
            kinds[DataFileContent.POSITION_DELETES],
            kinds["vector"],
        )


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table holds at one moment, and what readers return."""

    snapshot_id: int
    files: FileCounts
    #: None if iceberg-rust took too long.
    reading: Reading | None
    #: The number of rows that PyIceberg reads, or the reason why it cannot.
    pyiceberg: int | str

    @classmethod
    def of(cls, table: StreamTable, limit: float) -> TableState:
        """Read a table's head; iceberg-rust is stopped after ``limit`` seconds."""
        loaded = table.table
        snapshot = loaded.current_snapshot()
        assert snapshot is not None
        return cls(snapshot.snapshot_id, FileCounts.of(table), read(loaded, limit), scan_with_pyiceberg(loaded))

    def figures(self) -> dict[str, object]:
        """Return the measurements for JSON; those of a reader that was stopped are null."""
        reading = self.reading
        return {
            "snapshot_id": self.snapshot_id,
            "data_files": self.files.data,
            "equality_delete_files": self.files.equality_deletes,
            "position_delete_files": self.files.position_deletes,
            "deletion_vectors": self.files.vectors,
            "rows": reading and reading.checksum.rows,
            "checksum": reading and str(reading.checksum),
            "q6_seconds": reading and round(reading.query_seconds, 3),
            "q6_revenue": reading and reading.revenue,
            "scan_seconds": reading and round(reading.scan_seconds, 3),
            "pyiceberg_rows": self.pyiceberg if isinstance(self.pyiceberg, int) else None,
        }


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A conversion or a compaction, the table after it, and the same job once more, which must find nothing to do."""

    report: Report
    state: TableState
    again: Report


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was measured."""

    loaded: TableState
    streamed: TableState
    conversion: Maintenance
    compaction: Maintenance
    #: What the table must hold: the checksum of the rows that the stream wrote.
    truth: Checksum

    @property
    def difference(self) -> str | None:
        """What is not as it must be; None if all is right."""
        before = self.streamed.reading
        if before is not None and before.checksum != self.truth:
            return self._wrong(before.checksum, "before the conversion")
        jobs = (("conversion", self.conversion), ("compaction", self.compaction))
        for job, done in jobs:
            reading, when = done.state.reading, f"after the {job}"
            if reading is None:
                return f"iceberg-rust was stopped {when}, so its rows are not known: raise --read-limit"
            if reading.checksum != self.truth:
                return self._wrong(reading.checksum, when)
            if before is not None and reading.revenue != before.revenue:
                return f"query 6 is {reading.revenue} {when} and was {before.revenue}"
            if done.state.pyiceberg != self.truth.rows:
                return f"PyIceberg makes {done.state.pyiceberg} of it {when}, not {self.truth.rows} rows"
        for job, done in jobs:
            if done.again.status is not Status.NOTHING_TO_DO:
                return f"a second {job} is {done.again.status}, with nothing left to do"
        return None

    @property
    def times_faster(self) -> float | None:
        """How many times faster query 6 is after the compaction than before the conversion; None if not known."""
        before, after = self.streamed.reading, self.compaction.state.reading
        return before.query_seconds / after.query_seconds if before and after else None

    def figures(self) -> dict[str, object]:
        """Return all measurements for JSON."""
        times = self.times_faster
        return {
            "equal": self.difference is None,
            "difference": self.difference,
            "times_faster": times and round(times, 1),
            "truth": self.truth.figures(),
            "loaded": self.loaded.figures(),
            "streamed": self.streamed.figures(),
            "converted": self.conversion.state.figures(),
            "compacted": self.compaction.state.figures(),
            "conversion": self.conversion.report.model_dump(mode="json"),
            "conversion_again": self.conversion.again.model_dump(mode="json"),
            "compaction": self.compaction.report.model_dump(mode="json"),
            "compaction_again": self.compaction.again.model_dump(mode="json"),
        }

    def _wrong(self, checksum: Checksum, when: str) -> str:
        return f"iceberg-rust reads {_text(checksum)} {when}, where the stream left {_text(self.truth)}"


def _text(checksum: Checksum) -> str:
    return f"{checksum.rows:,} rows with checksum {checksum}"
