"""Random streams by Java's writers, converted now and then; Java says each time that the rows are the same."""

from __future__ import annotations

import random

import pytest

from tests.interop.bridge import Bridge, JavaTable, eq, pos
from tests.interop.checks import EQUALITY_DELETES, Convert, Entry, check_conversion, check_onward, live

COLUMNS = {"id": "int", "k": "string", "p": "string", "d": "date"}
SPECS: list[list[list[str]]] = [
    [["partition", "p", "identity", "p"]],
    [["partition", "b", "bucket[2]", "id"]],
    [["partition", "p", "identity", "p"], ["partition", "m", "month", "d"]],
    [],
]
KEYS = ["id", "k", "id, p", "k, d", "d", "p, k, id"]


class Stream:
    """One random table: a few keys that come again and again, with nulls, in a few partitions."""

    def __init__(self, table: JavaTable, version: int, seed: int) -> None:
        self.table = table
        self.version = version
        self.random = random.Random(seed)

    def step(self) -> None:
        """One commit of rows, equality deletes and position deletes, or a change of the partition spec."""
        if self.random.random() < 0.15:
            self._respec()
        rows = [self._row() for _ in range(self.random.randint(1, 12))]
        written = live(self.table.inspect(), 0) if self.table.document().get("snapshots") else []
        deletes = [delete for _ in range(self.random.randint(0, 3)) for delete in self._deletes(written)]
        positions = {}
        if written and self.random.random() < 0.3:
            file = self.random.choice(written)
            positions = pos(self.version, (file["file_path"], [self.random.randrange(file["record_count"])]))
        self.table.commit(*rows, deletes=deletes, **positions)

    def _row(self) -> list[object]:
        day = f"2026-0{self.random.randint(1, 2)}-0{self.random.randint(1, 3)}"
        choices: list[list[object]] = [list(range(10)), ["x", "y", "z", None], ["a", "b", None], [day, None]]
        return [self.random.choice(values) for values in choices]

    def _deletes(self, written: list[Entry]) -> list[dict[str, object]]:
        columns = self.random.choice(KEYS)
        places = [list(COLUMNS).index(name) for name in columns.split(", ")]
        rows = [[row[i] for i in places] for row in (self._row() for _ in range(self.random.randint(1, 3)))]
        scopes = [(file["spec_id"], file["partition"]) for file in written]
        if not scopes or self.random.random() < 0.2:
            return [eq(columns, *rows, spec=0)]
        spec, partition = self.random.choice(scopes)
        # Java tells the values of all specs; those of this one are the fields that the spec has.
        return [eq(columns, *rows, spec=spec, partition=[partition[name] for name in self.table.partition_names(spec)])]

    def _respec(self) -> None:
        current = self.table.partition_names()
        self.table.evolve(*(["unpartition", name] for name in current), *self.random.choice(SPECS))


@pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])
@pytest.mark.parametrize("seed", range(2))
def test_stream(bridge: Bridge, warehouse: str, convert: Convert, version: int, seed: int) -> None:
    stream = Stream(bridge.create(f"{warehouse}/t", version, COLUMNS), version, seed)
    for _ in range(2):
        for _ in range(6):
            stream.step()
        if live(stream.table.inspect(), EQUALITY_DELETES):
            check_conversion(stream.table, convert, stream.table.lists())
    check_onward(stream.table)
