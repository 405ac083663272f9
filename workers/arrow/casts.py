"""Values of one column from the type that a file has them in to the table's: promotions, and what writers differ in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from workers.arrow.canonical import canonical_array, canonical_value
from workers.arrow.schema import arrow_type


def cast(source: pa.DataType, type_: PrimitiveType) -> Callable[[pa.Array], pa.Array]:
    """What turns arrays of a file's type into arrays of the table's; no value is changed on the way.

    What it returns raises ValueError where the file's type is neither the table's nor one that may have been promoted
    to it (spec, Schema Evolution).
    """
    target = arrow_type(type_)
    if source == target:
        return lambda array: array
    if isinstance(type_, FloatType | DoubleType):
        return lambda array: _widened(array, target)  # its canonical form would lose what kind of NaN it is
    return lambda array: canonical_array(array, type_).cast(target)


def arrow_scalar(value: Any, type_: PrimitiveType) -> pa.Scalar:
    """A value of a default or of a partition tuple, in any form that PyIceberg gives it, as a scalar of the column."""
    target = arrow_type(type_)
    if isinstance(type_, FloatType | DoubleType):
        return pa.scalar(float(value), target)
    return canonical_value(value, type_).cast(target)


def _widened(array: pa.Array, target: pa.DataType) -> pa.Array:
    if not pa.types.is_floating(array.type) or array.type.bit_width > target.bit_width:
        raise ValueError(f"holds {array.type} where the table has {target}")
    return array.cast(target)
