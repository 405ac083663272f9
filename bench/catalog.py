"""The catalog of a contestant, in a file: each run registers the tables of a master there under new names."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from bench.data import Master
from bench.files import Files
from bench.place import Place

#: Of the catalog and of its one namespace. Spark's catalog of this name sees the same tables in the same file.
NAME = "bench"


class RunCatalog:
    """A catalog in a file of its own, for one process: Spark gets its catalog when its session starts.

    Names of tables are not used twice, so that no process finds a table in a cache.

    Args:
        place: Where its tables lie. The warehouse, which holds none, is a folder on the disk.
    """

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.place = place
        uri, warehouse = f"sqlite:///{self.folder}/catalog.db", f"file://{self.folder}/warehouse"
        self.pyiceberg = SqlCatalog(NAME, uri=uri, warehouse=warehouse, **place.properties)
        self.pyiceberg.create_namespace_if_not_exists(NAME)
        self._numbers = itertools.count(1)

    @property
    def uri(self) -> str:
        """The address of the catalog for PyIceberg."""
        return str(self.pyiceberg.properties["uri"])

    @property
    def warehouse(self) -> str:
        """The warehouse of the catalog; no table is in it."""
        return str(self.pyiceberg.properties["warehouse"])

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which a process knows the catalog."""
        known = {"type": "sql", "uri": self.uri, "warehouse": self.warehouse, **self.place.contestant_properties}
        names = {name: name.upper().replace(".", "__").replace("-", "_") for name in known}
        return {f"PYICEBERG_CATALOG__{NAME.upper()}__{names[name]}": value for name, value in known.items()}

    def register(self, metadata_location: str) -> str:
        """Register a table and return its name."""
        name = f"{NAME}.t_{next(self._numbers)}"
        self.pyiceberg.register_table(name, metadata_location)
        return name

    @contextmanager
    def register_master(self, master: Master) -> Iterator[RunTables]:
        """Register a master's tables for one run; at its end, delete what it added to them and drop their names."""
        master.restore()
        names = tuple(self.register(table.metadata_location) for table in master.tables)
        output = self.folder / "output"
        output.mkdir()
        try:
            yield RunTables(self, master, names, output)
        finally:
            shutil.rmtree(output)
            for name in names:
                self.pyiceberg.drop_table(name)
            master.restore()

    def close(self) -> None:
        """Remove the catalog."""
        self.pyiceberg.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class RunTables:
    """The tables of one run."""

    catalog: RunCatalog
    master: Master
    #: Names in the catalog, in the master's order.
    names: tuple[str, ...]
    #: An empty folder for what is written beside tables.
    output: Path

    def tables(self) -> list[Table]:
        """The tables as the catalog has them now."""
        return [self.catalog.pyiceberg.load_table(name) for name in self.names]

    def files(self) -> Files:
        """Live files of all tables, as they are now."""
        return sum((Files.of(table) for table in self.tables()), Files())

    def changed(self) -> bool:
        """Whether something was committed to each table."""
        return all(
            table.metadata_location != before.metadata_location
            for table, before in zip(self.tables(), self.master.tables, strict=True)
        )

    def added_bytes(self) -> int:
        """Bytes of all files that the run has added, metadata too."""
        outputs = (path for path in self.output.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in (*self.master.added(), *outputs))
