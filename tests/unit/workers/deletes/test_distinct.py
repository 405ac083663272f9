"""Deletes that repeat a long key are kept once; those of other keys all, whatever their hashes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from workers.deletes.delete_spool import Distinct


def rows(keys: Sequence[str | None], hashes: Sequence[int]) -> pa.RecordBatch:
    count = len(keys)
    columns = [pa.array(hashes, pa.uint64()), pa.array(np.zeros(count, np.int32)), pa.array(np.ones(count, np.int64))]
    return pa.RecordBatch.from_arrays([*columns, pa.array(keys, pa.string())], names=["hash", "scope", "seq", "k0"])


def kept(batches: Sequence[pa.RecordBatch], most: int) -> list[str | None]:
    distinct = Distinct(most)
    given = [some for batch in batches for some in distinct.add(batch)]
    return [key for some in [*given, *distinct.flush()] for key in some["k0"].to_pylist()]


def test_long_keys_come_once_across_batches() -> None:
    keys = [letter * 20_000 for letter in "abc"]
    batch = rows(keys * 10, [1, 2, 3] * 10)
    assert sorted(kept([batch] * 20, 1 << 18), key=str) == keys


def test_keys_of_one_hash_are_distinguished() -> None:
    keys = ["a" * 20_000, "b" * 20_000, None]
    found = kept([rows([*keys, *keys], [7] * 6)], 1 << 20)
    assert set(found) == set(keys)


def test_short_keys_pass_as_they_are() -> None:
    assert kept([rows(["a", "a", "b"], [1, 1, 2])], 1) == ["a", "a", "b"]


def test_many_long_keys_do_not_wait_for_the_end() -> None:
    distinct = Distinct(1 << 20)
    given = 0
    for number in range(100):
        given += sum(some.num_rows for some in distinct.add(rows([f"{number:020000d}"] * 5, [number] * 5)))
    assert given > 40
    assert given + sum(some.num_rows for some in distinct.flush()) == 100
