"""What PyIceberg's properties mean for obstore, and what is left to PyIceberg."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import AzureStore, GCSStore, S3Store

from producer.storage.stores import ObjectPath, open_store

KEYS = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.region": "eu-west-1"}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither variables nor files of AWS's own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("location", "key"),
    [
        ("s3://bucket/a/b.parquet", "a/b.parquet"),
        ("s3a://bucket/a b/c%20d+e=ü", "a b/c%20d+e=ü"),
        ("gs://bucket/x", "x"),
        ("abfss://container@account.dfs.core.windows.net/a/b", "a/b"),
    ],
)
def test_keys_are_taken_as_they_are(location: str, key: str) -> None:
    found = ObjectPath.parse(location)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    "location",
    ["file:///a/b", "/a/b", "hdfs://host/a", "s3://bucket", "s3:///a", "s3://bucket/a//b", "s3://bucket/a/../b"],
)
def test_other_paths_are_left_to_pyiceberg(location: str) -> None:
    assert ObjectPath.parse(location) is None


def test_stores_of_each_scheme() -> None:
    s3, gs = ObjectPath("s3", "bucket", "a"), ObjectPath("gs", "bucket", "a")
    azure = ObjectPath("abfss", "container@account.dfs.core.windows.net", "a")
    assert isinstance(open_store(s3, KEYS), S3Store)
    assert isinstance(open_store(gs, {"gcs.oauth2.token": "t"}), GCSStore)
    assert isinstance(open_store(azure, {"adls.account-key": "a2V5"}), AzureStore)


@pytest.mark.parametrize(
    "properties",
    [
        {**KEYS, "s3.signer": "S3V4RestSigner"},
        {**KEYS, "s3.signer.uri": "https://catalog.example"},
        {**KEYS, "s3.role-arn": "arn:aws:iam::1:role/r"},
        {**KEYS, "client.profile-name": "p"},
        {"s3.access-key-id": "a", "s3.secret-access-key": "b"},  # PyIceberg asks the bucket for its region
    ],
)
def test_what_obstore_cannot_do_is_left_to_pyiceberg(properties: dict[str, str]) -> None:
    assert open_store(ObjectPath("s3", "bucket", "a"), properties) is None


def test_profiles_of_awss_own_clients_are_left_to_pyiceberg(tmp_path: Path) -> None:
    path = ObjectPath("s3", "bucket", "a")
    assert open_store(path, {"s3.region": "eu-west-1"}) is not None  # a machine's role
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[default]\n")
    assert open_store(path, {"s3.region": "eu-west-1"}) is None
