"""What must hold of a converted table, judged by what Iceberg's Java implementation finds in it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from producer import Report
from tests.interop.bridge import JavaTable, Row, bag, local

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
EXISTING, ADDED, DELETED = 0, 1, 2
PATH_ID, POS_ID = 2147483546, 2147483545

Convert = Callable[..., Report]
Entry = dict[str, Any]


def live(found: dict[str, Any], *contents: int) -> list[Entry]:
    """The live manifest entries of the given contents, with the fields of their files."""
    entries = [entry for entry in found["entries"] if entry["status"] != DELETED]
    return [{"partition": {}, **e, **e["data_file"]} for e in entries if e["data_file"]["content"] in contents]


def check_conversion(
    table: JavaTable,
    convert: Convert,
    rows: Iterable[Row],
    *,
    positions: int | None = None,
    status: str = "committed",
    remaining: int = 0,
    branch: str = "main",
    readable: bool = True,
    numbered: bool = True,
    **options: Any,
) -> Report:
    """Convert, and hold everything against what Java reads and finds before and after.

    Args:
        table: A table with equality deletes.
        convert: The fixture.
        rows: What the branch holds.
        positions: Rows that the equality deletes remove and no other delete does; None is not looked at.
        status: Of the report.
        remaining: How many equality delete files stay.
        branch: What to convert.
        readable: Whether Java can read the table before it is converted.
        numbered: Whether the rows of a version 3 table have row ids before.
        options: Passed on to the conversion.
    """
    of = {} if branch == "main" else {"branch": branch}
    expected = bag(rows)
    start, files = table.inspect(branch), _files(table)
    lineage = None
    if readable:
        assert_same(table.rows(**of), expected)
        lineage = table.rows(lineage=True, **of) if numbered and _version(table) > 2 else None

    report = convert(table, **of, **options)
    assert str(report.status) == status, report
    found = table.inspect(branch)
    assert_same(table.rows(**of), expected)
    if readable:
        assert_same(table.rows(snapshot=start["snapshot_id"]), expected)
    if lineage is not None:
        assert_same(table.rows(lineage=True, **of), lineage)

    assert found["snapshot_id"] == report.snapshot_id
    assert len(live(found, EQUALITY_DELETES)) == remaining
    assert report.removed_equality_delete_files == len(live(start, EQUALITY_DELETES)) - remaining
    if positions is not None:
        assert _positions(found) - _positions(start) == positions
    added = [e for e in live(found, POSITION_DELETES) if e["snapshot_id"] == report.snapshot_id]
    assert found["operation"] == ("delete" if added else "overwrite")
    vectors = [e for e in added if e["file_format"] == "PUFFIN"]
    assert (len(vectors), len(added) - len(vectors)) == (report.added_dvs, report.added_position_delete_files)
    assert report.added_position_deletes == sum(e["record_count"] for e in added)
    assert (report.added_dvs if _version(table) < 3 else report.added_position_delete_files) == 0
    check_deletes(table, found)
    check_metadata(found)
    _check_leftovers(table, found, files)
    if remaining == 0:
        settled = table.metadata
        assert str(convert(table, **of, **options).status) == "nothing_to_do"
        assert table.metadata == settled
    return report


def assert_same(rows: Counter[str], expected: Counter[str]) -> None:
    """Fail with what is missing and what is too many."""
    assert (rows - expected, expected - rows) == (Counter(), Counter())


def check_deletes(table: JavaTable, found: dict[str, Any]) -> None:
    """Delete files fit the data files they are about, and a scan finds each of them."""
    data = {entry["file_path"]: entry for entry in live(found, DATA)}
    vectors = [entry for entry in live(found, POSITION_DELETES) if entry["file_format"] == "PUFFIN"]
    for delete in live(found, POSITION_DELETES):
        if delete["file_format"] == "PUFFIN":
            about = [delete["referenced_data_file"]]
        elif delete["lower_bounds"] is None:
            about = []  # Java leaves out the bounds of a file that is about several data files
        else:
            lower, upper = (bytes.fromhex(dict(delete[b])[PATH_ID]).decode() for b in ("lower_bounds", "upper_bounds"))
            about = [path for path in data if lower <= path <= upper and _scope(data[path]) == _scope(delete)]
            assert lower in data, "a bound is a path in full"
            assert upper in data, "a bound is a path in full"
            assert delete["sort_order_id"] is None
        for path in about:
            assert _scope(data[path]) == _scope(delete)
            assert data[path]["sequence_number"] <= delete["sequence_number"]
    assert max(Counter(entry["referenced_data_file"] for entry in vectors).values(), default=1) == 1
    _check_puffins(table, vectors)
    scanned = {delete for deletes in found["scan"].values() for delete in deletes}
    of_vectors = {f"{v['file_path']}#{v['content_offset']}" for v in vectors}
    assert of_vectors <= scanned


def _check_puffins(table: JavaTable, vectors: list[Entry]) -> None:
    for path in {vector["file_path"] for vector in vectors}:
        assert len({vector["file_size_in_bytes"] for vector in vectors if vector["file_path"] == path}) == 1
        blobs = {blob["offset"]: blob for blob in table.bridge.call("puffin", path=path)["blobs"]}
        for vector in (v for v in vectors if v["file_path"] == path):
            assert os.path.getsize(local(path)) == vector["file_size_in_bytes"]
            assert blobs[vector["content_offset"]] == {
                "type": "deletion-vector-v1",
                "codec": None,
                "snapshot_id": -1,
                "sequence_number": -1,
                "offset": vector["content_offset"],
                "length": vector["content_size_in_bytes"],
                "fields": [2147483645],
                "properties": {
                    "referenced-data-file": vector["referenced_data_file"],
                    "cardinality": str(vector["record_count"]),
                },
            }


def check_metadata(found: dict[str, Any]) -> None:
    """The summary's totals and the manifest list's counts agree with a recount of the entries."""
    totals = {key: int(value) for key, value in found["summary"].items() if key.startswith("total-")}
    data, deletes = live(found, DATA), live(found, POSITION_DELETES, EQUALITY_DELETES)
    assert totals == {
        "total-data-files": len(data),
        "total-delete-files": len(deletes),
        "total-records": sum(e["record_count"] for e in data),
        "total-position-deletes": _positions(found),
        "total-equality-deletes": sum(e["record_count"] for e in live(found, EQUALITY_DELETES)),
        "total-files-size": sum(e["content_size_in_bytes"] or e["file_size_in_bytes"] for e in data + deletes),
    }
    counted: Counter[tuple[str, int, int]] = Counter()
    rows: Counter[tuple[str, int, int]] = Counter()
    for entry in found["entries"]:
        file = entry["data_file"]
        key = ("DELETES" if file["content"] else "DATA", file["spec_id"], entry["status"])
        counted[key] += 1
        rows[key] += file["record_count"]
    for manifest in found["manifests"]:
        for status, name in ((EXISTING, "existing"), (ADDED, "added"), (DELETED, "deleted")):
            key = (manifest["content"], manifest["spec_id"], status)
            counted[key] -= manifest[f"{name}_files"]
            rows[key] -= manifest[f"{name}_rows"]
        assert manifest["content"] == "DATA" or manifest["first_row_id"] is None
    assert not any(counted.values())
    assert not any(rows.values())
    for entry in data + deletes:
        assert min(m["min_sequence_number"] for m in found["manifests"]) <= entry["sequence_number"]
    for entry in found["entries"]:
        if entry["snapshot_id"] == found["snapshot_id"] and entry["status"] == ADDED:
            assert entry["file_sequence_number"] == found["sequence_number"]


def check_onward(table: JavaTable) -> None:
    """Java goes on with the table: it appends, deletes, compacts and expires, and reads what it should each time."""
    rows = table.lists()
    if rows:
        table.commit(*rows)
        assert_same(table.rows(), bag(rows + rows))
        check_metadata(table.inspect())
    table.compact()
    assert_same(table.rows(), bag(rows + rows))
    found = table.inspect()
    check_metadata(found)
    table.expire()
    assert_same(table.rows(), bag(rows + rows))


def _positions(found: dict[str, Any]) -> int:
    return sum(entry["record_count"] for entry in live(found, POSITION_DELETES))


def _scope(entry: Entry) -> tuple[int, str]:
    return entry["spec_id"], json.dumps(entry["partition"])


def _check_leftovers(table: JavaTable, found: dict[str, Any], before: set[str]) -> None:
    """A conversion leaves nothing but a metadata file, the manifests and the delete files of its snapshot."""
    manifests = {local(manifest["path"]) for manifest in found["manifests"]}
    deletes = {local(entry["file_path"]) for entry in live(found, POSITION_DELETES)}
    new = _files(table) - before - manifests - deletes
    kinds = Counter("metadata" if path.endswith(".metadata.json") else Path(path).name[:5] for path in new)
    assert kinds == {"metadata": 1, "snap-": 1}, new


def _files(table: JavaTable) -> set[str]:
    root = Path(local(table.metadata)).parent.parent
    return {str(path) for path in root.rglob("*") if path.is_file()}


def _version(table: JavaTable) -> int:
    return int(table.document()["format-version"])
