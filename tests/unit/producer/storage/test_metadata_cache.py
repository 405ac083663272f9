"""Metadata files in memory: those that never change, for a while, and not too many."""

from __future__ import annotations

import pytest

from producer.storage.metadata_cache import MetadataCache, is_metadata_file

UUID = "0123abcd-0123-4567-89ab-0123456789ab"


@pytest.mark.parametrize(
    "name", [f"{UUID}-m0.avro", f"snap-123-0-{UUID}.avro", f"00007-{UUID}.metadata.json", f"1-{UUID}.gz.metadata.json"]
)
def test_files_with_names_of_their_own_are_kept(name: str) -> None:
    cache = MetadataCache()
    cache.add(f"s3://b/t/metadata/{name}", b"contents")
    assert cache.get(f"s3://b/t/metadata/{name}") == b"contents"
    cache.discard(f"s3://b/t/metadata/{name}")
    assert cache.get(f"s3://b/t/metadata/{name}") is None


@pytest.mark.parametrize("path", ["v3.metadata.json", f"{UUID}.parquet", f"{UUID}/m0.avro", f"{UUID}.json"])
def test_names_that_may_come_again_are_not_kept(path: str) -> None:
    cache = MetadataCache()
    cache.add(f"s3://b/t/{path}", b"contents")
    assert not is_metadata_file(f"s3://b/t/{path}")
    assert cache.get(f"s3://b/t/{path}") is None


def test_memory_is_bounded_and_what_is_used_stays() -> None:
    cache = MetadataCache()
    paths = [f"s3://b/t/metadata/{UUID}-m{number}.avro" for number in range(40)]
    for path in paths:
        cache.add(path, bytes(1 << 20))
        assert cache.get(paths[0]) is not None
    kept = [path for path in paths if cache.get(path) is not None]
    assert kept == [paths[0], *paths[-31:]]
    cache.add(paths[5], bytes(9 << 20))
    assert cache.get(paths[5]) is None


def test_a_file_is_read_again_after_some_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, path = MetadataCache(), f"s3://b/t/metadata/{UUID}-m0.avro"
    cache.add(path, b"damaged")
    monkeypatch.setattr("producer.storage.metadata_cache._MAX_AGE", -1.0)
    assert cache.get(path) is None
