"""A catalog and a storage that put all they know into the texts of their errors, as real ones do now and then."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

#: A table that this catalog cannot load.
AWAY = "db.away"
#: What the catalog hands out with a table, and no configuration knows.
VENDED = "planted-vended"
#: What the storage makes of it all, and nobody has told beforehand.
SIGNED = "https://store.example/lake?X-Amz-Expires=60&X-Amz-Signature=planted-signature"


class LeakyCatalog(SqlCatalog):
    """The fleet's own catalog under another name."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__("default", **properties)

    def load_table(self, identifier: str | Identifier) -> Table:
        """A table that hands out a credential; for one the catalog is away."""
        if identifier == AWAY:
            raise ConnectionError(
                f"no connection with {self.properties} to postgresql://me:planted-url@db.example/lake"
            )
        table = super().load_table(identifier)
        table.io = LeakyIO({**table.io.properties, "s3.session-token": VENDED})
        return table


class LeakyIO(PyArrowFileIO):
    """Lets nobody read rows."""

    def __init__(self, properties: Any = None) -> None:
        super().__init__(properties or {})

    def new_input(self, location: str) -> InputFile:
        """Whatever is asked for, unless it is Parquet."""
        if location.endswith(".parquet"):
            raise PermissionError(f"403 from {SIGNED}, asked with {dict(self.properties)}")
        return super().new_input(location)
