"""The index of deletes: a row is removed by a newer delete of its key and scope, and by nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.types import LongType, StringType

from workers import keyindex
from workers.deletes import Spool, arrow_schema
from workers.keyindex import KeyIndex
from workers.unit import KeyColumn

COLUMNS = (KeyColumn(1, LongType()), KeyColumn(2, StringType()))
#: Texts of one length that differ in the middle only, where the filter of keys does not look.
ALIKE = st.sampled_from([f"{'x' * 40}{n}{'y' * 40}" for n in range(3)])
KEYS = st.tuples(st.none() | st.integers(-2, 2), st.none() | st.sampled_from(["", "a", "ab"]) | ALIKE)
DELETES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), KEYS), max_size=40)


def index(folder: Path, deletes: list[tuple[int, int, tuple[Any, ...]]], is_global: bool, parts: int = 1) -> KeyIndex:
    schema = arrow_schema(COLUMNS)
    paths = []
    for part in range(parts):
        rows = [(scope, seq, *key) for scope, seq, key in deletes[part::parts]]
        columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)]
        path = folder / f"{part}.arrows"
        with pa.ipc.new_stream(str(path), schema) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        paths.append(path)
    spool = Spool(tuple(paths), folder / "filter", (), len(deletes), 0, len(deletes))
    KeyIndex.create(folder / "index", spool, is_global)
    return KeyIndex.open(folder / "index", is_global)


def columns(keys: list[tuple[Any, ...]]) -> list[pa.Array]:
    types: list[pa.DataType] = [pa.int64(), pa.string()]
    return [pa.array([key[n] for key in keys], type_) for n, type_ in enumerate(types)]


@pytest.mark.parametrize("segment", [1 << 20, 1])
@pytest.mark.parametrize("is_global", [True, False])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    deletes=DELETES.filter(bool),
    rows=st.lists(KEYS, min_size=1, max_size=20),
    scope=st.integers(0, 2),
    seq=st.integers(0, 4),
)
def test_it_says_what_the_rule_says(
    tmp_path_factory: pytest.TempPathFactory,
    deletes: list[tuple[int, int, tuple[Any, ...]]],
    rows: list[tuple[Any, ...]],
    scope: int,
    seq: int,
    is_global: bool,
    segment: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyindex, "_SEGMENT_ROWS", segment)
        made = index(tmp_path_factory.mktemp("index"), deletes, is_global, parts=2)
    expected = [
        any(key == row and number > seq and (is_global or where == scope) for where, number, key in deletes)
        for row in rows
    ]
    assert made.removes(columns(rows), scope, seq).tolist() == expected


def test_keys_whose_hashes_collide_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def same(columns: list[pa.Array], seed: object = 0, *, whole: bool = False) -> np.ndarray[Any, Any]:
        return np.full(len(columns[0]), 7, dtype=np.uint64)

    monkeypatch.setattr(keyindex, "hash_keys", same)
    made = index(tmp_path, [(0, n % 3 + 1, (n % 5, "a")) for n in range(30)], True)
    asked = columns([(4, "a"), (5, "a"), (None, "a"), (0, "b"), (0, None)])
    assert made.removes(asked, 0, 2).tolist() == [True, False, False, False, False]
    assert not made.removes(asked, 0, 3).any()


def test_scopes_whose_hashes_collide_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def same(columns: list[pa.Array], *_: Any, **__: Any) -> Any:
        return np.zeros(len(columns[0]), dtype=np.uint64)

    monkeypatch.setattr(keyindex, "hash_keys", same)
    made = index(tmp_path, [(0, 3, (1, "a")), (2, 1, (1, "a"))], is_global=False)
    assert [made.removes(columns([(1, "a")]), scope, 2).tolist() for scope in range(3)] == [[True], [False], [False]]


def test_a_key_that_repeats_is_held_once(tmp_path: Path) -> None:
    made = index(tmp_path, [(0, n + 1, (1, "a")) for n in range(1000)], True)
    assert (tmp_path / "index").stat().st_size < 3000
    assert made.removes(columns([(1, "a")]), 0, 999).all()
    assert not made.removes(columns([(1, "a")]), 0, 1000).any()
