"""Sizes and counts as text. Units are powers of 1024: ``128MB`` is 134,217,728 bytes, as in Spark."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB", "PB")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])(?:i?b)?|b)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return the bytes of a size such as ``134217728``, ``128MB``, ``128 MiB``, ``128m`` or ``1.5GB``, rounded down.

    Raises:
        ValueError: The text is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or ("." in match[1] and match[2] is None):
        raise ValueError(f"{text!r} is no size: give bytes, or a size such as 128MB")
    power = _UNITS.index(f"{match[2].upper()}B") if match[2] else 0
    return int(Decimal(match[1]) * (1 << (10 * power)))


def size_text(size: int) -> str:
    """Return bytes as text, such as ``75 bytes`` or ``512.0 MB``."""
    if size < 1024:
        return "1 byte" if size == 1 else f"{size} bytes"
    power = min((size.bit_length() - 1) // 10, len(_UNITS) - 1)
    if round(size / (1 << (10 * power)), 1) >= 1024 and power < len(_UNITS) - 1:
        power += 1
    return f"{size / (1 << (10 * power)):,.1f} {_UNITS[power]}"


def count_text(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, such as ``1 unit`` or ``1,200 units``; ``many`` is a plural without an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
