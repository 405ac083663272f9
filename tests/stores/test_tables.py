"""Tables on each store and through each access: planned, converted, compacted, and nothing but their files left."""

from __future__ import annotations

import itertools
from importlib.util import find_spec

import pytest

from producer.iceberg.catalog import open_catalog
from tests.support.stores import Store
from tests.support.streamed import StreamedTable

_NUMBERS = itertools.count()
#: PyIceberg's client of each store for FsspecFileIO.
_CLIENTS = {"versitygw": "s3fs", "moto": "s3fs", "azurite": "adlfs", "fake-gcs": "gcsfs"}
#: Stores that iceberg-rust's reader reaches by the properties of PyIceberg.
_READ_INDEPENDENTLY = ("versitygw", "moto")


@pytest.mark.parametrize(("access", "version"), [("icefleet", 2), ("icefleet", 3), ("pyarrow", 2), ("fsspec", 3)])
def test_a_conversion_and_a_compaction(store: Store, access: str, version: int) -> None:
    if access == "fsspec" and find_spec(_CLIENTS[store.name]) is None:
        pytest.skip(f"{_CLIENTS[store.name]} is not installed: run `scripts/bootstrap stores`")
    folder = f"t{next(_NUMBERS)}"
    location = store.location(folder)
    if (store.name, access) == ("azurite", "pyarrow"):
        location = f"abfss://lake/{folder}"  # PyIceberg hands PyArrow the account for a part of the container's name
    table = StreamedTable.write(open_catalog(f"{store.name}-{access}"), location, version)
    table.convert_and_compact()
    if store.name in _READ_INDEPENDENTLY:
        assert table.read_independently() == table.expected
    left = store.keys(folder) - {path.removeprefix(f"{location.removesuffix(folder)}") for path in table.paths()}
    left -= {path.removeprefix(f"{location.removesuffix(folder)}") for path in table.metadata_files()}
    if access == "icefleet":
        assert left == set()
    else:  # markers of folders
        assert not {key for key in left if "." in key.rpartition("/")[2]}
