"""The catalog of the demonstration's table: a folder of its own, or a configured catalog; and jobs on the table."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.catalog import Catalog

from producer import Fleet
from producer.cli.render import progress_bar
from producer.common.errors import Failed, IcefleetError, Reason, Refused
from producer.iceberg.catalog import open_catalog
from producer.model.job import Operation, Report, Request
from tasks.demo.lineitem import SCHEMA, SPEC
from tasks.testing import StreamTable, local_catalog

TABLE = "demo.lineitem"
#: The name of the catalog in the folder; not ``default``, which would hide a configured catalog.
PRIVATE = "demo"
#: Marks a folder of an earlier demonstration: what that left in the folder may be replaced.
_MARK = ".icefleet-demo"


@dataclass(frozen=True)
class DemoCatalog:
    """A catalog that does not have the demonstration's table yet."""

    name: str
    catalog: Catalog
    #: The folder that holds all of it; None for a configured catalog.
    folder: Path | None = None
    #: The environment variables by which a process finds the catalog by its name.
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def private(cls, folder: Path) -> DemoCatalog:
        """Return a catalog in a folder, which is created or was left by an earlier demonstration.

        Raises:
            Refused: The folder holds something else.
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
        properties = {"TYPE": "sql", "URI": catalog.properties["uri"], "WAREHOUSE": catalog.properties["warehouse"]}
        return cls(PRIVATE, catalog, folder, {prefix + key: value for key, value in properties.items()})

    @classmethod
    def configured(cls, name: str) -> DemoCatalog:
        """Return a configured catalog.

        Raises:
            Refused: There is no such catalog, or it has the table already.
        """
        found = cls(name, open_catalog(name))
        if found.catalog.table_exists(TABLE):
            sentence = f"{TABLE} exists already in catalog {name!r}: drop it first ({found.removal()})."
            raise Refused(Reason.USAGE, sentence)
        return found

    def make_table(self, format_version: int) -> StreamTable:
        """Create the empty table."""
        return StreamTable.create(self.catalog, TABLE, SCHEMA, spec=SPEC, format_version=format_version)

    def remove(self) -> None:
        """Remove all that the demonstration made."""
        if self.folder is not None:
            _clear(self.folder)
            with suppress(OSError):  # it holds other files
                self.folder.rmdir()
        else:
            self.catalog.purge_table(TABLE)

    def run(self, operation: Operation) -> Report:
        """Run a job on the table, on the fleet if there is one, with a live progress bar on standard error.

        The job runs in a process of its own: PyIceberg reads once, when it is imported, which catalogs the environment
        configures.

        Raises:
            Failed: There is no report.
        """
        command = [sys.executable, "-P", "-W", "ignore", "-m", __name__, self.name, operation]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **self.environment}, check=False
        )
        if done.returncode:
            raise Failed(f"It died with exit status {done.returncode} while it was to {operation}.")
        answer = json.loads(done.stdout.splitlines()[-1])
        if "error" in answer:
            raise Failed(answer["error"])
        return Report.model_validate(answer)

    def removal(self) -> str:
        """Return the shell command that removes all that the demonstration made."""
        if self.folder is not None:
            return f"rm -r {shlex.quote(str(_short(self.folder)))}"
        code = f'from pyiceberg.catalog import load_catalog; load_catalog("{self.name}").purge_table("{TABLE}")'
        return shlex.join([_program(sys.executable, "python"), "-c", code])

    def exports(self) -> list[str]:
        """Return the shell commands that let later ones find the catalog."""
        return [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]

    def command(self, name: str) -> str:
        """Return the shell command that runs a command of ``icefleet`` on the table."""
        return shlex.join([_program(sys.argv[0], "icefleet"), name, TABLE, "--catalog", self.name])


def _program(path: str, name: str) -> str:
    """Return what to type for a program: its path if it is below the current folder, else its name."""
    is_below = Path(path).name.startswith(name) and Path(path).absolute().is_relative_to(Path.cwd())
    return str(_short(Path(path))) if is_below else name


def _clear(folder: Path) -> None:
    """Remove what a demonstration made in a folder, and nothing else."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    for name in ("catalog.db", _MARK):
        (folder / name).unlink(missing_ok=True)


def _short(path: Path) -> Path:
    """Return a path relative to the current folder if it is below that."""
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) and path != Path.cwd() else path


def _run_here(catalog: str, operation: Operation) -> str:
    try:
        with progress_bar(TABLE) as progress:
            request = Request.new(TABLE, catalog=catalog, operation=operation)
            return Fleet().submit(request, on_progress=progress.update).wait(progress=progress.show).model_dump_json()
    except IcefleetError as error:
        return json.dumps({"error": str(error)})


if __name__ == "__main__":
    print(_run_here(sys.argv[1], Operation(sys.argv[2])))
