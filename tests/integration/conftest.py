"""What scenario tests share: tables of every format version in the one catalog."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

from tasks.testing import StreamTable, local_catalog

pytest.register_assert_rewrite("tests.support.scenario")

_NUMBERS = itertools.count()


class Create(Protocol):
    """Makes an empty table under a name of its own."""

    def __call__(self, schema: Schema | pa.Schema, version: int = 2, **options: Any) -> StreamTable: ...


@pytest.fixture
def create(spark: object, default_catalog: Path) -> Create:
    """Tables in the catalog ``default``."""

    def made(schema: Schema | pa.Schema, version: int = 2, **options: Any) -> StreamTable:
        name = f"scenario.t{next(_NUMBERS)}"
        return StreamTable.create(local_catalog(default_catalog), name, schema, format_version=version, **options)

    return made


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def version(request: pytest.FixtureRequest) -> int:
    """The format version."""
    return int(request.param)
