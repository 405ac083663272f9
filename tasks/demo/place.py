"""Where the demonstration's table lies: a folder of its own, or a catalog that is configured already."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.catalog import Catalog

from producer.common.errors import Reason, Refused
from producer.iceberg.catalog import open_catalog
from tasks.demo.lineitem import SCHEMA, SPEC
from tasks.testing import StreamTable, local_catalog

TABLE = "demo.lineitem"
#: The name of the catalog in the folder; not ``default``, so that nobody's own is overruled.
PRIVATE = "demo"
#: Marks a folder as made here: what an earlier demonstration left in it may be replaced.
_MARK = ".icefleet-demo"


@dataclass(frozen=True)
class Place:
    """A catalog that has no table of the demonstration yet."""

    name: str
    catalog: Catalog
    #: The folder that holds all of it; None for a configured catalog.
    folder: Path | None = None
    #: What a process must have in its environment to know the catalog by its name.
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def private(cls, folder: Path) -> Place:
        """A catalog in a folder, which is made, or taken from an earlier demonstration.

        Raises:
            Refused: the folder holds something else.
        """
        folder = folder.absolute()
        if folder.exists():
            if not folder.is_dir() or (any(folder.iterdir()) and not (folder / _MARK).exists()):
                sentence = f"{folder} is not of an earlier demo: name another folder with --dir."
                raise Refused(Reason.USAGE, sentence)
            _clear(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()
        catalog = local_catalog(folder, PRIVATE)
        prefix = f"PYICEBERG_CATALOG__{PRIVATE.upper()}__"
        known = {"TYPE": "sql", "URI": catalog.properties["uri"], "WAREHOUSE": catalog.properties["warehouse"]}
        return cls(PRIVATE, catalog, folder, {prefix + key: value for key, value in known.items()})

    @classmethod
    def configured(cls, name: str) -> Place:
        """A catalog by its name.

        Raises:
            Refused: there is no such catalog, or the table is there already.
        """
        place = cls(name, open_catalog(name))
        if place.catalog.table_exists(TABLE):
            sentence = f"{TABLE} exists already in catalog {name!r}: drop it first ({place.removal()})."
            raise Refused(Reason.USAGE, sentence)
        return place

    def make_table(self, format_version: int) -> StreamTable:
        """The table, still empty."""
        return StreamTable.create(self.catalog, TABLE, SCHEMA, spec=SPEC, format_version=format_version)

    def remove(self) -> None:
        """Remove everything again."""
        if self.folder is not None:
            _clear(self.folder)
            with suppress(OSError):  # somebody put something else there
                self.folder.rmdir()
        else:
            self.catalog.purge_table(TABLE)

    def removal(self) -> str:
        """The shell's command that removes everything again."""
        if self.folder is not None:
            return f"rm -r {shlex.quote(str(_short(self.folder)))}"
        code = f'from pyiceberg.catalog import load_catalog; load_catalog("{self.name}").purge_table("{TABLE}")'
        return shlex.join([_program(sys.executable, "python"), "-c", code])

    def exports(self) -> list[str]:
        """The shell's commands that let later ones find the catalog."""
        return [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]

    def command(self, name: str) -> str:
        """The shell's command for one of ``icefleet``'s on the table."""
        return shlex.join([_program(sys.argv[0], "icefleet"), name, TABLE, "--catalog", self.name])


def _program(path: str, name: str) -> str:
    """What to type for a program: its path when it lies beneath where one is, as in a checkout; else its name."""
    near = Path(path).name.startswith(name) and Path(path).absolute().is_relative_to(Path.cwd())
    return str(_short(Path(path))) if near else name


def _clear(folder: Path) -> None:
    """Remove what was made in a folder, and nothing else."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    for name in ("catalog.db", _MARK):
        (folder / name).unlink(missing_ok=True)


def _short(path: Path) -> Path:
    """Relative to where one is, if that is above it."""
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) and path != Path.cwd() else path
