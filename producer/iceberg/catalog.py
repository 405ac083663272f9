"""Open tables through PyIceberg's catalogs, with errors that say what to do."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Final

import pydantic
from pyiceberg.catalog import Catalog, CatalogType, load_catalog
from pyiceberg.exceptions import (
    BadRequestError,
    ForbiddenError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    UnauthorizedError,
    ValidationError,
)
from pyiceberg.io import PY_IO_IMPL, S3_ACCESS_KEY_ID, S3_SIGNER, FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier, Properties
from pyiceberg.utils.config import Config
from pyiceberg.utils.properties import property_as_bool
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from producer.common.errors import Corrupt, Reason, Refused, first_line
from producer.common.redaction import register_secrets
from producer.iceberg.pyiceberg_metadata import adapt_rest_catalogs, unloadable_column, unloadable_default
from producer.storage.errors import AccessDenied, StorageError
from producer.storage.object_store_io import IMPLEMENTATION, ObjectStoreFileIO

log = logging.getLogger(__name__)

#: What PyArrow and botocore say if nothing answers at the address of an object store.
_SILENT_STORAGE: Final = ("NETWORK_CONNECTION", "Could not connect to the endpoint URL")
#: What clients of Hive and Glue raise if they cannot connect.
_SILENT_CLIENTS: Final = ("TTransportException", "EndpointConnectionError", "ConnectTimeoutError", "NoCredentialsError")
#: What to do if a disk refuses to work, by the system's error number.
_DISK_HINTS: Final = {
    errno.ENOSPC: ": this disk is full: free some space",
    errno.EDQUOT: ": this user's quota is used up: free some space",
    errno.EACCES: ": this user lacks the right: grant it",
    errno.EROFS: ": the disk is mounted for reading only",
}
#: What PyIceberg and Arrow say if they have no access to the files of a table, by its property or its location.
_NO_FILE_IO: Final = ("FileIO", "py-io-impl", "filesystem", "module '")


def open_catalog(name: str) -> Catalog:
    """Return a catalog of PyIceberg's configuration.

    Raises:
        Refused: The configuration has no such catalog, a package that it needs is not installed, or the catalog does
            not answer.
    """
    if str((Config().get_catalog_config(name) or {}).get("type")).lower() == CatalogType.DYNAMODB.value:
        sentence = f"Catalog {name!r} is one of DynamoDB, to which PyIceberg does not commit: use Glue or REST for it."
        raise Refused(Reason.UNKNOWN_CATALOG, sentence)
    adapt_rest_catalogs()
    try:
        catalog = load_catalog(name)
        catalog.properties.setdefault(PY_IO_IMPL, IMPLEMENTATION)
    except (NotInstalledError, ImportError) as error:
        hint = f"a package that it needs is not installed here ({first_line(error)})"
        raise Refused(Reason.UNKNOWN_CATALOG, f"There is no usable catalog {name!r}: {hint}.") from error
    except ValueError as error:
        hint = f"configure it in .pyiceberg.yaml or as PYICEBERG_CATALOG__{name.upper()}__…{_configured_names(name)}"
        sentence = f"There is no usable catalog {name!r}: {hint} ({first_line(error)})."
        raise Refused(Reason.UNKNOWN_CATALOG, sentence) from error
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        raise Refused(Reason.DENIED, f"Catalog {name!r} denies access: {first_line(error)}.") from error
    except Exception as error:  # each kind of catalog raises what its client raises
        raise Refused(Reason.NO_ANSWER, _why_silent(name, error)) from error
    return catalog


def open_table(catalog: str, table: str) -> Table:
    """Load a table.

    Raises:
        Refused: There is no such catalog or table, access is denied, its object store does not answer, its files
            cannot be accessed with what is installed and configured, or the table's version, or the type or default of
            a column, is not supported.
        Corrupt: The table's metadata file is missing or cannot be read.
    """
    opened = open_catalog(catalog)
    try:
        loaded = _load(opened, table)
        register_secrets(loaded.io.properties)  # may hold credentials that the catalog vends
        _refuse_remote_signing(catalog, loaded.io.properties)
        if isinstance(loaded.io, ObjectStoreFileIO):
            loaded.io.renew_with(partial(_load_io, catalog, table))
        return loaded
    except NoSuchIcebergTableError as error:
        raise Refused(Reason.UNKNOWN_TABLE, f"{table!r} in catalog {catalog!r} is no Iceberg table.") from error
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        missing = f"There is no table {table!r} in catalog {catalog!r}."
        view = f"{table!r} in catalog {catalog!r} is a view: name the table that it reads."
        raise Refused(Reason.UNKNOWN_TABLE, view if _is_view(opened, table) else missing) from error
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        sentence = f"Catalog {catalog!r} denies access to {table!r}: {first_line(error)}."
        raise Refused(Reason.DENIED, sentence) from error
    except (ValidationError, pydantic.ValidationError) as error:
        if (column := unloadable_column(error)) is not None:
            name, type_ = column
            sentence = f"Column {name} of {table} is of type {type_}: tables with such columns are not read so far."
            raise Refused(Reason.COLUMN_TYPE, sentence) from error
        kind, message = _first_problem(error)
        if kind == "union_tag_invalid":  # PyIceberg's model is a union by format version
            sentence = f"{table} has a format version that is not supported: versions 2 and 3 are."
            raise Refused(Reason.FORMAT_VERSION, sentence) from error
        raise Corrupt(f"The metadata of {table} cannot be read: {message}.") from error
    except FileNotFoundError as error:
        raise Corrupt(f"The metadata file of {table} is missing: {first_line(error)}") from error
    except StorageError as error:
        reason = Reason.DENIED if isinstance(error, AccessDenied) else Reason.NO_ANSWER
        raise Refused(reason, f"The files of {table} cannot be read: {error}.") from error
    except OSError:
        raise  # requests raises it for an answer that is not JSON, as a ValueError too; the next answer may be sound
    except (ImportError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, ImportError) or any(sign in str(error) for sign in _NO_FILE_IO):
            advice = "set py-io-impl of the catalog, or install the extra of PyIceberg for the table's storage"
            sentence = f"The files of {table} cannot be accessed here: {advice} ({first_line(error)})."
            raise Refused(Reason.CONFIGURATION, sentence) from error
        if (column := unloadable_default(error)) is not None:
            name, type_ = column
            sentence = f"Column {name} of {table} has a default of type {type_}: such defaults are not read so far."
            raise Refused(Reason.COLUMN_TYPE, sentence) from error
        message = f"{type(error).__name__}: {first_line(error)}"
        raise Corrupt(f"The metadata of {table} cannot be read: {message}.") from error
    except Exception as error:  # some clients connect only now
        if type(error).__name__ not in _SILENT_CLIENTS:
            raise
        raise Refused(Reason.NO_ANSWER, f"Catalog {catalog!r} does not answer: {first_line(error)}") from error


@retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(3), wait=wait_fixed(0.2), reraise=True)
def _load(catalog: Catalog, table: str) -> Table:
    """Load a table; try again if its metadata file is missing, because a concurrent commit may have deleted it."""
    return catalog.load_table(table)


def _load_io(catalog: str, table: str) -> FileIO:
    """Return a table's file access with the credentials that the catalog has for it now."""
    io = open_catalog(catalog).load_table(table).io
    register_secrets(io.properties)
    return io


