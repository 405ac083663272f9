"""What a table's metadata file holds that PyIceberg does not know, and would drop with the next commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyiceberg.serializers import Compressor
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import IcebergBaseModel

from producer.common.errors import Corrupt, Reason, Refused

#: How version 1 and 2 say that there is none: PyIceberg leaves the key out then.
_NO_SNAPSHOT = ("current-snapshot-id", -1)


def refuse_what_would_be_lost(table: Table) -> None:
    """Refuse a table whose metadata would lose something by a commit.

    Every catalog but a REST one has its client write the metadata file, from PyIceberg's model of it. Keys that the
    model does not have are found by comparing the file with the model, at every depth, whatever their names.

    Raises:
        Refused: names the keys.
        Corrupt: the metadata file is missing or is no JSON.
    """
    if _server_writes(table):
        return
    lost = list(lost_keys(_document(table), table.metadata))
    if lost:
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        raise Refused(
            Reason.UNMODELLED,
            f"The table's metadata has {', '.join(lost[:3])}{more}, which PyIceberg does not know: with this catalog a "
            "commit would drop it. Use a REST catalog, which writes metadata itself, or a writer that knows it.",
        )


def lost_keys(document: Any, metadata: TableMetadata) -> Iterator[str]:
    """Keys of a metadata document that are not in the model's own, such as ``snapshots[0].key-id``."""
    modelled = json.loads(IcebergBaseModel.model_dump_json(metadata))
    yield from _lost(document, modelled, "")


def _lost(found: Any, known: Any, path: str) -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            place = f"{path}.{key}" if path else key
            if value is None or (key, value) == _NO_SNAPSHOT:
                continue
            if not isinstance(known, dict) or key not in known:
                yield place
            else:
                yield from _lost(value, known[key], place)
    elif isinstance(found, list):
        for number, value in enumerate(found):
            place = f"{path}[{number}]"
            if not isinstance(known, list) or number >= len(known):
                yield place
            else:
                yield from _lost(value, known[number], place)


def _server_writes(table: Table) -> bool:
    from pyiceberg.catalog.rest import RestCatalog  # brings HTTP with it, which other catalogs need not

    return isinstance(table.catalog, RestCatalog)


def _document(table: Table) -> Any:
    location = table.metadata_location
    try:
        with (
            table.io.new_input(location).open() as stream,
            Compressor.get_compressor(location).stream_decompressor(stream) as plain,
        ):
            return json.loads(plain.read())
    except FileNotFoundError as error:
        raise Corrupt(f"The metadata file {location} is missing.") from error
    except ValueError as error:
        raise Corrupt(f"The metadata file {location} cannot be read: {error}") from error
