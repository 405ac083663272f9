"""Which delete files reach no data file any more: a strict rule for each scope."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.manifest import DataFileContent
from pyiceberg.table.metadata import TableMetadata

from producer.iceberg.manifest_reader import LiveFile
from producer.iceberg.partitions import PartitionKey, is_unpartitioned


class LiveData:
    """What there is of a snapshot's data files, as far as deletes are concerned; every data file is to be added.

    Args:
        metadata: The table's.
        deletes: The delete files that will be asked for.
    """

    def __init__(self, metadata: TableMetadata, deletes: Iterable[LiveFile]) -> None:
        self._unpartitioned = {spec.spec_id for spec in metadata.partition_specs if is_unpartitioned(spec)}
        self._missing = {path for delete in deletes if (path := delete.referenced_data_file) is not None}
        self._oldest: dict[PartitionKey, int] = {}
        self._oldest_of_all: int | None = None

    def add(self, file: LiveFile) -> None:
        """Note a live data file."""
        self.note(file.partition_key, file.sequence_number)
        if self._missing:
            self._missing.discard(file.path)

    def note(self, partition: PartitionKey, number: int) -> None:
        """Note that a partition has data files, the oldest with this data sequence number, for which no delete is."""
        if number < self._oldest.get(partition, number + 1):
            self._oldest[partition] = number
            if self._oldest_of_all is None or number < self._oldest_of_all:
                self._oldest_of_all = number

    def reached_by(self, delete: LiveFile) -> bool:
        """Whether a delete file may still apply to a data file.

        An equality delete does while its partition (under an unpartitioned spec: the table) has an older data file; a
        vector and a position delete for one data file, while that is live; another position delete, while its
        partition has a data file that is no newer.
        """
        if delete.content == DataFileContent.EQUALITY_DELETES:
            everywhere = delete.spec_id in self._unpartitioned
            oldest = self._oldest_of_all if everywhere else self._oldest.get(delete.partition_key)
            return oldest is not None and oldest < delete.sequence_number
        if (path := delete.referenced_data_file) is not None:
            return path not in self._missing
        oldest = self._oldest.get(delete.partition_key)
        return oldest is not None and oldest <= delete.sequence_number