def table_names(catalog: Catalog) -> Iterator[str]:
    """Yield the name of every table of a catalog, also in nested namespaces, but for namespaces that it does not list.

    Raises:
        Refused: The catalog lists no namespaces.
    """
    try:
        pending: list[Identifier] = list(catalog.list_namespaces())
    except (UnauthorizedError, ForbiddenError) as error:
        sentence = f"Catalog {catalog.name!r} denies the right to list its tables: grant it, or name a table"
        raise Refused(Reason.DENIED, f"{sentence} ({first_line(error)}).") from error
    while pending:
        namespace = pending.pop()
        try:
            yield from map(".".join, catalog.list_tables(namespace))
            pending += [child for child in catalog.list_namespaces(namespace) if child != namespace]
        except (NotImplementedError, NoSuchNamespaceError):
            continue  # this catalog has no nested namespaces, or the namespace was dropped
        except ForbiddenError as error:
            log.warning("catalog %s does not list namespace %s: %s", catalog.name, ".".join(namespace), error)


def nearest_table(catalog: str, table: str) -> str | None:
    """Return the table whose name is most like one that does not exist, or None if none is or they cannot be listed."""
    namespace, _, name = table.rpartition(".")
    try:
        opened = open_catalog(catalog)
        namespaces = [".".join(found) for found in opened.list_namespaces()]
        like = [namespace, *get_close_matches(namespace, namespaces, n=2)]
        found = [".".join(found) for space in dict.fromkeys(like) for found in _list_tables(opened, space)]
    except Exception:  # this is only a suggestion, and a user who may load tables need not be allowed to list them
        return None
    close = get_close_matches(table, found, n=1, cutoff=0.7)
    return next(iter(close or [other for other in found if other.rpartition(".")[2] == name]), None)


