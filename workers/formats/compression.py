"""How table properties choose the compression of Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

#: Iceberg's names of codecs and Arrow's.
_CODECS: Final = {
    "uncompressed": "none",
    "gzip": "gzip",
    "snappy": "snappy",
    "zstd": "zstd",
    "brotli": "brotli",
    "lz4": "lz4",
    "lz4_raw": "lz4",
}
_CODECS_WITH_LEVELS: Final = frozenset({"gzip", "zstd", "brotli"})
#: What Iceberg's Java writer takes where the table names no level. Arrow's own level of zstd is 1: larger files.
_USUAL_LEVELS: Final = {"zstd": 3}


def data_compression(properties: Mapping[str, str]) -> tuple[str, int | None]:
    """Return Arrow's codec and level for data files.

    ``write.parquet.compression-codec`` and ``-level`` choose them; without, it is zstd at level 3, as in Iceberg.

    :raises ValueError: when the codec or its level does not exist.
    """
    return _compression(properties, "write.parquet")


def delete_compression(properties: Mapping[str, str]) -> tuple[str, int | None]:
    """Return Arrow's codec and level for delete files.

    ``write.delete.parquet.compression-codec`` and ``-level`` come first, then the same of ``write.parquet``, then zstd
    at level 3, as in Iceberg.

    :raises ValueError: when the codec or its level does not exist.
    """
    return _compression(properties, "write.delete.parquet", "write.parquet")


def _compression(properties: Mapping[str, str], *prefixes: str) -> tuple[str, int | None]:
    name = _property(properties, prefixes, "compression-codec") or "zstd"
    codec = _CODECS.get(name.lower())
    if codec is None:
        raise ValueError(f"the Parquet compression codec {name} is not one of {', '.join(_CODECS)}")
    level = _property(properties, prefixes, "compression-level")
    if level is None or codec not in _CODECS_WITH_LEVELS:
        return codec, _USUAL_LEVELS.get(codec)
    try:
        pa.Codec(codec, compression_level=int(level))
    except (ValueError, OSError) as error:
        raise ValueError(f"the Parquet compression codec {name} has no level {level}") from error
    return codec, int(level)


def _property(properties: Mapping[str, str], prefixes: tuple[str, ...], name: str) -> str | None:
    """Return the property under the first prefix that has it."""
    return next((properties[key] for prefix in prefixes if (key := f"{prefix}.{name}") in properties), None)
