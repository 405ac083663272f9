"""The one place that depends on how PyIceberg 0.12 works inside. Check it with each new version of PyIceberg."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel


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


def _dump_version_3(
    self: TableMetadataV3, exclude_none: bool = True, exclude: Any | None = None, by_alias: bool = True, **kwargs: Any
) -> str:
    complete = self.model_copy(update={"next_row_id": next_row_id(self)})
    return IcebergBaseModel.model_dump_json(
        complete, exclude_none=exclude_none, exclude=exclude, by_alias=by_alias, **kwargs
    )


def metadata_in_traceback(error: BaseException | None) -> Iterator[dict[str, Any]]:
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