def storage_hint(error: BaseException) -> str:
    """Return what to do if a disk refuses to work or an object store does not answer, or else an empty text."""
    if isinstance(error, StorageError):
        return ""  # its sentence says what to do
    if isinstance(error, OSError) and error.errno in _DISK_HINTS:
        return _DISK_HINTS[error.errno]
    if not any(sign in str(error) for sign in _SILENT_STORAGE):
        return ""
    config = Config()
    found = ((name, config.get_catalog_config(name) or {}) for name in config.get_known_catalogs())
    known = ", ".join(f"{c['s3.endpoint']} for catalog {name!r}" for name, c in found if "s3.endpoint" in c)
    return f": check that the storage runs, and s3.endpoint ({known or 'not configured here'})"


def _list_tables(catalog: Catalog, namespace: str) -> list[Identifier]:
    try:
        return catalog.list_tables(namespace)
    except NoSuchNamespaceError:
        return []


def _is_view(catalog: Catalog, name: str) -> bool:
    with suppress(Exception):  # a catalog without views, or one that does not say
        return catalog.view_exists(name)
    return False


def _refuse_remote_signing(catalog: str, properties: Properties) -> None:
    """Refuse a catalog that gives no keys because it signs requests, unless PyIceberg is configured for that."""
    signs = property_as_bool(properties, "s3.remote-signing-enabled", False)
    if signs and not properties.get(S3_SIGNER) and not properties.get(S3_ACCESS_KEY_ID):
        sentence = f"Catalog {catalog!r} gives no keys for its storage, and wants to sign each request to S3 itself"
        advice = "have it vend credentials, or configure s3.access-key-id and s3.secret-access-key"
        raise Refused(Reason.CONFIGURATION, f"{sentence}: {advice}.")


def _why_silent(name: str, error: Exception) -> str:
    """Return a sentence about a catalog that cannot be opened."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (
            f"Catalog {name!r} has a certificate that is not trusted here: name its authority's in REQUESTS_CA_BUNDLE."
        )
    if isinstance(error, BadRequestError) or type(error) is RESTError:
        return f"Catalog {name!r} refuses its configuration, such as uri or warehouse: {first_line(error)}."
    return f"Catalog {name!r} does not answer: {first_line(error)}"


def _configured_names(name: str) -> str:
    known = Config().get_known_catalogs()
    return f", or name one that is configured: {', '.join(known)}" if known and name not in known else ""


def _first_problem(error: ValidationError | pydantic.ValidationError) -> tuple[str, str]:
    """Return the kind and the message of the first problem that pydantic found."""
    for candidate in (error, error.__cause__):
        if isinstance(candidate, pydantic.ValidationError):
            first = candidate.errors()[0]
            return first["type"], first["msg"]
    return "", first_line(error)
