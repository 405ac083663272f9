"""The demonstration, step by step."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from producer.errors import Failed, Reason, Refused
from producer.messages import Report, Status
from producer.settings import Settings
from tasks.demo.lineitem import BUCKETS, find_generator, generate
from tasks.demo.maintenance import compact, convert
from tasks.demo.outcome import Outcome, Reports, States
from tasks.demo.page import Page
from tasks.demo.place import TABLE, Place
from tasks.demo.state import Files, State
from tasks.demo.stream import Stream
from tasks.testing import StreamTable
from workers.session import NoJava, find_java

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
    if settings.local:
        try:
            find_java()
        except NoJava as error:
            raise Refused(Reason.CONFIGURATION, str(error)) from error
    elif private:
        sentence = "ICEFLEET_BROKER_URL is set: name a catalog that the fleet's workers know too with --catalog."
        raise Refused(Reason.USAGE, sentence)


def load_table(place: Place, size: Size, page: Page) -> Stream:
    """The table with its first rows, and the stream that is about to change it."""
    page.say(f"{TABLE}, format version {size.format_version}, in {place.folder or f'catalog {place.name}'}")
    stream = Stream(place.make_table(size.format_version))
    with page.step(f"loading TPC-H lineitem at scale {size.scale:g}", _PARTS) as step:
        for part in generate(size.scale, _PARTS):
            stream.load(part)
            step.advance()
        step.result = (
            f"loaded {stream.truth.rows:,} rows of TPC-H lineitem into {TABLE}: "
            f"{Files.of(stream.table).data:,} files in {BUCKETS} buckets of l_orderkey"
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
            f"a stream committed {len(done)} batches: {sum(b.updated for b in done):,} rows updated, "
            f"{sum(b.deleted for b in done):,} deleted, {sum(b.delete_files for b in done):,} equality delete files"
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
    stream = load_table(place, size, page)
    run_stream(stream, size, page)
    return {"truth": stream.truth.figures(), "files": asdict(Files.of(stream.table))}


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
        step.result = _converted(conversion)
    converted = look(table, size, page, "after the conversion")
    with page.step("converting again", live=False) as step:
        convert_again = convert(place)
        step.result = f"converted again: {convert_again.reason or convert_again.status}"
    with page.step("compacting", live=False) as step:
        compaction = _committed("compaction", compact(place))
        step.result = _compacted(compaction)
    compacted = look(table, size, page, "after the compaction")
    with page.step("compacting again", live=False) as step:
        compact_again = compact(place)
        step.result = f"compacted again: {compact_again.reason or compact_again.status}"
    return Outcome(
        States(loaded, streamed, converted, compacted),
        Reports(conversion, convert_again, compaction, compact_again),
        stream.truth,
    )


def _committed(what: str, report: Report) -> Report:
    if report.status is not Status.COMMITTED:
        reasons = [report.reason, *(failure.reason for failure in report.failures)]
        raise Failed(f"The {what} is {report.status}: {'; '.join(r for r in reasons if r)}")
    return report


def _compacted(report: Report) -> str:
    return (
        f"compacted: {report.rewritten_data_files:,} data files became {report.added_data_files:,}, and "
        f"{report.removed_delete_files:,} delete files left; snapshot {report.snapshot_id}"
    )


def _converted(report: Report) -> str:
    files = (
        f"{report.added_dvs:,} deletion vectors"
        if report.added_dvs
        else f"{report.added_position_delete_files:,} position delete files"
    )
    return (
        f"converted: {report.removed_equality_delete_files:,} equality delete files became {files} with "
        f"{report.added_position_deletes:,} positions; snapshot {report.snapshot_id}"
    )
