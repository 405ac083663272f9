"""What tests of the bench share: a contestant that does what it is asked to, and a small table."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from bench.case import Case, Entry, Workload
from bench.data import GeneratedTable
from bench.programs import PROGRAMS, Absent, Program, Start
from bench.sizes import SMOKE
from tasks.testing import StreamTable
from tasks.testing.reader import Checksum

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})
#: Two runs after a warm-up, contestants kept, no queries.
SIZE = dataclasses.replace(SMOKE, runs=2, warmups=1)


def recipe(catalog: Catalog) -> Iterator[GeneratedTable]:
    """One table of ten rows, two of them deleted."""
    table = StreamTable.create(catalog, "bench.t", ROWS.schema)
    table.append(ROWS)
    table.delete_where_equal(ROWS.slice(0, 2), ["id"])
    yield GeneratedTable(table, Checksum.of(ROWS.slice(2)))


def wrong_recipe(catalog: Catalog) -> Iterator[GeneratedTable]:
    """The same, and a truth that is none."""
    for made in recipe(catalog):
        yield dataclasses.replace(made, truth=Checksum.of(ROWS))


def workload(*entries: Entry, **changes: Any) -> Workload:
    """One case of the small table."""
    known: dict[str, Any] = {"name": "one", "title": "a small table", "master": "small", "recipe": recipe}
    case = Case(**{**known, "entries": entries, **changes})
    return Workload(name="w0", title="A test", about="Nothing.", cases=lambda size: [case])


def ask(does: str, **options: Any) -> Entry:
    """An entry of the contestant for tests."""
    return Entry(**{"program": "test", "label": does, "ask": {"do": does}, **options})


def _launch(start: Start) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "tests.bench.contestant", *start.arguments]
    return command, {**os.environ, **start.catalog.environment}


def _absent(start: Start) -> tuple[list[str], dict[str, str]]:
    raise Absent("it is sold out")


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of the roster that are there for tests."""
    made: dict[str, Callable[..., Any]] = {"test": _launch, "absent": _absent}
    for name, launch in made.items():
        monkeypatch.setitem(PROGRAMS, name, Program(name=name, about=f"the program {name}", launch=launch))
