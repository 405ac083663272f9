"""What PyIceberg's properties mean for obstore, and what is left to PyIceberg."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import AzureStore, GCSStore, S3Store

from producer.common.errors import Refused
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


@pytest.mark.parametrize("endpoint", ["htp://h:9000", "http://", "https:///x", "http://a b:1"])
@pytest.mark.parametrize(
    ("location", "name"), [("s3://bucket/a", "s3.endpoint"), ("gs://bucket/a", "gcs.service.host")]
)
def test_an_endpoint_that_is_no_address_is_refused(location: str, name: str, endpoint: str) -> None:
    path = ObjectPath.parse(location)
    assert path is not None
    with pytest.raises(Refused, match=rf"^{name} is '{endpoint}', which is no address"):
        open_store(path, {**KEYS, name: endpoint})


def test_an_endpoint_without_a_scheme_is_one_of_https() -> None:
    store = open_store(ObjectPath("s3", "bucket", "a"), {**KEYS, "s3.endpoint": "store.example:9000"})
    assert isinstance(store, S3Store)
    assert store.config["endpoint"] == "https://store.example:9000"


def test_properties_that_obstore_cannot_use_are_refused() -> None:
    path = ObjectPath("abfss", "container@account.dfs.core.windows.net", "a")
    with pytest.raises(
        Refused, match=r"for abfss://container@account.* cannot be used: .*Invalid Access Key"
    ) as refused:
        open_store(path, {"adls.account-key": "no base64!"})
    assert "no base64" not in str(refused.value)
