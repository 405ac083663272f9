"""Columns of types that are not worked on: in metadata that PyIceberg cannot load, and in schemas that it can."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, NestedField

#: Types of the specification that PyIceberg does not load, or not with parameters (spec, Primitive Types).
_UNLOADABLE: Final = re.compile(r"(variant|geometry|geography)\b.*")
_NOT_REWRITTEN: Final = (GeometryType, GeographyType)


def unloadable_column(error: BaseException) -> tuple[str, str] | None:
    """The first column whose type may have kept PyIceberg from loading a table: its name and type.

    PyIceberg's errors tell neither which column it is nor where the metadata lies, and each kind of catalog finds it in
    its own way. So the document is taken from where it was read last.

    Args:
        error: What PyIceberg raised.
    """
    for document in _documents(error):
        schemas = document.get("schemas") or [document.get("schema")]
        current = document.get("current-schema-id")
        known = [schema for schema in schemas if isinstance(schema, dict)]
        for schema in sorted(known, key=lambda schema: schema.get("schema-id") != current):
            for name, type_ in _types(schema, ()):
                if _UNLOADABLE.fullmatch(type_):
                    return name, type_
    return None


def column_that_is_not_rewritten(schema: Schema) -> NestedField | None:
    """The first column, at any depth, whose values are not rewritten so far."""
    fields = (schema.find_field(field_id) for field_id in sorted(schema.field_ids))
    return next((field for field in fields if isinstance(field.field_type, _NOT_REWRITTEN)), None)


def _documents(error: BaseException | None) -> Iterator[dict[str, Any]]:
    """Table metadata that was being read when an error was raised, as JSON objects."""
    while error is not None:
        frame = error.__traceback__
        while frame is not None:
            found = frame.tb_frame.f_locals
            # PyIceberg's parser of metadata files, and its REST catalog.
            for text in (found.get("data"), getattr(found.get("response"), "text", None)):
                with suppress(ValueError, TypeError, RecursionError):
                    document = json.loads(text) if isinstance(text, str) else None
                    if isinstance(document, dict):
                        inner = document.get("metadata", document)
                        yield inner if isinstance(inner, dict) else document
            frame = frame.tb_next
        error = error.__cause__


def _types(type_: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Dotted names of the columns below a type, each with the type that it has."""
    if isinstance(type_, str):
        yield ".".join(path), type_
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields") or ():
        if isinstance(field, dict):
            yield from _types(field.get("type"), (*path, str(field.get("name"))))
    for part in ("element", "key", "value"):
        yield from _types(type_.get(part), (*path, part))
