"""Metadata files that this process has read or written a moment ago: Iceberg never changes one under its name."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import OrderedDict
from typing import Final

#: Bytes of all files that are kept, and of one of them.
_MAX_BYTES: Final = 32 << 20
_MAX_FILE_BYTES: Final = 8 << 20
#: Seconds that a file is kept: a damaged one that somebody replaces is read again.
_MAX_AGE: Final = 300.0
#: Files whose names nobody uses twice: metadata, manifest lists and manifests with a UUID in them.
_UNIQUE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*(\.avro|\.metadata\.json)", re.IGNORECASE)


class MetadataCache:
    """The contents of metadata files, by location; what was used last stays longest."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all files."""
        self._lock = threading.Lock()
        self._files: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, location: str) -> bytes | None:
        """Return the contents of a file, or None if they are not here."""
        with self._lock:
            kept = self._files.get(location)
            if kept is None or time.monotonic() - kept[0] > _MAX_AGE:
                return None
            self._files.move_to_end(location)
            return kept[1]

    def add(self, location: str, contents: bytes) -> None:
        """Keep the contents of a file, unless it is large or its name may be used again."""
        if len(contents) > _MAX_FILE_BYTES or not is_metadata_file(location):
            return
        self.discard(location)
        with self._lock:
            self._files[location] = time.monotonic(), contents
            self._bytes += len(contents)
            while self._bytes > _MAX_BYTES:
                self._bytes -= len(self._files.popitem(last=False)[1][1])

    def discard(self, location: str) -> None:
        """Forget a file, which is deleted."""
        with self._lock:
            self._bytes -= len(self._files.pop(location, (0.0, b""))[1])


def is_metadata_file(location: str) -> bool:
    """Return whether a location is that of a metadata file that never changes."""
    return _UNIQUE.search(location.rpartition("/")[2]) is not None


METADATA_CACHE: Final = MetadataCache()

os.register_at_fork(after_in_child=METADATA_CACHE.reset)
