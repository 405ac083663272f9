"""W6: ever more small commits in one partition, each with an equality delete file: growth, which must be linear."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from bench.case import Case, Entry, Workload
from bench.data import GeneratedTable, Recipe
from tasks.testing import StreamTable
from tasks.testing.reader import Checksum

#: Of the recipe below.
_VERSION = 1
#: Rows of a commit, and how many of them replace rows of earlier ones.
_ROWS, _REPLACED = 50, 25


def recipe(commits: int) -> Recipe:
    """A stream that upserts: each commit adds rows and deletes as many keys, half of which earlier commits wrote."""

    def make(catalog: Catalog) -> Iterator[GeneratedTable]:
        random = np.random.default_rng(26)
        versions: dict[int, int] = {}
        schema = pa.schema([("id", pa.int64()), ("version", pa.int64())])
        table = StreamTable.create(catalog, "bench.t", schema, format_version=2)
        for number in range(commits):
            known = np.fromiter(versions, dtype=np.int64, count=len(versions))
            replaced = random.choice(known, _REPLACED, replace=False) if len(known) else known
            ids = np.concatenate([replaced, np.arange(len(known), len(known) + _ROWS - len(replaced))])
            table.upsert(pa.table({"id": ids, "version": np.full(_ROWS, number)}), ["id"])
            versions |= dict.fromkeys(ids.tolist(), number)
        rows = {"id": list(versions), "version": list(versions.values())}
        yield GeneratedTable(table, Checksum.of(pa.table(rows, schema=schema)))

    return make


def _case(commits: int) -> Case:
    # Without the option the newest delete would stay, and the two would not leave the same.
    rewrite = {"do": "rewrite", "options": {"delete-file-threshold": "1", "remove-dangling-deletes": "true"}}
    return Case(
        name=str(commits),
        title=f"{commits} commits of {_ROWS} rows and one equality delete file each",
        master=f"w6-{commits}x{_ROWS}-v{_VERSION}",
        recipe=recipe(commits),
        entries=[
            Entry(program="icefleet", ask={"do": "convert"}, leaves={"equality_deletes": 0}),
            Entry(program="iceberg-spark", ask=rewrite, leaves={"equality_deletes": 0}),
        ],
        query="select count(id) as n, sum(version) as s from {table}",
    )


WORKLOAD = Workload(
    name="w6",
    title="W6: growth",
    about="Ever more small commits, each with an equality delete file: four times as many may take four times as long.",
    cases=lambda size: [_case(commits) for commits in size.w6_commits],
    plot="lines",
)
