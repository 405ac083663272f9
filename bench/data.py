"""Master tables: made once and never changed. Runs register them in catalogs of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog

from bench.files import Files
from bench.place import Place
from tasks.testing import StreamTable
from tasks.testing.reader import Checksum

_RECORD = "master.json"


@dataclass(frozen=True, slots=True)
class GeneratedTable:
    """A table that a recipe made, with the checksum of the rows that were written."""

    table: StreamTable
    truth: Checksum
    #: Facts that later steps need.
    facts: Mapping[str, Any] = field(default_factory=dict)


#: Makes the tables of a master in an empty catalog.
Recipe: TypeAlias = Callable[[Catalog], Iterable[GeneratedTable]]


@dataclass(frozen=True, slots=True)
class MasterTable:
    """One table of a master."""

    metadata_location: str
    columns: tuple[str, ...]
    truth: Checksum
    files: Files
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Master:
    """Tables that every run of a case starts from."""

    folder: Path
    tables: tuple[MasterTable, ...]
    #: All files that belong to it, relative to the folder: what else is found there was added by a run.
    paths: frozenset[str]

    @property
    def files(self) -> Files:
        """Live files of all tables."""
        return sum((table.files for table in self.tables), Files())

    def added(self) -> list[Path]:
        """Files that runs have left in the folder."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return [path for path in found if str(path.relative_to(self.folder)) not in self.paths]

    def restore(self) -> None:
        """Delete what runs have left in the folder."""
        for path in self.added():
            path.unlink()


_MASTERS = TypeAdapter(Master)


def master(place: Place, name: str, recipe: Recipe) -> Master:
    """A master by its name: the one that is there, as it was made, or a new one.

    Args:
        place: Where masters are kept.
        name: Tells all that the recipe depends on: workload, size, version of the generator.
    """
    folder = place.folder / "masters" / name
    record = folder / _RECORD
    if record.exists():
        known = _MASTERS.validate_json(record.read_bytes())
        if known.folder == folder:  # metadata names files by their full paths: a folder that was moved is of no use
            known.restore()
            return known
    shutil.rmtree(folder, ignore_errors=True)
    catalog = place.catalog(folder, "bench")
    tables = tuple(_describe(generated) for generated in recipe(catalog))
    catalog.close()
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    new = Master(folder, tables, frozenset({*paths, _RECORD}))
    record.write_bytes(_MASTERS.dump_json(new))
    return new


def _describe(generated: GeneratedTable) -> MasterTable:
    table = generated.table.table
    columns = tuple(table.schema().as_arrow().names)
    return MasterTable(table.metadata_location, columns, generated.truth, Files.of(table), dict(generated.facts))
