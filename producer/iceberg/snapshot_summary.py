"""Snapshot summaries: the counts of a change, and the totals after it.

The names and their meaning are the reference implementation's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from producer.iceberg.manifest_entry import DATA_FILE_POSITIONS
from producer.iceberg.partitions import PartitionKey

_CONTENT_SIZE: Final = DATA_FILE_POSITIONS["content_size_in_bytes"]

#: Each total, the count that adds to it and the count that is subtracted.
_TOTALS: Final = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)


def summarize(
    added: Iterable[tuple[PartitionKey, DataFile]],
    removed: Iterable[tuple[PartitionKey, DataFile]],
    parent: Mapping[str, str] | None,
) -> dict[str, str]:
    """Return the summary of a change without its operation; counts of zero are left out, totals are not.

    A total is the parent's, plus what is added, minus what is removed. If the parent lacks a total, so does the new
    summary; without a parent the totals start from zero.

    Args:
        added: Each added file with its partition.
        removed: Each removed file with its partition.
        parent: The parent snapshot's summary, empty if it has none; None for the first snapshot.
    """
    counts: Counter[str] = Counter()
    partitions = set()
    for sign, files in (("added", added), ("removed", removed)):
        for key, data_file in files:
            counts.update(_counts(sign, data_file))
            partitions.add(key)
    summary = {name: str(count) for name, count in counts.items() if count > 0}
    summary["changed-partition-count"] = str(len(partitions))
    for total, plus, minus in _TOTALS:
        before = 0 if parent is None else _number(parent.get(total))
        if before is not None and (after := before + counts[plus] - counts[minus]) >= 0:
            summary[total] = str(after)
    return summary


def content_size(data_file: DataFile) -> int:
    """Return the bytes that a file counts for: for a vector only its blob, since vectors share a Puffin file."""
    blob: int | None = data_file[_CONTENT_SIZE]
    return data_file.file_size_in_bytes if blob is None else blob


def _counts(sign: str, data_file: DataFile) -> dict[str, int]:
    size = {f"{sign}-files-size": content_size(data_file)}
    if data_file.content == DataFileContent.DATA:
        verb = "added" if sign == "added" else "deleted"
        return {**size, f"{verb}-data-files": 1, f"{verb}-records": data_file.record_count}
    if data_file.content == DataFileContent.EQUALITY_DELETES:
        kind, deletes = "equality-delete-files", "equality-deletes"
    elif data_file.file_format == FileFormat.PUFFIN:
        kind, deletes = "dvs", "position-deletes"
    else:
        kind, deletes = "position-delete-files", "position-deletes"
    return {
        **size,
        f"{sign}-delete-files": 1,
        f"{sign}-{kind}": 1,
        f"{sign}-{deletes}": data_file.record_count,
    }


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
