"""What the commit of a compaction keeps of a table's data files: of a million files a handful, and some numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile

from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.manifest_reader import ManifestKey, manifest_key, read_manifests
from producer.iceberg.partitions import PartitionKey


@dataclass(frozen=True)
class Digest:
    """What is kept of one data manifest."""

    #: The live files that were asked for, by path.
    files: dict[str, LiveFile] = field(default_factory=dict)
    #: The lowest data sequence number of the others, by partition.
    oldest: dict[PartitionKey, int] = field(default_factory=dict)


class Digests:
    """Reads each data manifest once, however many attempts a commit takes.

    Manifests that hold nothing but files with data sequence numbers above ``newest`` are left out: they came after
    what is asked for.

    Args:
        io: The table's file access.
        wanted: Paths of the files that are asked for.
        newest: The data sequence number of the newest file that matters.
    """

    def __init__(self, io: FileIO, wanted: frozenset[str], newest: int) -> None:
        self._io = io
        self._wanted = wanted
        self._newest = newest
        self._kept: dict[ManifestKey, Digest] = {}

    def of(self, manifests: Iterable[ManifestFile]) -> list[Digest]:
        """The digests of those manifests that matter."""
        matter = [
            m for m in manifests if m.content == ManifestContent.DATA and (m.min_sequence_number or 0) <= self._newest
        ]
        unknown = [m for m in matter if manifest_key(m) not in self._kept]
        files = read_manifests(self._io, unknown)
        # Files come manifest by manifest; of one without live files none does.
        read = {number: self._digest(group) for number, group in groupby(files, key=lambda file: id(file.manifest))}
        self._kept.update((manifest_key(m), read.get(id(m), Digest())) for m in unknown)
        return [self._kept[manifest_key(m)] for m in matter]

    def files(self, manifests: Iterable[ManifestFile]) -> Mapping[str, LiveFile]:
        """The files that were asked for, as far as they are live in some manifests, by path."""
        return {path: file for digest in self.of(manifests) for path, file in digest.files.items()}

    def _digest(self, files: Iterable[LiveFile]) -> Digest:
        digest = Digest()
        for file in files:
            if file.path in self._wanted:
                digest.files[file.path] = file
            else:
                key, number = file.partition_key, file.sequence_number
                digest.oldest[key] = min(number, digest.oldest.get(key, number))
        return digest
