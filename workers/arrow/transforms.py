"""Iceberg's partition transforms of whole columns, in the Arrow types of a table's rows."""

from __future__ import annotations

from typing import Any, Final

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    BucketTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import PrimitiveType

from workers.arrow.fields import bits, null_mask, to_numpy
from workers.arrow.schema import arrow_type

Hashes = npt.NDArray[np.uint32]

#: Longer values are so few in a batch that each is hashed by itself.
_LONG: Final = 512
_SECONDS: Final = {"us": 1_000_000, "ns": 1_000_000_000}


def apply_transform(array: pa.Array, source: PrimitiveType, transform: Transform[Any, Any]) -> pa.Array:
    """Return the transform of a column, of its result type; null where the source is null.

    Dates and the results of day, month, year and hour are 32-bit numbers, as in the spec.

    Raises:
        ValueError: the transform is unknown, or does not apply to the type.
    """
    if isinstance(transform, IdentityTransform):
        return array
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(array), array.type)
    if not transform.can_transform(source):
        raise ValueError(f"{transform} is no transform of {source}")
    result = None
    if isinstance(transform, TimeTransform):
        result = _time(array, transform)
    elif isinstance(transform, BucketTransform):
        result = _bucket(array, transform.num_buckets)
    elif isinstance(transform, TruncateTransform):
        result = _truncated(array, transform.width)
    return _by_value(array, source, transform) if result is None else result


def _time(array: pa.Array, transform: TimeTransform[Any]) -> pa.Array:
    numbers = _numbers(array)
    if pa.types.is_timestamp(array.type):
        seconds = 3600 if isinstance(transform, HourTransform) else 86_400
        numbers = numbers // (seconds * _SECONDS[array.type.unit])
    if isinstance(transform, MonthTransform | YearTransform):
        unit = "M" if isinstance(transform, MonthTransform) else "Y"
        numbers = numbers.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)
    return _with_nulls(numbers, array, pa.int32())


def _bucket(array: pa.Array, buckets: int) -> pa.Array | None:
    if pa.types.is_decimal(array.type):
        return None
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type) or pa.types.is_fixed_size_binary(array.type):
        hashes = hash_bytes(array.cast(pa.binary()))
    else:
        numbers = _numbers(array).astype(np.int64)
        if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
            numbers = numbers // 1000  # in the same buckets as microseconds
        hashes = hash_longs(numbers)
    return _with_nulls((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(buckets), array, pa.int32())


def _truncated(array: pa.Array, width: int) -> pa.Array | None:
    if pa.types.is_string(array.type):
        return pc.utf8_slice_codeunits(array, 0, width)
    if pa.types.is_binary(array.type):
        return pc.binary_slice(array, 0, width)
    if pa.types.is_integer(array.type):
        numbers = _numbers(array).astype(np.int64)
        return _with_nulls((numbers - numbers % width).astype(array.type.to_pandas_dtype()), array, array.type)
    return None


def _by_value(array: pa.Array, source: PrimitiveType, transform: Transform[Any, Any]) -> pa.Array:
    """Apply the transform to each distinct value: for decimals, whose digits no vector instruction counts."""
    function = transform.transform(source)
    result = transform.result_type(source)
    assert isinstance(result, PrimitiveType)
    encoded = array.dictionary_encode()
    values = pa.array([function(value) for value in encoded.dictionary.to_pylist()], arrow_type(result))
    return values.take(encoded.indices)


def _numbers(array: pa.Array) -> np.ndarray[Any, Any]:
    """Return the values as integers, 0 where they are null."""
    return to_numpy(bits(array) if pa.types.is_temporal(array.type) else array)


def _with_nulls(values: np.ndarray[Any, Any], like: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.array(values.astype(type_.to_pandas_dtype()), type_, mask=null_mask(like))


def hash_longs(values: npt.NDArray[np.int64]) -> Hashes:
    """Return 32-bit Murmur3 hashes (x86 variant, seed 0; spec, Appendix B) of integers as the 8 bytes of a long."""
    words = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)
    return _finish(_mix(_mix(np.zeros(len(values), np.uint32), words[:, 0]), words[:, 1]), np.uint32(8))


def hash_bytes(array: pa.Array) -> Hashes:
    """Return 32-bit Murmur3 hashes of the values of a binary array; undefined where it is null."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    raw = array.buffers()[2]
    data = np.frombuffer(raw, np.uint8) if raw is not None and raw.size else np.zeros(1, np.uint8)
    sizes = np.diff(offsets)
    # Longest first, so that the rows that still have bytes are always in front.
    order = np.argsort(-sizes, kind="stable")
    found = np.empty(len(array), np.uint32)
    long = int(np.count_nonzero(sizes > _LONG))
    for row in order[:long].tolist():
        found[row] = mmh3.hash(data[offsets[row] : offsets[row + 1]].tobytes(), signed=False)
    rest = order[long:]
    found[rest] = _murmur(data, offsets[:-1][rest].astype(np.int64), sizes[rest])
    return found


def _murmur(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int32]) -> Hashes:
    state = np.zeros(len(starts), np.uint32)
    blocks = sizes // 4
    for block in range(int(blocks[0]) if len(blocks) else 0):
        here = int(np.searchsorted(-blocks, -block, "left"))  # rows of more blocks than this
        state[:here] = _mix(state[:here], _word(data, starts[:here] + 4 * block, 4))
    ends, tails = starts + 4 * blocks, sizes % 4
    for size in (1, 2, 3):
        rows = np.flatnonzero(tails == size)
        state[rows] ^= _scramble(_word(data, ends[rows], size))
    return _finish(state, sizes.astype(np.uint32))


def _word(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int) -> Hashes:
    """Return the bytes at each start as a little-endian number."""
    word = data[starts].astype(np.uint32)
    for byte in range(1, size):
        word |= data[starts + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mix(state: Hashes, word: Hashes) -> Hashes:
    return _rotate(state ^ _scramble(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _scramble(word: Hashes) -> Hashes:
    return _rotate(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotate(word: Hashes, by: int) -> Hashes:
    return (word << np.uint32(by)) | (word >> np.uint32(32 - by))


def _finish(state: Hashes, size: Any) -> Hashes:
    state = state ^ size
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))
