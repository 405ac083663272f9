"""Figures as people read them."""

from __future__ import annotations

from collections.abc import Sequence

#: For what is not known.
NOTHING = "–"


def seconds(value: float | None) -> str:
    """Milliseconds below one second, minutes above two hundred."""
    if value is None:
        return NOTHING
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 10:
        return f"{value:.2f} s"
    if value < 200:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min"


def size(value: float | None) -> str:
    """Bytes in the decimal unit that leaves one to three digits."""
    if value is None:
        return NOTHING
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB" if value < 100 else f"{value:,.0f} GB"


def times(value: float | None) -> str:
    """A ratio."""
    if value is None:
        return NOTHING
    if value >= 100:
        return f"{value:,.0f} ×"
    return f"{value:.1f} ×" if value >= 10 else f"{value:.2f} ×"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> list[str]:
    """Lines of a Markdown table; the first columns hold words, the others numbers."""
    rule = ["---" if number < words else "---:" for number in range(len(head))]
    return ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in (head, rule, *rows)]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
