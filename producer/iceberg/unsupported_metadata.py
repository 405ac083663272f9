"""What a table's metadata has that cannot be worked on: keys that PyIceberg would drop, and types of columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.serializers import Compressor
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import GeographyType, GeometryType, NestedField

from producer.common.errors import Corrupt, Reason, Refused
from producer.iceberg.pyiceberg_internals import metadata_in_traceback

#: How versions 1 and 2 say that there is no snapshot; PyIceberg leaves the key out.
_NO_SNAPSHOT: Final = ("current-snapshot-id", -1)
#: Types of the specification that PyIceberg does not load, or not with parameters (spec, Primitive Types).
_UNLOADABLE_TYPE: Final = re.compile(r"(variant|geometry|geography)\b.*")
_NOT_REWRITTEN: Final = (GeometryType, GeographyType)


def check_no_metadata_is_lost(table: Table) -> None:
    """Refuse a table whose metadata would lose keys by a commit.

    With every catalog but a REST one the client writes the metadata file, from PyIceberg's model of it. Comparing the
    file with the model, at every depth, finds the keys that the model does not have, whatever their names.

    Raises:
        Refused: The model lacks keys; the message names them.
        Corrupt: The metadata file is missing or is not JSON.
    """
    if _server_writes_metadata(table):
        return
    lost = list(unmodelled_keys(_read_metadata_file(table), table.metadata))
    if lost:
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        raise Refused(
            Reason.UNMODELLED,
            f"The table's metadata has {', '.join(lost[:3])}{more}, which PyIceberg does not know: with this catalog a "
            "commit would drop it. Use a REST catalog, which writes metadata itself, or a writer that knows it.",
        )


def unmodelled_keys(document: Any, metadata: TableMetadata) -> Iterator[str]:
    """Yield the keys of a metadata document that PyIceberg's model does not have, such as ``snapshots[0].key-id``."""
    yield from _missing_keys(document, json.loads(IcebergBaseModel.model_dump_json(metadata)), "")


def unloadable_column(error: BaseException) -> tuple[str, str] | None:
    """Return the first column whose type may have kept PyIceberg from loading a table, or None.

    Args:
        error: The error that PyIceberg raised.

    Returns:
        The column's dotted name and its type.
    """
    for document in metadata_in_traceback(error):
        current = document.get("current-schema-id")
        schemas = document.get("schemas") or [document.get("schema")]
        objects = [schema for schema in schemas if isinstance(schema, dict)]
        for schema in sorted(objects, key=lambda schema: schema.get("schema-id") != current):
            for name, type_ in _column_types(schema, ()):
                if _UNLOADABLE_TYPE.fullmatch(type_):
                    return name, type_
    return None


def unrewritable_column(schema: Schema) -> NestedField | None:
    """Return the first column, at any depth, whose values a compaction cannot write yet, or None."""
    fields = (schema.find_field(field_id) for field_id in sorted(schema.field_ids))
    return next((field for field in fields if isinstance(field.field_type, _NOT_REWRITTEN)), None)


def _missing_keys(document: Any, model: Any, path: str) -> Iterator[str]:
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


def _server_writes_metadata(table: Table) -> bool:
    from pyiceberg.catalog.rest import RestCatalog  # loads an HTTP client, which other catalogs do not need

    return isinstance(table.catalog, RestCatalog)


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


def _column_types(type_: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the type of each column below a type in JSON form."""
    if isinstance(type_, str):
        yield ".".join(path), type_
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields") or ():
        if isinstance(field, dict):
            yield from _column_types(field.get("type"), (*path, str(field.get("name"))))
    for part in ("element", "key", "value"):
        yield from _column_types(type_.get(part), (*path, part))
