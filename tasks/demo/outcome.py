"""What a demonstration has measured, and whether all is right."""

from __future__ import annotations

from dataclasses import dataclass

from producer.messages import Report, Status
from tasks.demo.checksum import Checksum
from tasks.demo.state import State


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured from the first row to the last reading."""

    loaded: State
    streamed: State
    converted: State
    report: Report
    #: Of the second conversion, which must find nothing to do.
    again: Report
    #: What the table must hold by what the stream wrote.
    truth: Checksum

    @property
    def difference(self) -> str | None:
        """What is not as it must be; None when all is right."""
        seen, before = self.converted.reading, self.streamed.reading
        if seen is None:
            return "iceberg-rust was stopped after the conversion, so its rows are not known: raise --read-limit"
        for when, reading in (("before", before), ("after", seen)):
            if reading is not None and reading.checksum != self.truth:
                return (
                    f"iceberg-rust reads {_sum(reading.checksum)} {when} the conversion, "
                    f"where the stream left {_sum(self.truth)}"
                )
        if before is not None and seen.revenue != before.revenue:
            return f"query 6 is {seen.revenue} after the conversion and was {before.revenue}"
        if self.converted.pyiceberg != self.truth.rows:
            return f"PyIceberg makes {self.converted.pyiceberg} of it after the conversion, not {self.truth.rows} rows"
        if self.again.status is not Status.NOTHING_TO_DO:
            return f"a second conversion is {self.again.status}, with nothing left to do"
        return None

    @property
    def times_faster(self) -> float | None:
        """Query 6 before and after the conversion; None when a reader was stopped."""
        before, after = self.streamed.reading, self.converted.reading
        return before.query_seconds / after.query_seconds if before and after else None

    def figures(self) -> dict[str, object]:
        """All of it for programs."""
        times = self.times_faster
        return {
            "equal": self.difference is None,
            "difference": self.difference,
            "times_faster": times and round(times, 1),
            "truth": self.truth.figures(),
            "loaded": self.loaded.figures(),
            "streamed": self.streamed.figures(),
            "converted": self.converted.figures(),
            "conversion": self.report.model_dump(mode="json"),
            "again": self.again.model_dump(mode="json"),
        }


def _sum(checksum: Checksum) -> str:
    return f"{checksum.rows:,} rows with checksum {checksum}"
