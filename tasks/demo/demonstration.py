"""The demonstration, step by step."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from producer.common.errors import Failed, Reason, Refused
from producer.common.settings import Settings
from producer.common.sizes import count_text
from producer.model.job import Report, Status
from producer.planning import OPERATIONS
from tasks.demo.lineitem import BUCKETS, find_generator, generate
from tasks.demo.maintenance import compact, convert
from tasks.demo.outcome import Outcome, Reports, States
from tasks.demo.page import Page
from tasks.demo.place import TABLE, Place
from tasks.demo.reading import check_reader
from tasks.demo.state import Files, State
from tasks.demo.stream import Stream
from tasks.testing import StreamTable
from workers.runtime.session import NoJava, find_java

#: Commits that load the table, so that each bucket has several files.
_PARTS = 4


@dataclass(frozen=True, slots=True)
class Size:
    """How large the table is, and how long is waited for its readers."""

    scale: float
    batches: int
    format_version: int
    #: Seconds.
    read_limit: float


def check(settings: Settings, *, private: bool, only_table: bool) -> None:
    """Refuse at the start what would fail minutes later.

    Raises:
        Refused: the generator or Java is missing, or a fleet could not find the table.
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


def load_table(place: Place, size: Size, page: Page, *, summed: bool = True) -> Stream:
    """The table with its first rows, and the stream that is about to change it."""
    page.say(f"{TABLE}, format version {size.format_version}, in {place.folder or f'catalog {place.name}'}")
    stream = Stream(place.make_table(size.format_version), summed=summed)
    with page.step(f"loading TPC-H lineitem at scale {size.scale:g}", _PARTS) as step:
        for part in generate(size.scale, _PARTS):
            stream.load(part)
            step.advance()
        step.result = (
            f"loaded {stream.truth.rows:,} rows of TPC-H lineitem into {TABLE}: "
            f"{count_text(Files.of(stream.table).data, 'file')} in {BUCKETS} buckets of l_orderkey"
        )
    return stream


def run_stream(stream: Stream, size: Size, page: Page) -> None:
    """Let the stream change the table."""
    with page.step("streaming changes", size.batches) as step:
        done = []
        for _ in range(size.batches):
            done.append(stream.change())
            step.advance()
        step.result = (
            f"a stream committed {count_text(len(done), 'batch', 'batches')}: "
            f"{count_text(sum(b.updated for b in done), 'row')} updated, {sum(b.deleted for b in done):,} deleted, "
            f"{count_text(sum(b.delete_files for b in done), 'equality delete file')}"
        )


def look(table: StreamTable, size: Size, page: Page, when: str) -> State:
    """Read the table with independent readers."""
    with page.step(f"reading it {when}, by iceberg-rust") as step:
        state = State.of(table, size.read_limit)
        seen = state.reading
        step.result = f"read it {when}: " + (
            f"stopped after {size.read_limit:g} s"
            if seen is None
            else f"Q6 {seen.query_seconds:,.2f} s, every row and column {seen.scan_seconds:,.2f} s"
        )
    if isinstance(state.pyiceberg, str):
        page.say(f"  PyIceberg cannot: {state.pyiceberg}.")
    return state


def make_table(place: Place, size: Size, page: Page) -> dict[str, object]:
    """Only the table, with its equality deletes; what it holds, for programs."""
    stream = load_table(place, size, page, summed=False)
    run_stream(stream, size, page)
    return {"truth": {"rows": stream.truth.rows}, "files": asdict(Files.of(stream.table))}


def demonstrate(place: Place, size: Size, page: Page) -> Outcome:
    """All of it: load, read, stream, read, convert, read, convert again, compact, read, compact again.

    Raises:
        Failed: the conversion or the compaction did not commit.
    """
    stream = load_table(place, size, page)
    table = stream.table
    loaded = look(table, size, page, "as it was loaded")
    run_stream(stream, size, page)
    streamed = look(table, size, page, "with its equality deletes")
    with page.step("converting", live=False) as step:
        conversion = _committed("conversion", convert(place))
        step.result = f"converted: {_result_text(conversion)}"
    converted = look(table, size, page, "after the conversion")
    with page.step("converting again", live=False) as step:
        convert_again = convert(place)
        step.result = f"converted again: {convert_again.reason or convert_again.status}"
    with page.step("compacting", live=False) as step:
        compaction = _committed("compaction", compact(place))
        step.result = f"compacted: {_result_text(compaction)}"
    compacted = look(table, size, page, "after the compaction")
    with page.step("compacting again", live=False) as step:
        compact_again = compact(place)
        step.result = f"compacted again: {compact_again.reason or compact_again.status}"
    return Outcome(
        States(loaded, streamed, converted, compacted),
        Reports(conversion, convert_again, compaction, compact_again),
        stream.truth,
    )


def _result_text(report: Report) -> str:
    return f"{OPERATIONS[report.operation].describe_result(report)}; snapshot {report.snapshot_id}"


def _committed(what: str, report: Report) -> Report:
    if report.status is not Status.COMMITTED:
        reasons = [report.reason, *(failure.reason for failure in report.failures)]
        raise Failed(f"The {what} is {report.status}: {'; '.join(r for r in reasons if r)}")
    return report
