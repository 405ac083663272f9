"""What a demonstration has measured, and whether all is right."""

from __future__ import annotations

from dataclasses import dataclass

from producer.model.job import Report, Status
from tasks.demo.state import State
from tasks.testing.reader import Checksum


@dataclass(frozen=True, slots=True)
class States:
    """The table at each of its moments."""

    loaded: State
    streamed: State
    converted: State
    compacted: State


@dataclass(frozen=True, slots=True)
class Reports:
    """How each job ended; each second one must find nothing to do."""

    conversion: Report
    conversion_again: Report
    compaction: Report
    compaction_again: Report


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured from the first row to the last reading."""

    states: States
    reports: Reports
    #: What the table must hold by what the stream wrote.
    truth: Checksum

    @property
    def difference(self) -> str | None:
        """What is not as it must be; None when all is right."""
        before = self.states.streamed
        if before.reading is not None and before.reading.checksum != self.truth:
            return self._wrong(before.reading.checksum, "before the conversion")
        for job, state in (("conversion", self.states.converted), ("compaction", self.states.compacted)):
            seen, when = state.reading, f"after the {job}"
            if seen is None:
                return f"iceberg-rust was stopped {when}, so its rows are not known: raise --read-limit"
            if seen.checksum != self.truth:
                return self._wrong(seen.checksum, when)
            if before.reading is not None and seen.revenue != before.reading.revenue:
                return f"query 6 is {seen.revenue} {when} and was {before.reading.revenue}"
            if state.pyiceberg != self.truth.rows:
                return f"PyIceberg makes {state.pyiceberg} of it {when}, not {self.truth.rows} rows"
        for job, again in (
            ("conversion", self.reports.conversion_again),
            ("compaction", self.reports.compaction_again),
        ):
            if again.status is not Status.NOTHING_TO_DO:
                return f"a second {job} is {again.status}, with nothing left to do"
        return None

    @property
    def times_faster(self) -> float | None:
        """Query 6 before the conversion and after the compaction; None when a reader was stopped."""
        before, after = self.states.streamed.reading, self.states.compacted.reading
        return before.query_seconds / after.query_seconds if before and after else None

    def figures(self) -> dict[str, object]:
        """All of it for programs."""
        times, states, reports = self.times_faster, self.states, self.reports
        return {
            "equal": self.difference is None,
            "difference": self.difference,
            "times_faster": times and round(times, 1),
            "truth": self.truth.figures(),
            "loaded": states.loaded.figures(),
            "streamed": states.streamed.figures(),
            "converted": states.converted.figures(),
            "compacted": states.compacted.figures(),
            "conversion": reports.conversion.model_dump(mode="json"),
            "conversion_again": reports.conversion_again.model_dump(mode="json"),
            "compaction": reports.compaction.model_dump(mode="json"),
            "compaction_again": reports.compaction_again.model_dump(mode="json"),
        }

    def _wrong(self, seen: Checksum, when: str) -> str:
        return f"iceberg-rust reads {_sum(seen)} {when}, where the stream left {_sum(self.truth)}"


def _sum(checksum: Checksum) -> str:
    return f"{checksum.rows:,} rows with checksum {checksum}"
