"""Where PyIceberg 0.12 falls short: version 3 is not written, unknown keys of metadata are dropped, some types are not
loaded, and requests to REST catalogs never end.

The one module that depends on how PyIceberg works inside. Check it with each new version of PyIceberg.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType
from pyiceberg.io import S3_SIGNER, FileIO
from pyiceberg.schema import Schema
from pyiceberg.serializers import Compressor
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import EMPTY_DICT, IcebergBaseModel, Properties
from pyiceberg.types import (
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
)

from producer.common.errors import Corrupt, Reason, Refused
from producer.storage.access import STORAGE_CREDENTIALS

#: How versions 1 and 2 say that there is no snapshot; PyIceberg leaves the key out.
_NO_SNAPSHOT: Final = ("current-snapshot-id", -1)
#: Types of the specification that PyIceberg does not load, or not with parameters (spec, Primitive Types).
_UNLOADABLE_TYPE: Final = re.compile(r"(variant|geometry|geography)\b.*")
#: Types whose defaults PyIceberg does not load.
_NO_DEFAULTS: Final = ("timestamp_ns", "timestamptz_ns", "struct", "list", "map")
#: Milliseconds for a connection to a REST catalog, and between two pieces of its answer.
_REST_LIMITS: Final = {"rest.client.connection-timeout-ms": 10_000, "rest.client.socket-timeout-ms": 60_000}
_NOT_REWRITTEN: Final = (GeometryType, GeographyType)


def check_no_metadata_is_lost(table: Table) -> None:
    """Refuse a table whose metadata would lose keys by a commit.

    With every catalog but a REST one the client writes the metadata file, from PyIceberg's model of it. Comparing the
    file with the model, at every depth, finds the keys that the model does not have, whatever their names.

    Raises:
        Refused: The model lacks keys; the message names them.
        Corrupt: The metadata file is missing or is not JSON.
    """
    from pyiceberg.catalog.rest import RestCatalog  # loads an HTTP client, which only planning needs

    if isinstance(table.catalog, RestCatalog):
        return
    model = json.loads(IcebergBaseModel.model_dump_json(table.metadata))
    if lost := list(_missing_keys(_read_metadata_file(table), model, "")):
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        raise Refused(
            Reason.UNMODELLED,
            f"The table's metadata has {', '.join(lost[:3])}{more}, which PyIceberg does not know: with this catalog a "
            "commit would drop it. Use a REST catalog, which writes metadata itself, or a writer that knows it.",
        )


def unloadable_column(error: BaseException) -> tuple[str, str] | None:
    """Return the dotted name and the type of the first column that PyIceberg may be unable to load, or None."""
    for name, type_, _ in _columns_in_traceback(error):
        if isinstance(type_, str) and _UNLOADABLE_TYPE.fullmatch(type_):
            return name, type_
    return None


def unloadable_default(error: BaseException) -> tuple[str, str] | None:
    """Return the dotted name and the type of the first column with a default that PyIceberg cannot load, or None."""
    for name, type_, field in _columns_in_traceback(error):
        kind = type_.get("type") if isinstance(type_, dict) else type_
        defaults = field.get("initial-default"), field.get("write-default")
        if kind in _NO_DEFAULTS and defaults != (None, None):
            return name, str(kind)
    return None


def unrewritable_column(schema: Schema) -> NestedField | None:
    """Return the first column, at any depth, whose values a compaction cannot write yet, or None."""
    fields = (schema.find_field(field_id) for field_id in sorted(schema.field_ids))
    return next((field for field in fields if not _is_rewritable(field.field_type)), None)


def _is_rewritable(type_: IcebergType) -> bool:
    """Return whether files hold values of the type itself; a Parquet group holds something besides unknown fields."""
    if isinstance(type_, StructType):
        return not all(isinstance(field.field_type, UnknownType) for field in type_.fields)
    if isinstance(type_, ListType):
        return not isinstance(type_.element_type, UnknownType)
    if isinstance(type_, MapType):
        return not isinstance(type_.value_type, UnknownType)
    return not isinstance(type_, _NOT_REWRITTEN)


def _missing_keys(document: Any, model: Any, path: str) -> Iterator[str]:
    """Yield the keys of a metadata document that PyIceberg's model does not have, such as ``snapshots[0].key-id``."""
    if isinstance(document, dict):
        for key, value in document.items():
            key_path = f"{path}.{key}" if path else key
            if value is None or (key, value) == _NO_SNAPSHOT:
                continue
            if not isinstance(model, dict) or key not in model:
                yield key_path
            else:
                yield from _missing_keys(value, model[key], key_path)
    elif isinstance(document, list):
        for number, value in enumerate(document):
            item_path = f"{path}[{number}]"
            if not isinstance(model, list) or number >= len(model):
                yield item_path
            else:
                yield from _missing_keys(value, model[number], item_path)


