"""Where files of one table may lie: several schemes, every character, two buckets, and the layout for object stores."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from producer.iceberg.catalog import open_catalog
from producer.storage.object_store_io import ObjectStoreFileIO
from tests.support.stores import BUCKETS, Store
from tests.support.streamed import StreamedTable

_NUMBERS = itertools.count()
FOLDERS = ("a b/p%20q", "50%/x+y=z", "ünï/日本", "q?x#y/'(&);:@!$,~")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_character(store: Store, folder: str) -> None:
    io = ObjectStoreFileIO(store.properties)
    path = store.location(f"{next(_NUMBERS)}/{folder}/f.parquet")
    with io.new_output(path).create(overwrite=True) as stream:
        stream.write(b"content")
    assert bytes(io.new_input(path).open().read()) == b"content"
    assert len(io.new_input(path)) == 7
    assert io.list_folder(path.rpartition("/")[0]) == [path]
    io.delete_all([path])
    assert not io.new_input(path).exists()


@pytest.mark.parametrize("folder", FOLDERS[:3])
def test_a_table_in_such_a_folder(store: Store, folder: str) -> None:
    table = StreamedTable.write(
        open_catalog(f"{store.name}-icefleet"), store.location(f"{folder}/t{next(_NUMBERS)}"), version=3
    )
    table.run("convert")
    assert table.scanned() == table.expected


def test_one_of_many_who_claim_wins(store: Store) -> None:
    io = ObjectStoreFileIO(store.properties)
    for number in range(5):
        path = store.location(f"claims/{number}")
        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(lambda who, path=path: io.create_new(path, b"%d" % who), range(16)))
        assert won.count(True) == 1
        assert bytes(io.new_input(path).open(seekable=False).read()) == b"%d" % won.index(True)


def test_three_schemes_of_one_bucket(versitygw: Store) -> None:
    """The stream writes by one scheme after another; a position delete names a data file as the table does."""
    folder = f"t{next(_NUMBERS)}"
    table = StreamedTable.write(open_catalog("versitygw-icefleet"), versitygw.location(folder))
    expected = dict(table.expected)
    for scheme in ("s3a", "s3n"):
        path = f"{scheme}://{BUCKETS[0]}/{folder}/data-of-{scheme}"
        with table.table.table.transaction() as transaction:
            transaction.set_properties({"write.data.path": path})
        expected |= table.upsert({1: f"by {scheme}", 500 + len(scheme): "new"})
    table = StreamedTable(table.table, sorted(expected.items()))
    assert {path.partition(":")[0] for path in table.paths()} == {"s3", "s3a", "s3n"}
    table.convert_and_compact()
    assert table.read_independently() == table.expected


def test_two_spellings_of_local_paths(versitygw: Store, tmp_path: Path) -> None:
    """A table on a local disk beside those of the store, by the same access."""
    table = StreamedTable.write(open_catalog("versitygw-icefleet"), f"file://{tmp_path}/t")
    with table.table.table.transaction() as transaction:
        transaction.set_properties({"write.data.path": f"file:{tmp_path}/t/other"})
    expected = dict(table.expected) | table.upsert({1: "by another spelling"})
    table = StreamedTable(table.table, sorted(expected.items()))
    assert any(path.startswith(f"file:{tmp_path}") for path in table.paths())
    table.convert_and_compact()


@pytest.mark.parametrize("name", ["versitygw", "azurite", "fake-gcs"])
def test_data_in_another_bucket_in_the_layout_for_object_stores(servers: dict[str, Store], name: str) -> None:
    store = servers[name]
    folder = f"t{next(_NUMBERS)}"
    properties = {
        "write.object-storage.enabled": "true",
        "write.data.path": store.location(f"data-of-{folder}", BUCKETS[1]),
    }
    table = StreamedTable.write(open_catalog(f"{name}-icefleet"), store.location(folder), version=3, **properties)
    table.convert_and_compact()
    bucket = store.location("", BUCKETS[1])
    written = {path.removeprefix(bucket) for path in table.paths() if path.startswith(bucket)}
    assert written == store.keys(f"data-of-{folder}", BUCKETS[1])
    assert not [key for key in store.keys(folder) if "/data/" in key]
