"""How valid bytes are changed: bits flipped, pieces cut, repeated and exchanged, numbers made huge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

#: Numbers that lengths and counts are replaced by, as files of different kinds write them.
NUMBERS = tuple(
    value.to_bytes(size, order, signed=False)
    for size in (1, 2, 4, 8)
    for value in (0, 1, (1 << (8 * size - 1)) - 1, 1 << (8 * size - 1), (1 << 8 * size) - 1)
    for order in ("little", "big")
) + tuple(_varint for _varint in (b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f", b"\xfe" + b"\xff" * 8 + b"\x01"))
#: What readers of text trip over.
TEXTS = (b"null", b"-1", b"1e999", b"NaN", b"[]", b"{}", b'""', b'"\\ud800"', b"9" * 30, b"[" * 2000, b"\x00", b"\xff")


@st.composite
def mutated(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, changed in one to six places."""
    data = bytearray(draw(st.sampled_from(list(seeds))))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(("flip", "flip", "byte", "cut", "drop", "repeat", "number", "text", "splice"))):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "byte" if data:
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at:]
            case "drop":
                del data[at : at + draw(st.integers(1, 32))]
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 64))] * draw(st.integers(1, 4))
            case "number":
                number = draw(st.sampled_from(NUMBERS))
                data[at : at + len(number)] = number
            case "text":
                data[at:at] = draw(st.sampled_from(TEXTS))
            case "splice":
                other = draw(st.sampled_from(list(seeds)))
                data[at:] = other[draw(st.integers(0, max(0, len(other) - 1))) :]
    return bytes(data)
