"""Many small tables: what a job costs when there is next to nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from bench.case import Case, Entry, Workload
from bench.data import GeneratedTable
from bench.sizes import Size
from tasks.testing import RowDelta, StreamTable
from tasks.testing.reader import Checksum

#: Of the recipe.
_VERSION: Final = 1
_FILES: Final = 4
_ROWS: Final = 100
_DELETES: Final = 2
_DELETED: Final = 20


def recipe(tables: int, catalog: Catalog) -> Iterator[GeneratedTable]:
    """Tables of a few files and a few equality delete files each."""
    random = np.random.default_rng(200)
    for number in range(tables):
        count = _FILES * _ROWS
        rows = pa.table({"id": np.arange(count), "value": random.random(count)})
        table = StreamTable.create(catalog, f"bench.small_{number}", rows.schema)
        files = [file for part in range(_FILES) for file in table.write_data(rows.slice(part * _ROWS, _ROWS))]
        table.commit(RowDelta(files))
        deleted_numbers = random.choice(count, _DELETES * _DELETED, replace=False)
        for part in np.split(deleted_numbers, _DELETES):
            table.delete_where_equal(pa.table({"id": part}), ["id"])
        yield GeneratedTable(table, Checksum.of(rows) - Checksum.of(rows.take(deleted_numbers)))


def cases(size: Size) -> Sequence[Case]:
    """One worker for all of them."""
    entry = Entry(program="icefleet-fleet", ask={"do": "convert"}, leaves={"equality_deletes": 0})
    return [
        Case(
            name="convert",
            title=f"{size.small_tables:,} tables of {_FILES} data files and {_DELETES} equality delete files each, "
            "enqueued at once, one worker",
            master=f"small-{size.small_tables}-v{_VERSION}",
            recipe=partial(recipe, size.small_tables),
            entries=[entry],
        )
    ]


WORKLOAD = Workload(
    name="small-tables",
    title="Many small tables",
    about="Jobs of one small unit each, through Redis: an application enqueues all of them, and one worker plans, "
    "stages and commits them. The time is that from the first message to the last report.",
    cases=cases,
)
