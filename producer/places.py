"""Where the files of a table may lie: what a record or a message names elsewhere is neither committed nor deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from pyiceberg.table.metadata import TableMetadata

#: Properties by which a table has its files elsewhere than below its location.
_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True, slots=True)
class Places:
    """Folders, below which all files of one table are written."""

    roots: tuple[str, ...]

    @classmethod
    def of(cls, metadata: TableMetadata) -> Self:
        """Those of a table."""
        named = (metadata.properties.get(name) for name in _PROPERTIES)
        return cls.at(metadata.location, *(root for root in named if root))

    @classmethod
    def at(cls, *roots: str) -> Self:
        """Those of a table that is gone, as far as they are known."""
        return cls(tuple(_plain(root) for root in roots))

    def hold(self, path: str) -> bool:
        """Whether a path lies in one of them, and nothing in it leads out again."""
        plain = _plain(path)
        return ".." not in plain.split("/") and any(plain.startswith(f"{root}/") for root in self.roots)


def _plain(path: str) -> str:
    """One spelling of the several that local paths have."""
    local = path.removeprefix("file://").removeprefix("file:") if path.startswith("file:") else path
    return local.rstrip("/")
