"""The demonstration, step by step."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from producer.common.errors import Failed, Reason, Refused
from producer.common.settings import Settings
from producer.common.sizes import count_text
from producer.model.job import Operation, Status
from producer.planning import OPERATIONS
from tasks.demo.catalog import TABLE, DemoCatalog
from tasks.demo.lineitem import BUCKETS, Stream, find_generator, generate
from tasks.demo.outcome import FileCounts, Maintenance, Outcome, TableState
from tasks.demo.page import Page
from tasks.demo.reading import check_reader
from tasks.testing import StreamTable
from workers.runtime.session import NoJava, find_java

#: Commits that load the table, so that each bucket has several files.
_PARTS = 4


def check(settings: Settings, *, private: bool, only_table: bool) -> None:
    """Refuse at the start what would fail minutes later.

    Raises:
        Refused: The generator or Java is missing, or a fleet could not find the table.
    """
    find_generator()
    if only_table:
        return
    check_reader()
    if settings.local:
        try:
            find_java()
        except NoJava as error:
            raise Refused(Reason.CONFIGURATION, str(error)) from error
    elif private:
        sentence = "ICEFLEET_BROKER_URL is set: name a catalog that the fleet's workers know too with --catalog."
        raise Refused(Reason.USAGE, sentence)


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A table, how large it is, how long its readers may take, and where each step is printed."""

    catalog: DemoCatalog
    page: Page
    scale: float
    batches: int
    format_version: int
    #: Seconds.
    read_limit: float

    def make_table(self) -> dict[str, object]:
        """Create the table with its equality deletes, and no more; return what it holds, for JSON."""
        stream = self._load(checksums=False)
        self._run_stream(stream)
        return {"truth": {"rows": stream.truth.rows}, "files": asdict(FileCounts.of(stream.table))}

    def run(self) -> Outcome:
        """Load the table, stream changes into it, convert and compact it, and read it at each step.

        Raises:
            Failed: The conversion or the compaction did not commit.
        """
        stream = self._load()
        loaded = self._read(stream.table, "as it was loaded")
        self._run_stream(stream)
        streamed = self._read(stream.table, "with its equality deletes")
        conversion = self._maintain(stream.table, Operation.CONVERT, "conversion")
        compaction = self._maintain(stream.table, Operation.COMPACT, "compaction")
        return Outcome(loaded, streamed, conversion, compaction, stream.truth)

    def _load(self, *, checksums: bool = True) -> Stream:
        """Create the table with its first rows; return the stream that will change it."""
        where = self.catalog.folder or f"catalog {self.catalog.name}"
        self.page.say(f"{TABLE}, format version {self.format_version}, in {where}")
        stream = Stream(self.catalog.make_table(self.format_version), checksums=checksums)
        with self.page.step(f"loading TPC-H lineitem at scale {self.scale:g}", _PARTS) as step:
            for part in generate(self.scale, _PARTS):
                stream.load(part)
                step.advance()
            step.result = (
                f"loaded {stream.truth.rows:,} rows of TPC-H lineitem into {TABLE}: "
                f"{count_text(FileCounts.of(stream.table).data, 'file')} in {BUCKETS} buckets of l_orderkey"
            )
        return stream

    def _run_stream(self, stream: Stream) -> None:
        with self.page.step("streaming changes", self.batches) as step:
            batches = []
            for _ in range(self.batches):
                batches.append(stream.change())
                step.advance()
            step.result = (
                f"a stream committed {count_text(len(batches), 'batch', 'batches')}: "
                f"{count_text(sum(b.updated for b in batches), 'row')} updated, "
                f"{sum(b.deleted for b in batches):,} deleted, "
                f"{count_text(sum(b.delete_files for b in batches), 'equality delete file')}"
            )

    def _read(self, table: StreamTable, when: str) -> TableState:
        with self.page.step(f"reading it {when}, by iceberg-rust") as step:
            state = TableState.of(table, self.read_limit)
            reading = state.reading
            step.result = f"read it {when}: " + (
                f"stopped after {self.read_limit:g} s"
                if reading is None
                else f"Q6 {reading.query_seconds:,.2f} s, every row and column {reading.scan_seconds:,.2f} s"
            )
        if isinstance(state.pyiceberg, str):
            self.page.say(f"  PyIceberg cannot: {state.pyiceberg}.")
        return state

    def _maintain(self, table: StreamTable, operation: Operation, name: str) -> Maintenance:
        """Run an operation on the table, read the table, and run the operation again."""
        with self.page.step(f"{operation}ing", live=False) as step:
            report = self.catalog.run(operation)
            if report.status is not Status.COMMITTED:
                reasons = [report.reason, *(failure.reason for failure in report.failures)]
                raise Failed(f"The {name} is {report.status}: {'; '.join(r for r in reasons if r)}")
            result = OPERATIONS[operation].describe_result(report)
            step.result = f"{operation}ed: {result}; snapshot {report.snapshot_id}"
        state = self._read(table, f"after the {name}")
        with self.page.step(f"{operation}ing again", live=False) as step:
            again = self.catalog.run(operation)
            step.result = f"{operation}ed again: {again.reason or again.status}"
        return Maintenance(report, state, again)
