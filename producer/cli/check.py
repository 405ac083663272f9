"""The command ``check``: tries all that a job needs, here and now, and says what is wrong and what to do."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from typing import Final

import click
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import Table
from rich.markup import escape

from producer.broker.connections import redis_at, sender_to
from producer.broker.queue import QUEUES, Messenger
from producer.broker.registry import JobRegistry
from producer.cli import render
from producer.cli.common import CATALOG, JSON, reason_of, suggest_table
from producer.cli.errors import print_json
from producer.common.errors import Failed
from producer.common.redaction import redact
from producer.common.settings import Settings
from producer.common.sizes import count_text
from producer.iceberg.catalog import open_catalog, open_table
from producer.state.job_store import ROOT, JobStore
from producer.storage.files import create_file, delete_if_exists, write_file
from producer.storage.locations import FencedFileIO, TableLocations
from producer.storage.metadata_cache import METADATA_CACHE

#: Seconds that clocks may differ: time limits and records carry times.
_CLOCK_SECONDS: Final = 30.0
#: Seconds in which workers answer.
_ANSWER_SECONDS: Final = 2.0
#: The entry points of what workers need: functions from settings to checks.
_GROUP: Final = "icefleet.checks"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried."""

    name: str
    #: Whether it works; None if it was not tried.
    passed: bool | None
    #: What was found; or what is wrong, and what to do.
    detail: str

    @classmethod
    def of(cls, name: str, attempt: Callable[[], str]) -> Check:
        """Return the check of an attempt, which returns what it found, or raises an error that says what is wrong."""
        try:
            return cls(name, True, attempt())
        except Exception as error:  # clients of brokers, catalogs and storage raise errors of many kinds
            return cls(name, False, reason_of(error))


@click.command()
@click.argument("table", required=False)
@CATALOG
@JSON
def check(table: str | None, catalog: str, as_json: bool) -> None:
    """Try broker, workers, clocks, catalog, Java and scratch, and the storage of TABLE.

    It says what is wrong and what to do. A small file is written below the table's location, read and deleted. Exit
    status: 0 if all works, else 1.

    \b
    Examples:
      icefleet check
      icefleet check db.events
      icefleet check db.events --catalog prod --json
    """
    checks = []
    for found in run_checks(Settings.load(), catalog, table):
        checks.append(found)
        if not as_json:
            render.out.print(f"{_MARKS[found.passed]} [bold]{escape(found.name)}[/bold]: {escape(found.detail)}")
    if as_json:
        print_json([asdict(found) for found in checks])
    sys.exit(any(found.passed is False for found in checks))


_MARKS: Final = {True: "[green]ok[/green]     ", False: "[red]wrong[/red]  ", None: "[dim]not tried[/dim]"}


def run_checks(settings: Settings, catalog: str, table: str | None) -> Iterator[Check]:
    """Yield the checks one after another; those that depend on one that fails are left out."""
    yield from _check_broker(settings)
    for entry in entry_points(group=_GROUP):
        yield from entry.load()(settings)
    yield (opened := Check.of("catalog", lambda: _describe_catalog(catalog)))
    if table is None or not opened.passed:
        return
    loaded: list[Table] = []

    def load() -> str:
        METADATA_CACHE.reset()  # what was read a moment ago shows nothing
        with suggest_table(catalog, table):
            loaded.append(open_table(catalog, table))
        return f"{table} lies at {loaded[0].metadata.location}"

    yield Check.of("table", load)
    if loaded:
        yield from _check_storage(loaded[0])


def _check_broker(settings: Settings) -> Iterator[Check]:
    if settings.local:
        yield Check("broker", None, "ICEFLEET_BROKER_URL is not set: jobs run in the process that asks for them")
        return

    def ask_broker() -> str:
        Messenger(settings).check()
        return f"{redact(settings.broker_url)} answers and takes messages"

    yield (broker := Check.of("broker", ask_broker))
    if not broker.passed:
        return
    if settings.redis_url:

        def compare_clocks() -> str:
            JobRegistry(settings).check()
            seconds, micros = redis_at(settings.redis_url).time()
            off = time.time() - seconds - micros / 1_000_000
            if abs(off) > _CLOCK_SECONDS:
                raise Failed(
                    f"This machine's clock is {off:+,.0f} s off that of Redis: have both follow a time server."
                )
            return f"{abs(off):,.1f} s off that of Redis"

        yield Check.of("clock", compare_clocks)
    yield Check.of("workers", lambda: _describe_workers(settings))


def _describe_workers(settings: Settings) -> str:
    inspect = sender_to(settings.broker_url).app.control.inspect(timeout=_ANSWER_SECONDS)
    found = inspect.active_queues() or {}
    served = {queue["name"] for queues in found.values() for queue in queues}
    if missing := sorted(set(QUEUES.values()) - served):
        names = ", ".join(missing)
        raise Failed(f"No worker that answers serves {names}: start `icefleet worker --queues {','.join(missing)}`.")
    return f"{count_text(len(found), 'worker')} serve all queues: {', '.join(sorted(found))}"


def _describe_catalog(catalog: str) -> str:
    opened = open_catalog(catalog)
    kind = type(opened).__name__.removeprefix("Limited").removesuffix("Catalog")
    try:
        found = f"it has {count_text(len(opened.list_namespaces()), 'namespace')}"
    except ForbiddenError:
        found = "it does not let its namespaces be listed: the sweeper looks only at tables of jobs that Redis knows"
    return f"{catalog!r} ({kind}) answers; {found}"


def _check_storage(table: Table) -> Iterator[Check]:
    """Write, read and delete a small file where the records of the table's jobs lie."""
    name = f"check-{secrets.token_hex(4)}"
    path = f"{table.metadata.location.rstrip('/')}/{ROOT}/{name}/check.json"
    io = FencedFileIO(table.io, TableLocations.of(table.metadata))

    def write() -> str:
        if create_file(io, path, b"1") is None:
            write_file(io, path, b"1")
        return f"written below {table.metadata.location}"

    def create_again() -> str:
        again = create_file(io, path, b"2")
        if again:
            raise Failed("The store writes a file anew that was to be created once: two workers may take one unit.")
        return "a file is created once" if again is not None else "no such write here: claims are read back instead"

    def read() -> str:
        with io.new_input(path).open(seekable=False) as stream:
            if (contents := bytes(stream.read())) != b"1":
                raise Failed(f"{path} was read as {contents!r} and not as it was written.")
        return "read as it was written"

    def delete() -> str:
        io.delete(path)
        JobStore(io, table.metadata.location, name).remove_folders()
        if io.new_input(path).exists():
            raise Failed(f"{path} was deleted and still exists.")
        return "deleted, and not there any more"

    yield (written := Check.of("storage: write", write))
    if not written.passed:
        return
    try:
        yield Check.of("storage: create once", create_again)
        yield Check.of("storage: read", read)
        yield (deleted := Check.of("storage: delete", delete))
    except GeneratorExit:
        delete_if_exists(io, path)
        raise
    if not deleted.passed:
        yield Check("storage: left behind", False, f"{path}: delete it")
