"""Where a contestant finds its tables: a catalog in a file, in which each run registers a master under a fresh name."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table import Table

from bench.data import Master
from bench.files import Files
from tasks.testing import local_catalog

#: Of the catalog and of its one namespace. Spark's catalog of this name sees the same tables in the same file.
NAME = "bench"


class Place:
    """One catalog file, for one process: Spark is told of its catalog when its session starts.

    Names of tables are not used twice, so that nothing that is cached by name is found again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.catalog = local_catalog(self.folder, NAME)
        self.catalog.create_namespace_if_not_exists(NAME)
        self._numbers = itertools.count(1)

    @property
    def uri(self) -> str:
        """The catalog, as PyIceberg has it."""
        return str(self.catalog.properties["uri"])

    @property
    def warehouse(self) -> str:
        """The catalog's warehouse, in which no table lies."""
        return str(self.catalog.properties["warehouse"])

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to know the catalog by its name."""
        prefix = f"PYICEBERG_CATALOG__{NAME.upper()}__"
        return {f"{prefix}TYPE": "sql", f"{prefix}URI": self.uri, f"{prefix}WAREHOUSE": self.warehouse}

    def register(self, metadata_location: str) -> str:
        """Give a table a name; the name."""
        name = f"{NAME}.t_{next(self._numbers)}"
        self.catalog.register_table(name, metadata_location)
        return name

    @contextmanager
    def put(self, master: Master) -> Iterator[Placed]:
        """A master's tables for one run: what it adds to them is deleted in the end, and their names are forgotten."""
        master.restore()
        names = tuple(self.register(table.metadata_location) for table in master.tables)
        output = self.folder / "output"
        output.mkdir()
        try:
            yield Placed(self, master, names, output)
        finally:
            shutil.rmtree(output)
            for name in names:
                self.catalog.drop_table(name)
            master.restore()

    def close(self) -> None:
        """Remove the catalog."""
        self.catalog.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Placed:
    """The tables of one run."""

    place: Place
    master: Master
    #: Names in the catalog, in the master's order.
    names: tuple[str, ...]
    #: An empty folder for what is written beside tables.
    output: Path

    def tables(self) -> list[Table]:
        """The tables as the catalog has them now."""
        return [self.place.catalog.load_table(name) for name in self.names]

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