def _read_metadata_file(table: Table) -> Any:
    location = table.metadata_location
    try:
        with (
            table.io.new_input(location).open() as stream,
            Compressor.get_compressor(location).stream_decompressor(stream) as decompressed,
        ):
            return json.loads(decompressed.read())
    except FileNotFoundError as error:
        raise Corrupt(f"The metadata file {location} is missing.") from error
    except ValueError as error:
        raise Corrupt(f"The metadata file {location} cannot be read: {error}") from error


def _columns(type_: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield the dotted name, the type and the field of each column below a type, all in JSON form."""
    if not isinstance(type_, dict):
        return
    below = [(str(field.get("name")), field) for field in type_.get("fields") or () if isinstance(field, dict)]
    below += [(part, {"type": type_[part]}) for part in ("element", "key", "value") if part in type_]
    for name, field in below:
        yield ".".join((*path, name)), field.get("type"), field
        yield from _columns(field.get("type"), (*path, name))


def next_row_id(metadata: TableMetadata) -> int:
    """Return the first free row id; computed from the snapshots where the metadata lacks it, as PyIceberg's may."""
    stored: int | None = getattr(metadata, "next_row_id", None)
    if stored is not None:
        return stored
    return max(((s.first_row_id or 0) + (s.added_rows or 0) for s in metadata.snapshots), default=0)


def enable_version_3() -> None:
    """Let every catalog that writes metadata files itself (SQL, Glue, Hive…) write format version 3.

    PyIceberg can serialize the model but refuses to; all that the result lacks of the spec is the required
    ``next-row-id``, which is filled in. A second call has no effect, and versions 1 and 2 are not touched.
    """
    TableMetadataV3.model_dump_json = _dump_version_3  # type: ignore[method-assign]


def _dump_version_3(self: TableMetadataV3, *args: Any, **options: Any) -> str:
    complete = self.model_copy(update={"next_row_id": next_row_id(self)})
    return IcebergBaseModel.model_dump_json(complete, *args, **options)


def adapt_rest_catalogs() -> None:
    """Let requests to REST catalogs end, and have all that they vend: PyIceberg's wait for ever for an answer.

    The limits are in the catalog's properties, by the names that Iceberg's Java client has for them.
    """
    AVAILABLE_CATALOGS[CatalogType.REST] = _load_rest_catalog


def _load_rest_catalog(name: str, properties: Properties) -> Catalog:
    from pyiceberg.catalog.rest import RestCatalog  # loads an HTTP client
    from pyiceberg.catalog.rest.auth import AUTH_MANAGER

    class LimitedRestCatalog(RestCatalog):
        def _create_session(self) -> Any:
            session = super()._create_session()
            connect, read = (float(self.properties.get(key, ms)) / 1000 for key, ms in _REST_LIMITS.items())
            session.request = partial(session.request, timeout=(connect, read))  # type: ignore[method-assign]
            return session

        def _response_to_table(self, identifier_tuple: Any, table_response: Any) -> Table:
            # PyIceberg takes the credentials for the metadata file only; data may lie elsewhere.
            if table_response.storage_credentials:
                vended = {found.prefix: found.config for found in table_response.storage_credentials}
                config = {**table_response.config, STORAGE_CREDENTIALS: vended}
                table_response = table_response.model_copy(update={"config": config})
            return super()._response_to_table(identifier_tuple, table_response)

        def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
            io = super()._load_file_io(properties, location)
            if S3_SIGNER not in io.properties:  # nothing else needs the catalog's own credentials, or can pickle them
                io.properties.pop(AUTH_MANAGER, None)
            return io

    return LimitedRestCatalog(name, **properties)


def _columns_in_traceback(error: BaseException) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield the columns of the metadata that PyIceberg was reading at an error, those of the current schema first."""
    for document in _metadata_in_traceback(error):
        current = document.get("current-schema-id")
        schemas = document.get("schemas") or [document.get("schema")]
        objects = [schema for schema in schemas if isinstance(schema, dict)] if isinstance(schemas, list) else []
        for schema in sorted(objects, key=lambda schema: schema.get("schema-id") != current):
            yield from _columns(schema, ())


def _metadata_in_traceback(error: BaseException | None) -> Iterator[dict[str, Any]]:
    """Yield the table metadata that PyIceberg was reading when it raised an error, as JSON objects.

    PyIceberg's errors name neither the column nor the metadata file, and each kind of catalog finds the file in its own
    way. So the JSON is taken from the local variables of PyIceberg's parser of metadata files and of its REST catalog.
    """
    while error is not None:
        frame = error.__traceback__
        while frame is not None:
            variables = frame.tb_frame.f_locals
            for text in (variables.get("data"), getattr(variables.get("response"), "text", None)):
                with suppress(ValueError, TypeError, RecursionError):
                    document = json.loads(text) if isinstance(text, str) else None
                    if isinstance(document, dict):
                        inner = document.get("metadata", document)
                        yield inner if isinstance(inner, dict) else document
            frame = frame.tb_next
        error = error.__cause__
