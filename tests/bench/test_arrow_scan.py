"""The yardstick finds exactly the rows whose keys are deleted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bench.contestants.arrow_scan import Deleted, words

_NUMBERS = np.random.default_rng(5).permutation(20_000)
_KEYS = {
    "numbers": lambda n: [pa.array(n)],
    "strings": lambda n: [pa.array([f"user-{value:012d}" for value in n])],
    "strings of any length": lambda n: [pa.array(["x" * (value % 13) + str(value) for value in n])],
    "strings that end alike": lambda n: [pa.array([f"{value}-the-same-end" for value in n])],
    "two columns": lambda n: [pa.array(n // 100), pa.array(n % 100)],
    "mixed": lambda n: [pa.array([str(value // 7) for value in n]), pa.array(n % 7)],
}


@pytest.mark.parametrize("kind", _KEYS)
def test_positions(kind: str) -> None:
    numbers = _NUMBERS[:2_000] if "alike" in kind else _NUMBERS  # of these all share one word
    gone = np.concatenate([numbers[::50], numbers[:3], [10**6, 10**6 + 1]])  # some twice, some that nobody has
    names = [str(number) for number in range(len(_KEYS[kind](numbers[:1])))]
    deleted = Deleted(pa.table(_KEYS[kind](gone), names))
    columns = [column.slice(3) for column in _KEYS[kind](numbers)]
    assert deleted.positions(columns).tolist() == np.flatnonzero(np.isin(numbers[3:], gone)).tolist()


def test_words_of_short_strings_do_not_depend_on_their_neighbours() -> None:
    one, other = words([pa.array(["abc", "", "de"])]), words([pa.array(["x" * 20, "de", "abc", ""])])
    assert one.tolist() == [other[2], other[3], other[1]]
