"""Where tables lie: on the disk, or on an object store that counts and delays requests."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from bench.data import master
from bench.files import live_files
from bench.place import LATENCY_SECONDS, Place, Places, Where, find_server, local_path
from bench.wide import Wide
from producer.storage.metadata_cache import METADATA_CACHE
from producer.storage.object_store_io import ObjectStoreFileIO
from tests.bench.conftest import recipe

needs_server = pytest.mark.skipif(find_server() is None, reason="no versitygw: scripts/bootstrap stores installs it")


def test_the_disk_has_no_traffic(tmp_path: Path) -> None:
    with Places(tmp_path).traffic(Where.DISK) as seen:
        assert seen is None


def test_files_of_a_catalog_are_found_on_the_disk(tmp_path: Path) -> None:
    place = Place(tmp_path, "s3://bench", {"s3.region": "nowhere"})
    catalog = place.catalog(tmp_path / "a/b", "bench")
    assert catalog.properties["warehouse"] == "s3://bench/a/b/warehouse"
    assert catalog.properties["s3.region"] == "nowhere"
    assert local_path(catalog, "s3://bench/a/b/warehouse/t/x.parquet") == tmp_path / "a/b/warehouse/t/x.parquet"


@needs_server
def test_requests_of_contestants_are_slow_and_counted(tmp_path: Path) -> None:
    places = Places(tmp_path)
    try:
        place = places.get(Where.STORE)
        made = master(place, "small", recipe)
        location = made.tables[0].metadata_location
        assert location.startswith("s3://bench/masters/small/")
        METADATA_CACHE.reset()  # this process has just written it
        with places.traffic(Where.STORE) as seen:
            began = time.perf_counter()
            contents = ObjectStoreFileIO(dict(place.contestant_properties)).new_input(location).open().read()
            seconds = time.perf_counter() - began
        assert seen is not None
        assert sum(seen.requests.values()) == 1
        assert seen.bytes_down == len(contents) > 0
        assert seconds >= LATENCY_SECONDS
        assert made.added() == []
    finally:
        places.close()


@needs_server
def test_linked_files_are_objects(tmp_path: Path) -> None:
    places = Places(tmp_path)
    try:
        place = places.get(Where.STORE)
        made = master(place, "wide", Wide(partitions=2, commits=2, files=1).recipe)
        table = StaticTable.from_metadata(made.tables[0].metadata_location, dict(place.properties))
        files = list(live_files(table))
        assert len(files) == 6
        assert [len(table.io.new_input(file.path)) for file in files] == [file.size for file in files]
    finally:
        places.close()
