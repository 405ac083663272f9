"""The index of deletes: a row is removed by a newer delete of its key and scope, and by nothing else."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.types import LongType, StringType

from workers.deletes import key_index
from workers.deletes.bloom_filter import Hashes, hash_keys
from workers.deletes.delete_spool import arrow_schema
from workers.deletes.key_index import KeyIndex, PartWriter, write_index
from workers.model.delete_set import KeyColumn

COLUMNS = (KeyColumn(1, LongType()), KeyColumn(2, StringType()))
#: Texts of one length that differ in the middle only, where the filter of keys does not look.
ALIKE = st.sampled_from([f"{'x' * 40}{n}{'y' * 40}" for n in range(3)])
KEYS = st.tuples(st.none() | st.integers(-2, 2), st.none() | st.sampled_from(["", "a", "ab"]) | ALIKE)
DELETES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), KEYS), max_size=40)
Key = tuple[Any, ...]
Delete = tuple[int, int, Key]


def hashes_of(keys: list[pa.Array], scopes: npt.NDArray[np.int64], is_global: bool) -> Hashes:
    return hash_keys(keys, np.zeros_like(scopes) if is_global else scopes + 1, whole=True)


def all_the_same(keys: list[pa.Array], scopes: npt.NDArray[np.int64], is_global: bool) -> Hashes:
    return np.full(len(keys[0]), 7 << 60, dtype=np.uint64)


class Index:
    """The index of some deletes, which come in several batches."""

    def __init__(
        self,
        folder: Path,
        deletes: list[Delete],
        is_global: bool,
        parts: int = 1,
        hashes: Any = hashes_of,
    ) -> None:
        self._is_global, self._hashes = is_global, hashes
        schema = pa.schema([("hash", pa.uint64()), *arrow_schema(COLUMNS)])
        writer = PartWriter(folder, schema, parts)
        size = max(7, len(deletes) // 3)
        for start in range(0, len(deletes), size):
            some = deletes[start : start + size]
            scopes, numbers = (np.array([delete[n] for delete in some]) for n in (0, 1))
            keys = columns([key for _, _, key in some])
            arrays = [pa.array(hashes(keys, scopes, is_global)), pa.array(scopes, pa.int32()), pa.array(numbers), *keys]
            writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
        self.paths = writer.close()
        for path in self.paths:
            write_index(path, is_global)
        self._index = KeyIndex(self.paths, parts, is_global)

    def removes(self, rows: list[Key], scopes: list[int], numbers: list[int]) -> list[bool]:
        keys, where = columns(rows), np.array(scopes)
        found = self._index.removes(self._hashes(keys, where, self._is_global), keys, where, np.array(numbers))
        return [bool(gone) for gone in found]


def columns(keys: list[Key]) -> list[pa.Array]:
    types: list[pa.DataType] = [pa.int64(), pa.string()]
    return [pa.array([key[n] for key in keys], type_) for n, type_ in enumerate(types)]


@pytest.mark.parametrize("is_global", [True, False])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    deletes=DELETES.filter(bool),
    rows=st.lists(st.tuples(KEYS, st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=20),
    parts=st.sampled_from([1, 2, 7, 50]),
    segment=st.sampled_from([1 << 20, 1]),
    hashes=st.sampled_from([hashes_of, hashes_of, all_the_same]),
    mapped=st.sampled_from([1 << 20, 0]),
)
def test_it_says_what_the_rule_says(
    tmp_path_factory: pytest.TempPathFactory,
    deletes: list[Delete],
    rows: list[tuple[Key, int, int]],
    parts: int,
    segment: int,
    hashes: Any,
    mapped: int,
    is_global: bool,
) -> None:
    """Whatever the parts and segments, the rows of several files, the keys that come again and hashes that collide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_SEGMENT_ROWS", segment)
        patch.setattr(key_index, "_MAPPED_BYTES", mapped)
        made = Index(tmp_path_factory.mktemp("index"), deletes, is_global, parts, hashes)
    expected = [
        any(key == row and number > seq and (is_global or where == scope) for where, number, key in deletes)
        for row, scope, seq in rows
    ]
    keys, scopes, numbers = (list(values) for values in zip(*rows, strict=True))
    for _ in range(2):  # its pages come again after they were given back
        assert made.removes(keys, scopes, numbers) == expected


