"""A catalog in a folder, and what PyIceberg's catalogs do not do: format version 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil

from producer.iceberg.pyiceberg_internals import enable_version_3

# Tables are created in version 3 before any snapshot is built.
enable_version_3()


def local_catalog(folder: str | Path, name: str = "default") -> SqlCatalog:
    """Catalog and warehouse in a folder, which is made when it is missing."""
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(name, uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")


def upgrade(catalog: Catalog, identifier: str, format_version: int = 3) -> Table:
    """Raise a table's format version as other engines do: its rows get row ids with the next snapshot only.

    For catalogs that keep nothing of a table but where its metadata is: the table is registered anew, and there is a
    moment without it.
    """
    table = catalog.load_table(identifier)
    document: dict[str, Any] = json.loads(table.metadata.model_dump_json())
    document["format-version"] = format_version
    document["metadata-log"] = [
        *document["metadata-log"],
        {"metadata-file": table.metadata_location, "timestamp-ms": table.metadata.last_updated_ms},
    ]
    if format_version >= 3:
        document.setdefault("next-row-id", 0)
    version = int(table.metadata_location.rsplit("/", 1)[-1].split("-", 1)[0])
    location = table.location_provider().new_table_metadata_file_location(version + 1)
    ToOutputFile.table_metadata(TableMetadataUtil.parse_obj(document), table.io.new_output(location))
    catalog.drop_table(identifier)
    return catalog.register_table(identifier, location)
