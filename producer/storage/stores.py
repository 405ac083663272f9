"""Object stores by path: what PyIceberg's properties of a catalog mean for obstore."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store
from pyiceberg.utils.properties import get_first_property_value, property_as_bool

from producer.common.errors import Reason, Refused, first_line

_S3: Final = frozenset({"s3", "s3a", "s3n"})
_GCS: Final = frozenset({"gs"})
_AZURE: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
#: Properties that obstore has nothing for: files are accessed through PyIceberg's own FileIO then.
_UNSUPPORTED: Final = (
    "s3.signer",
    "s3.role-arn",
    "client.role-arn",
    "s3.profile-name",
    "client.profile-name",
    "s3.retry-strategy-impl",
    "s3.resolve-region",
    "adls.connection-string",
    "adls.credential",
)
_DEFAULT_REGION: Final = "us-east-1"
#: Seconds for a connection, and between two pieces of an answer, where no property says otherwise.
_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """Where an object lies: a scheme, a bucket or container with its account, and a key."""

    scheme: str
    authority: str
    key: str

    @classmethod
    def parse(cls, location: str) -> ObjectPath | None:
        """Return the parts of a path on an object store, or None for any other path.

        Keys are taken as they are, percent signs included. A key with an empty segment is None too: obstore joins
        such segments, and would read another object.
        """
        scheme, separator, rest = location.partition("://")
        authority, _, key = rest.partition("/")
        if not separator or scheme not in _S3 | _GCS | _AZURE or not authority or not key:
            return None
        if any(part in ("", ".", "..") for part in key.split("/")):
            return None
        return cls(scheme, authority, key)


def open_store(path: ObjectPath, properties: Mapping[str, str], *, retries: bool = False) -> ObjectStore | None:
    """Return the store that a path lies in, or None if obstore cannot do what the properties ask for.

    With ``retries`` it repeats requests itself; else :func:`producer.storage.requests.request` does, which counts them.

    Raises:
        Refused: An endpoint is no address, or obstore can make nothing of the properties.
    """
    if any(properties.get(name) for name in _UNSUPPORTED) or any(name.startswith("s3.signer.") for name in properties):
        return None
    open_one = _s3 if path.scheme in _S3 else _gcs if path.scheme in _GCS else _azure
    try:
        return open_one(path, properties, retries)
    except BaseError as error:
        sentence = f"The catalog's properties for {path.scheme}://{path.authority} cannot be used: {first_line(error)}."
        raise Refused(Reason.CONFIGURATION, sentence) from error


def _s3(path: ObjectPath, properties: Mapping[str, str], retries: bool) -> ObjectStore | None:
    endpoint = _address(properties, "s3.endpoint")
    config: dict[str, Any] = {
        "endpoint": endpoint,
        "access_key_id": get_first_property_value(dict(properties), "s3.access-key-id", "client.access-key-id"),
        "secret_access_key": get_first_property_value(
            dict(properties), "s3.secret-access-key", "client.secret-access-key"
        ),
        "session_token": get_first_property_value(dict(properties), "s3.session-token", "client.session-token"),
        "region": get_first_property_value(dict(properties), "s3.region", "client.region")
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION"),
        "server_side_encryption": properties.get("s3.server-side-encryption"),
        "sse_kms_key_id": properties.get("s3.sse-kms-key-id"),
    }
    anonymous = property_as_bool(dict(properties), "s3.anonymous", False)
    if config["access_key_id"] is None and not anonymous and not _environment_has_credentials():
        return None  # the chain of AWS's own clients goes further: profiles, single sign-on
    if config["region"] is None and config["endpoint"] is None:
        return None  # PyIceberg asks the bucket for its region
    config["region"] = config["region"] or _DEFAULT_REGION
    virtual = property_as_bool(dict(properties), "s3.force-virtual-addressing", config["endpoint"] is None)
    if virtual and config["endpoint"] is not None:
        return None  # the bucket belongs into the endpoint's host then
    return S3Store(
        path.authority,
        config=_given(config),
        virtual_hosted_style_request=virtual,
        skip_signature=anonymous,
        client_options=_client(properties, "s3", config["endpoint"]),
        retry_config=_retries(retries),
    )


def _gcs(path: ObjectPath, properties: Mapping[str, str], retries: bool) -> ObjectStore | None:
    token, host = properties.get("gcs.oauth2.token"), _address(properties, "gcs.service.host")
    options: dict[str, Any] = {"client_options": _client(properties, "gcs", host), "retry_config": _retries(retries)}
    if host is not None:
        options["base_url"] = host.rstrip("/")
    if token is None and host is not None and urlsplit(host).scheme == "http":
        token = "anonymous"  # of a server for tests; Google's own are asked for by https:// only
    if token is not None:
        options["credential_provider"] = lambda: {"token": token, "expires_at": None}
    return GCSStore(path.authority, **options)


def _azure(path: ObjectPath, properties: Mapping[str, str], retries: bool) -> ObjectStore | None:
    container, at, host = path.authority.partition("@")  # without a host, the account is a property
    account = properties.get("adls.account-name") or host.partition(".")[0]
    if not container or not account or (at and not host):
        return None
    authority = properties.get("adls.blob-storage-authority")
    scheme = properties.get("adls.blob-storage-scheme", "https")
    endpoint = f"{scheme}://{authority}/{account}" if authority else None
    config: dict[str, Any] = {
        "account_name": account,
        "account_key": properties.get("adls.account-key"),
        "sas_key": properties.get("adls.sas-token") or properties.get(f"adls.sas-token.{host}"),
        "token": properties.get("adls.token"),
        "client_id": properties.get("adls.client-id"),
        "client_secret": properties.get("adls.client-secret"),
        "tenant_id": properties.get("adls.tenant-id"),
        "endpoint": endpoint,
    }
    return AzureStore(
        container,
        config=_given(config),
        client_options=_client(properties, "adls", endpoint),
        retry_config=_retries(retries),
    )


def _address(properties: Mapping[str, str], name: str) -> str | None:
    """Return an endpoint; one without a scheme is taken for https, as PyArrow does."""
    endpoint = properties.get(name)
    if endpoint is None:
        return None
    address = endpoint if "://" in endpoint else f"https://{endpoint}"
    if not re.fullmatch(r"https?://[^\s/?#]+/?[^\s?#]*", address):
        sentence = f"{name} is {endpoint!r}, which is no address: have it begin with http:// or https://, and a host."
        raise Refused(Reason.CONFIGURATION, sentence)
    return address


def _given(config: Mapping[str, Any]) -> Any:
    return {name: value for name, value in config.items() if value is not None}


def _retries(wanted: bool) -> Any:
    return {"max_retries": 8 if wanted else 0, "retry_timeout": timedelta(seconds=120)}


def _client(properties: Mapping[str, str], prefix: str, endpoint: str | None) -> Any:
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=float(properties.get(f"{prefix}.connect-timeout", _CONNECT_SECONDS))),
        "read_timeout": timedelta(seconds=float(properties.get(f"{prefix}.request-timeout", _READ_SECONDS))),
        "timeout": timedelta(minutes=10),
        "allow_http": endpoint is not None and urlsplit(endpoint).scheme == "http",
    }
    if proxy := properties.get("s3.proxy-uri"):
        options["proxy_url"] = proxy
    return options


def _environment_has_credentials() -> bool:
    """Return whether the environment has credentials that obstore takes, or a machine's role is all that is left."""
    names = (
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    )
    if any(os.environ.get(name) for name in names):
        return True
    home = Path.home() / ".aws"
    files = (os.environ.get("AWS_SHARED_CREDENTIALS_FILE"), os.environ.get("AWS_CONFIG_FILE"))
    return not (home / "credentials").exists() and not (home / "config").exists() and not any(files)