def test_keys_whose_hashes_collide_are_distinguished(tmp_path: Path) -> None:
    made = Index(tmp_path, [(0, n % 3 + 1, (n % 5, "a")) for n in range(30)], True, 3, all_the_same)
    asked: list[Key] = [(4, "a"), (5, "a"), (None, "a"), (0, "b"), (0, None)]
    assert made.removes(asked, [0] * 5, [2] * 5) == [True, False, False, False, False]
    assert not any(made.removes(asked, [0] * 5, [3] * 5))


def test_scopes_whose_hashes_collide_are_distinguished(tmp_path: Path) -> None:
    made = Index(tmp_path, [(0, 3, (1, "a")), (2, 1, (1, "a"))], False, 3, all_the_same)
    assert made.removes([(1, "a")] * 3, [0, 1, 2], [2, 2, 2]) == [True, False, False]


def test_a_key_that_repeats_is_held_once(tmp_path: Path) -> None:
    made = Index(tmp_path, [(0, n + 1, (1, "a")) for n in range(1000)], True)
    assert sum(path.with_suffix(".index").stat().st_size for path in made.paths) < 3000
    assert made.removes([(1, "a")] * 2, [0, 0], [999, 1000]) == [True, False]


def test_a_key_lies_in_one_part_and_the_deletes_it_was_made_of_are_deleted(tmp_path: Path) -> None:
    made = Index(tmp_path, [(0, 1, (n, "a")) for n in range(1000)], True, 16)
    assert len(made.paths) == 16
    assert not any(path.exists() for path in made.paths)
    held = [pa.ipc.open_file(str(path.with_suffix(".index"))).read_all().num_rows for path in made.paths]
    assert sum(held) == 1000
    assert max(held) < 130


def test_pages_of_a_large_index_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task never holds more than a part of it, however many rows it looks up."""
    monkeypatch.setattr(key_index, "_MAPPED_BYTES", 0)
    made = Index(tmp_path, [(0, 1, (n, "a" * 100)) for n in range(40_000)], True, 16)
    assert all(made.removes([(n, "a" * 100) for n in range(40_000)], [0] * 40_000, [0] * 40_000))
    assert _resident(tmp_path) == 0
    monkeypatch.setattr(key_index, "_MAPPED_BYTES", 1 << 30)
    (tmp_path / "mapped").mkdir()
    small = Index(tmp_path / "mapped", [(0, 1, (n, "a")) for n in range(40_000)], True, 16)
    assert all(small.removes([(n, "a") for n in range(40_000)], [0] * 40_000, [0] * 40_000))
    assert _resident(tmp_path / "mapped") > 500_000


def _resident(folder: Path) -> int:
    """Bytes of a folder's files that this process holds."""
    maps = psutil.Process().memory_maps(grouped=False)
    return sum(held.rss for held in maps if Path(held.path).parent == folder)


def test_parts_ascend_with_the_hashes() -> None:
    hashes = np.sort(np.random.default_rng(1).integers(0, 2**64, 10_000, dtype=np.uint64))
    hashes[0], hashes[-1] = 0, 2**64 - 1
    for parts in (1, 2, 7, 256):
        found = key_index.parts_of(hashes, parts)
        assert (found[0], found[-1]) == (0, parts - 1)
        assert (np.diff(found.astype(int)) >= 0).all()
    assert [key_index.part_count(rows) for rows in (0, 1, 1 << 18, 1 + (1 << 18), 10**10)] == [1, 1, 1, 2, 256]


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "1.arrows").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as error:
        Index(tmp_path, [(0, 1, (n, "a" * 1000)) for n in range(1000)], True, 2)
    assert error.value.errno == errno.ENOSPC
