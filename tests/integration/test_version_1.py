"""Tables of format version 1: no sequence numbers, no deletes, and readers of all kinds agree on what is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from producer.iceberg.manifest_entry import NewFile, new_data_file
from producer.iceberg.snapshot_producer import SnapshotProducer
from tasks.testing import RowDelta, StreamTable, local_catalog, read_rows
from tests.support import oracle
from tests.support.commits import BY_P, SCHEMA, recount, rows, totals

ROWS = Counter(dict.fromkeys([(1, "a"), (2, "a"), (3, "a"), (1, "b"), (4, "a")], 1))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = local_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def stream(catalog: SqlCatalog) -> StreamTable:
    """Four files, one of them of PyIceberg's own making, then two of them rewritten as one."""
    stream = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_P, format_version=1)
    stream.append(rows(1, 2))
    stream.table.append(rows(3))
    stream.append(rows(1, p="b"))
    old = [file for file in stream.data_files() if file.partition[0] == "a"]
    stream.commit(RowDelta(stream.write_data(rows(1, 2, 3), sequence_number=0), old), operation=Operation.REPLACE)
    stream.append(rows(4))
    return stream


def test_every_reader_sees_the_same(stream: StreamTable) -> None:
    table = stream.table
    assert table.metadata.format_version == 1
    assert oracle.rows(table) == ROWS
    assert Counter(tuple(row.values()) for row in table.scan().to_arrow().to_pylist()) == ROWS
    assert Counter(tuple(row.values()) for row in read_rows(table).to_pylist()) == ROWS
    assert len(stream.data_files()) == 3


def test_pyiceberg_goes_on(stream: StreamTable) -> None:
    stream.table.append(rows(5))
    assert Counter(tuple(row.values()) for row in read_rows(stream.table).to_pylist()) == ROWS + Counter({(5, "a"): 1})
    current = stream.table.current_snapshot()
    assert current is not None
    assert totals(current).items() <= recount(stream.table).items()


def test_nothing_of_later_versions_is_written(stream: StreamTable) -> None:
    document = json.loads(Path(stream.table.metadata_location.removeprefix("file://")).read_text())
    assert "last-sequence-number" not in document
    assert all("sequence-number" not in snapshot for snapshot in document["snapshots"])
    replace = next(s for s in stream.table.metadata.snapshots if s.summary and s.summary.operation == Operation.REPLACE)
    io = stream.table.io
    with AvroFile(io.new_input(replace.manifest_list)) as found:
        assert found.header.meta["format-version"] == "1"
        assert "sequence-number" not in found.header.meta
        assert "sequence_number" not in found.header.meta["avro.schema"]
        [path] = [m[0] for m in found if m[3] == replace.snapshot_id and m[4] == 1]
    with AvroFile[ManifestEntry](
        io.new_input(path), MANIFEST_ENTRY_SCHEMAS[1], read_types={-1: ManifestEntry, 2: DataFile}
    ) as manifest:
        assert manifest.header.meta["format-version"] == "1"
        [entry] = manifest
        assert entry[0] == ManifestEntryStatus.ADDED
        assert entry[1] == replace.snapshot_id
        block_size = [field.name for field in DATA_FILE_TYPE[1].fields].index("block_size_in_bytes")
        assert entry[2][block_size] == 64 << 20


def test_what_left_is_marked(stream: StreamTable) -> None:
    replace = next(s for s in stream.table.metadata.snapshots if s.summary and s.summary.operation == Operation.REPLACE)
    entries = [e for m in replace.manifests(stream.table.io) for e in m.fetch_manifest_entry(stream.table.io, False)]
    assert Counter(entry.status for entry in entries) == {
        ManifestEntryStatus.ADDED: 2,  # one of them of an older snapshot, whose manifest was taken over
        ManifestEntryStatus.DELETED: 2,
    }


def test_it_can_be_upgraded(stream: StreamTable) -> None:
    stream.upgrade(2)
    stream.delete_where_equal(rows(1), ["id"])
    assert oracle.rows(stream.table) == ROWS - Counter({(1, "a"): 1})
    assert {file.sequence_number for file in stream.data_files()} == {0}


def test_deletes_are_refused(stream: StreamTable) -> None:
    delete = new_data_file(
        content=DataFileContent.EQUALITY_DELETES,
        file_path="d",
        file_format=FileFormat.PARQUET,
        partition=Record("a"),
        record_count=1,
        file_size_in_bytes=1,
        equality_ids=[1],
    )
    update = SnapshotProducer(stream.table, operation=Operation.DELETE)
    update.add([NewFile(delete, 0)])
    with pytest.raises(ValueError, match="version 1 has no deletes: d"):
        update.prepare()
