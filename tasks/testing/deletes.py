"""Position delete files and deletion vectors, as row-level operations of other engines leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from producer.iceberg.manifest_entry import FILE_PATH_ID, NewFile, new_data_file
from producer.iceberg.partitions import PartitionKey
from workers.formats.deletion_vector import DeletionVector
from workers.formats.parquet.position_delete_writer import ParquetPositionDeleteWriter
from workers.formats.position_deletes import POS_ID
from workers.formats.puffin import PuffinWriter


@dataclass(frozen=True)
class Deleted:
    """Rows of one data file that are gone."""

    path: str
    spec_id: int
    partition: Record
    partition_key: PartitionKey
    #: Positions from 0, ascending and without repeats.
    positions: Sequence[int]


def write_position_deletes(
    io: FileIO,
    new_path: Callable[[Deleted], str],
    properties: Mapping[str, str],
    deleted: Iterable[Deleted],
    *,
    by_partition: bool,
) -> Iterator[NewFile]:
    """Write one position delete file for each data file, or for each partition (format version 2).

    Args:
        new_path: gives the path of the next file, for the first data file it names.
    """
    # Spec ids and tuples need not be comparable, their text is.
    ordered = sorted(deleted, key=lambda rows: (repr(rows.partition_key), rows.path))
    for _, group in groupby(ordered, key=lambda rows: repr(rows.partition_key) if by_partition else rows.path):
        files = list(group)
        with ParquetPositionDeleteWriter(io, new_path(files[0]), properties) as writer:
            for rows in files:
                writer.write(rows.path, np.unique(np.asarray(rows.positions, dtype=np.int64)))
            staged = writer.close(0)
        yield NewFile(
            new_data_file(
                content=DataFileContent.POSITION_DELETES,
                file_path=staged.path,
                file_format=FileFormat.PARQUET,
                partition=files[0].partition,
                record_count=staged.records,
                file_size_in_bytes=staged.size,
                column_sizes=staged.column_sizes,
                value_counts=dict.fromkeys((FILE_PATH_ID, POS_ID), staged.records),
                null_value_counts=dict.fromkeys((FILE_PATH_ID, POS_ID), 0),
                lower_bounds={
                    FILE_PATH_ID: staged.lower[0].encode(),
                    POS_ID: to_bytes(LongType(), staged.lower[1]),
                },
                upper_bounds={
                    FILE_PATH_ID: staged.upper[0].encode(),
                    POS_ID: to_bytes(LongType(), staged.upper[1]),
                },
                split_offsets=list(staged.split_offsets),
                referenced_data_file=None if by_partition else files[0].path,
            ),
            files[0].spec_id,
        )


def write_vectors(io: FileIO, path: str, deleted: Iterable[tuple[Deleted, DeletionVector]]) -> list[NewFile]:
    """Write the vectors of several data files into one Puffin file (format version 3)."""
    blobs = []
    with PuffinWriter(io, path) as writer:
        for rows, vector in deleted:
            blobs.append((rows, vector.cardinality, *writer.add_vector(rows.path, vector)))
        size = writer.close()
    return [
        NewFile(
            new_data_file(
                content=DataFileContent.POSITION_DELETES,
                file_path=path,
                file_format=FileFormat.PUFFIN,
                partition=rows.partition,
                record_count=cardinality,
                file_size_in_bytes=size,
                referenced_data_file=rows.path,
                content_offset=offset,
                content_size_in_bytes=length,
            ),
            rows.spec_id,
        )
        for rows, cardinality, offset, length in blobs
    ]
