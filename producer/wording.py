"""Wording that messages share."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun, as ``1 unit`` or ``1,200 units``.

    Args:
        number: How many.
        one: The noun in the singular.
        many: The noun in the plural, where it takes more than an s.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
