"""What must hold of a compacted table, judged by what Iceberg's Java implementation finds in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from producer import Report
from tests.interop.bridge import JavaTable, bag, local
from tests.interop.checks import (
    ADDED,
    DATA,
    EQUALITY_DELETES,
    POSITION_DELETES,
    assert_same,
    check_deletes,
    check_metadata,
    live,
)

Compact = Callable[..., Report]
ALL: Mapping[str, Any] = {"rewrite-all": "true"}


def check_compaction(
    table: JavaTable,
    compact: Compact,
    *,
    numbered: bool = True,
    deletes: int = 0,
    options: Mapping[str, Any] = ALL,
    **asked: Any,
) -> Report:
    """Compact, and hold everything against what Java reads and finds before and after.

    Args:
        table: A table with something to compact, whose rows have row ids in version 3.
        compact: The fixture.
        numbered: Whether Java knows which commit last changed a row. It takes the file's sequence number for the data
            sequence number (spec, Row Lineage), and these differ where a rewrite did not store what the rows had.
        deletes: How many delete files stay.
        options: Of the compaction.
        asked: What else is passed on to it.
    """
    start, files, before = table.inspect(), _files(table), rows_of(table, numbered)
    report = compact(table, options=options, **asked)
    assert str(report.status) == "committed", report
    found = table.inspect()
    assert_same(rows_of(table, numbered), before)
    assert_same(table.rows(snapshot=start["snapshot_id"]), table.rows())
    check_compacted(table, start["sequence_number"], deletes)
    assert report.snapshot_id == found["snapshot_id"]

    old = {entry["file_path"] for entry in live(start, DATA)}
    data = {entry["file_path"] for entry in live(found, DATA)}
    assert (report.rewritten_data_files, report.added_data_files) == (len(old - data), len(data - old))
    new = _files(table) - files - {local(path) for path in data} - {local(m["path"]) for m in found["manifests"]}
    kinds = Counter("metadata" if path.endswith(".metadata.json") else Path(path).name[:5] for path in new)
    assert kinds == {"metadata": 1, "snap-": 1}, new

    settled = table.metadata
    assert str(compact(table, **asked).status) == "nothing_to_do"  # unless all is to be rewritten whatever it is
    assert table.metadata == settled
    return report


def check_compacted(table: JavaTable, number: int, deletes: int = 0) -> None:
    """The snapshot at the head is one of a compaction that was planned at the sequence number ``number``."""
    found = table.inspect()
    assert found["operation"] == "replace"
    for entry in live(found, DATA):
        if entry["snapshot_id"] == found["snapshot_id"]:
            assert (entry["status"], entry["sequence_number"]) == (ADDED, number)
            assert entry["file_sequence_number"] == found["sequence_number"]
    assert len(live(found, POSITION_DELETES, EQUALITY_DELETES)) == deletes
    check_deletes(table, found)
    check_metadata(found)


def race(
    table: JavaTable,
    compact: Compact,
    meanwhile: Callable[[JavaTable], object],
    *,
    rounds: int = 1,
    options: Mapping[str, Any] = ALL,
    **asked: Any,
) -> None:
    """Compact while something is committed: the rows, and their row ids, are what that made of them.

    Args:
        table: As for :func:`check_compaction`.
        compact: The fixture.
        meanwhile: What happens when everything is staged and nothing is committed.
        rounds: In how many rounds the table is compacted.
        options: Of the compaction.
        asked: What else is passed on to it.
    """
    found = []

    def and_look(raced: JavaTable) -> None:
        meanwhile(raced)
        found.append(rows_of(raced))

    report = compact(table, meanwhile=and_look, options=options, **asked)
    assert str(report.status) == "committed", report
    (rows,) = found
    assert_same(rows_of(table), rows)
    after = table.inspect()
    assert after["operation"] == "replace"
    assert int(after["summary"]["icefleet.round"]) == rounds - 1
    check_deletes(table, after)
    check_metadata(after)


def rows_of(table: JavaTable, numbered: bool = True) -> Counter[str]:
    """The rows, with what version 3 knows of each: its id and, if ``numbered``, the commit that last changed it."""
    if table.document()["format-version"] < 3:
        return table.rows()
    rows = table.lists(lineage=True)
    return bag(rows if numbered else [row[:-1] for row in rows])


def _files(table: JavaTable) -> set[str]:
    root = Path(local(table.metadata)).parent.parent
    return {str(path) for path in root.rglob("*") if path.is_file()}
