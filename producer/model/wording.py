"""Wording that messages share."""

from __future__ import annotations

from producer.common.sizes import size_text
from producer.model.job import Report


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun, as ``1 unit`` or ``1,200 units``.

    Args:
        number: How many.
        one: The noun in the singular.
        many: The noun in the plural, where it takes more than an s.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def conversion_text(report: Report) -> str:
    """What a conversion that committed has changed."""
    removed = counted(report.removed_equality_delete_files, "equality delete file")
    added = [
        counted(number, noun)
        for number, noun in (
            (report.added_dvs, "deletion vector"),
            (report.added_position_delete_files, "position delete file"),
        )
        if number
    ]
    if not added:
        return f"{removed} removed, no vectors or position deletes needed: no row is left that they delete"
    return f"{removed} became {' and '.join(added)} with {counted(report.added_position_deletes, 'position')}"


def compaction_text(report: Report) -> str:
    """What a compaction that committed has changed."""
    return (
        f"{counted(report.rewritten_data_files, 'data file')} became {report.added_data_files:,}, "
        f"{size_text(report.removed_bytes)} became {size_text(report.added_bytes)}, "
        f"{counted(report.removed_delete_files, 'delete file')} removed"
    )
