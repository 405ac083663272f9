"""Row groups in bounded batches: what counts is what rows take in memory, whatever they take in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workers.formats.parquet.batch_decoder import BoundedFile

MB = 1 << 20
MOST = 4 * MB
LONG = pa.array([chr(65 + n) * 20_000 for n in range(10)])
NUMBERS = np.arange(20_000, dtype=np.int32)


def long(rows: int = 20_000, short: int = 0) -> pa.DictionaryArray:
    """Values of 20 kB, of which there are ten; the first ones are short."""
    indexes = NUMBERS[:rows] % 10
    values = pa.concat_arrays([LONG, pa.array(["a"])])
    return pa.DictionaryArray.from_arrays(pa.array(np.where(NUMBERS[:rows] < short, 10, indexes).astype("i4")), values)


def offsets(rows: int, each: int, empty: int = 0) -> pa.Array:
    return pa.array(np.concatenate([np.zeros(empty), np.arange(rows + 1) * each]).astype(np.int32))


def mixed() -> pa.DictionaryArray:
    """Long values of a dictionary, then as many others that the dictionary does not hold."""
    short = pa.array([f"{n:032d}" for n in range(60_000)])
    indexes = np.concatenate([np.full(500, 10), NUMBERS[:1500] % 10, np.arange(60_000) + 10]).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indexes), pa.concat_arrays([LONG, short]))


def huge() -> pa.DictionaryArray:
    """Short values and then one so long that its column chunk looks as if most values were not in the dictionary."""
    values = pa.array([*(f"k{n}" for n in range(500)), "0123456789abcdef" * 32_768])
    indexes = np.concatenate([NUMBERS % 500, np.full(400, 500)]).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indexes), values)


CASES: dict[str, Callable[[], pa.Array]] = {
    "string": long,
    "string-after-short-ones": lambda: long(short=10_000),
    "string-before-plain-ones": mixed,
    "one-huge-string": huge,
    "struct": lambda: pa.StructArray.from_arrays([pa.array(NUMBERS), long()], names=["n", "s"]),
    "list": lambda: pa.ListArray.from_arrays(offsets(4_000, 5), long()),
    "list-after-empty-ones": lambda: pa.ListArray.from_arrays(offsets(2_000, 5, 10_000), long(10_000)),
    "map": lambda: pa.MapArray.from_arrays(offsets(4_000, 5), NUMBERS, long()),
    "list-of-structs": lambda: pa.ListArray.from_arrays(
        offsets(4_000, 5), pa.StructArray.from_arrays([pa.array(NUMBERS), long()], names=["n", "s"])
    ),
    "list-of-numbers": lambda: pa.ListArray.from_arrays(
        offsets(200, 100_000), pa.array(np.zeros(20_000_000, np.int32))
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_batches_are_bounded_by_what_rows_take_in_memory(tmp_path: Path, case: str) -> None:
    table = pa.table({"id": np.arange(len(column := CASES[case]())), "c": column})
    pq.write_table(table, tmp_path / "f", store_schema=False, compression="zstd")
    assert (tmp_path / "f").stat().st_size < 2 * MB
    read, ids, before = 0, list[np.ndarray[tuple[int], np.dtype[np.int64]]](), pa.total_allocated_bytes()
    with pa.OSFile(str(tmp_path / "f")) as source, BoundedFile(source) as file:
        for batch in file.batches(0, ["id", "c"], MOST, 1 << 17):
            # What batches are made of is there at the same time; a reader holds 4 MB of each column, and pages.
            assert batch.nbytes <= 2 * MOST or batch.num_rows == 1
            assert pa.total_allocated_bytes() - before < 32 * MB
            ids.append(batch.column("id").to_numpy().copy())
            read += batch.nbytes
    assert read > 15 * MOST or case == "string-before-plain-ones"
    assert np.array_equal(np.concatenate(ids), np.arange(table.num_rows))


def test_wide_rows_among_narrow_ones(tmp_path: Path) -> None:
    """All of their bytes are in the file, but nothing tells where."""
    values = pa.array([*("a" for _ in range(40_000)), *("y" * 20_000 for _ in range(4_000))])
    pq.write_table(pa.table({"c": values}), tmp_path / "f", use_dictionary=False, compression="zstd")
    with pa.OSFile(str(tmp_path / "f")) as source, BoundedFile(source) as file:
        batches = list(file.batches(0, ["c"], MOST, 1 << 17))
    assert max(batch.nbytes for batch in batches) <= 2 * MOST
    assert pa.Table.from_batches(batches).column("c").combine_chunks().equals(values)


def test_values_that_share_their_beginnings(tmp_path: Path) -> None:
    values = pa.array(["y" * 20_000 + str(n) for n in range(8_000)])
    encodings = {"use_dictionary": False, "column_encoding": {"c": "DELTA_BYTE_ARRAY"}}
    pq.write_table(pa.table({"c": values}), tmp_path / "f", compression="zstd", **encodings)
    with pa.OSFile(str(tmp_path / "f")) as source, BoundedFile(source) as file:
        assert max(batch.nbytes for batch in file.batches(0, ["c"], MOST, 1 << 17)) <= 2 * MOST


def test_ordinary_rows_come_in_large_batches(tmp_path: Path) -> None:
    rows = 300_000
    table = pa.table(
        {
            "id": np.arange(rows),
            "kind": pa.array(["one", "two", "three"]).take(pa.array(np.arange(rows) % 3)),
            "text": pa.array([f"text {n}" for n in range(rows)]),
            "nothing": pa.nulls(rows, pa.string()),
        }
    )
    pq.write_table(table, tmp_path / "f")
    with pa.OSFile(str(tmp_path / "f")) as source, BoundedFile(source) as file:
        batches = list(file.batches(0, table.schema.names, 8 * MB, 1 << 17))
    assert pa.Table.from_batches(batches).equals(table)
    assert len(batches) < 100


def test_one_value_is_a_batch_at_least(tmp_path: Path) -> None:
    values = pa.array(["x" * MB, "y", None, "z" * MB])
    pq.write_table(pa.table({"c": values}), tmp_path / "f")
    with pa.OSFile(str(tmp_path / "f")) as source, BoundedFile(source) as file:
        batches = list(file.batches(0, ["c"], 1, 10))
    assert [batch.num_rows for batch in batches] == [1, 1, 1, 1]


@pytest.mark.parametrize("columns", [[], ["c"]])
def test_batches_of_equal_rows(tmp_path: Path, columns: list[str]) -> None:
    """Rows take 13 bytes with the column, and what the caller adds alone without it."""
    pq.write_table(pa.table({"c": np.arange(2_000)}), tmp_path / "f")
    added = 0 if columns else 13
    with pa.OSFile(str(tmp_path / "f")) as source, BoundedFile(source) as file:

        def rows(max_bytes: int, max_rows: int) -> list[int]:
            return [batch.num_rows for batch in file.batches(0, columns, max_bytes, max_rows, added=added)]

        assert rows(13 * 900, 5_000) == [900, 900, 200]
        assert rows(MB, 1_500) == [1_500, 500]
        assert rows(1, 10) == [1] * 2_000
