"""Sizes and counts as people write and read them.

Sizes are in powers of 1024: ``128MB`` is 134,217,728 bytes, as in Spark.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB", "PB")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])(?:i?b)?|b)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """The bytes that a text such as ``134217728``, ``128MB``, ``128 MiB``, ``128m`` or ``1.5GB`` stands for.

    ``MB`` and ``MiB`` are the same here: 1,048,576 bytes. A part of a byte is cut off.

    Raises:
        ValueError: it is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or ("." in match[1] and match[2] is None):
        raise ValueError(f"{text!r} is no size: give bytes, or a size such as 128MB")
    power = _UNITS.index(f"{match[2].upper()}B") if match[2] else 0
    return int(Decimal(match[1]) * (1 << (10 * power)))


def size_text(size: int) -> str:
    """A number of bytes for a person: ``75 bytes``, ``512.0 MB``."""
    if size < 1024:
        return "1 byte" if size == 1 else f"{size} bytes"
    power = min((size.bit_length() - 1) // 10, len(_UNITS) - 1)
    if round(size / (1 << (10 * power)), 1) >= 1024 and power < len(_UNITS) - 1:
        power += 1
    return f"{size / (1 << (10 * power)):,.1f} {_UNITS[power]}"


def count_text(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, such as ``1 unit`` or ``1,200 units``.

    Args:
        number: The number.
        one: The noun in the singular.
        many: The noun in the plural, if it takes more than an s.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
