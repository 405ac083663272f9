"""How table properties choose the layout of Parquet files (``write.parquet.*`` as of Iceberg 1.11).

Honoured: ``compression-codec``, ``compression-level``, ``page-size-bytes``, ``page-row-limit``, ``page-version``,
``dict-size-bytes``, ``bloom-filter-enabled.column.*``, ``bloom-filter-fpp.column.*``, ``bloom-filter-ndv.column.*``,
``bloom-filter-max-bytes``, ``stats-enabled.column.*``, and ``parquet.enable.dictionary``. ``row-group-size-bytes`` is
honoured where row groups are made.

Not honoured: ``row-group-check-min-record-count`` and ``-max-record-count``, which tell Iceberg's Java writer how often
to measure a row group, and ``shred-variants`` and ``variant-inference-buffer-size``, as variants are not written. With
``page-version`` v2 pages have that layout, but encodings stay those of v1. ``stats-enabled`` is about the statistics in
Parquet's footer and page index alone: metrics follow ``write.metadata.metrics.*``.

UUID columns have no statistics in the footer, whatever the table says. Parquet orders UUIDs as bytes, Iceberg's Java
implementation compares them as pairs of signed numbers and skips row groups that have the values it wants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

from workers.arrow.fields import Leaf

_PREFIX: Final = "write.parquet."
_PAGE_VERSIONS: Final = {"v1": "1.0", "v2": "2.0"}
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
#: Values that Arrow writes between two checks of a page's size, unless values are large.
_CHECK_VALUES: Final = 1024
#: Where pages are to have 6 bytes or fewer, Arrow writes a list that is alone in its row group and has a dictionary so
#: that Arrow reads no row back. Pages of less than this are mostly headers anyway.
_MIN_PAGE_BYTES: Final = 1 << 10
_MIN_FILTER_BYTES: Final = 32
#: Rows that decide whether values repeat.
_SAMPLED_ROWS: Final = 1 << 16


def compression(properties: Mapping[str, str], prefixes: Sequence[str] = ("write.parquet",)) -> tuple[str, int | None]:
    """Return Arrow's codec and level.

    ``compression-codec`` and ``compression-level`` under the first prefix that has them choose these; without, it is
    zstd at level 3, as in Iceberg.

    Raises:
        ValueError: the codec or its level does not exist.
    """
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


@dataclass(frozen=True, slots=True)
class BloomFilterOptions:
    """The Bloom filter of one column, as Arrow is asked for it."""

    false_positives: float
    #: Distinct values that a filter of the largest size distinguishes, or as many as the table says.
    distinct: int
    #: Whether there may be more values than rows.
    repeated: bool

    def size(self, rows: int) -> int:
        """Return its bytes in a row group, without the header: a power of two, which Arrow halves while it can."""
        distinct = self.distinct if self.repeated else max(1, min(self.distinct, rows))
        bits = -8 * distinct / math.log(1 - self.false_positives ** (1 / 8))
        return 1 << math.ceil(math.log2(max(_MIN_FILTER_BYTES, bits / 8)))


@dataclass(frozen=True, slots=True)
class WriteProperties:
    """Codec, pages, dictionaries, statistics and Bloom filters of a file."""

    #: Arguments of ``pyarrow.parquet.ParquetWriter`` that do not depend on what is written.
    fixed: Mapping[str, Any]
    page_bytes: int
    dictionary: bool
    #: Paths of all columns.
    paths: tuple[str, ...]
    #: By path.
    filters: Mapping[str, BloomFilterOptions]

    @classmethod
    def of(cls, properties: Mapping[str, str], schema: Schema, columns: Mapping[int, Leaf]) -> WriteProperties:
        """Return the layout that table properties ask for, without what they say of columns that are not written.

        Raises:
            ValueError: a property has a value that it cannot have; the text names it.
        """
        codec, level = compression(properties)
        version = properties.get(f"{_PREFIX}page-version", "v1").lower()
        if version not in _PAGE_VERSIONS:
            raise ValueError(f"{_PREFIX}page-version is {version}, not v1 or v2")
        named = {str(schema.find_column_name(field_id)): column for field_id, column in columns.items()}
        statistics = [
            column.name
            for name, column in named.items()
            if not isinstance(schema.find_type(name), UUIDType) and _flag(properties, "stats-enabled", name, True)
        ]
        filters = {
            column.name: _filter(properties, name, repeated=not column.path)
            for name, column in named.items()
            # Arrow has none for truth values.
            if _flag(properties, "bloom-filter-enabled", name, False) and not pa.types.is_boolean(column.type)
        }
        paths = tuple(column.name for column in columns.values())
        page_bytes = max(_MIN_PAGE_BYTES, _positive(properties, "page-size-bytes", 1 << 20))
        fixed = {
            "compression": codec,
            "compression_level": level,
            "data_page_size": page_bytes,
            "max_rows_per_page": _positive(properties, "page-row-limit", 20_000),
            "data_page_version": _PAGE_VERSIONS[version],
            "dictionary_pagesize_limit": _positive(properties, "dict-size-bytes", 2 << 20),
            "write_statistics": True if len(statistics) == len(paths) else statistics,
            "bloom_filter_options": {
                path: {"ndv": options.distinct, "fpp": options.false_positives} for path, options in filters.items()
            }
            or None,
        }
        dictionary = properties.get("parquet.enable.dictionary", "true").lower() == "true"
        return cls(fixed, page_bytes, dictionary, paths, filters)

    def options(self, table: pa.Table) -> dict[str, Any]:
        """Return the layout as arguments of ``pyarrow.parquet.ParquetWriter``, by the first row group."""
        return {
            **self.fixed,
            "use_dictionary": self._dictionaries(table) if self.dictionary else False,
            "write_batch_size": self._check_interval(table),
        }

    def filter_bytes(self, rows: int) -> int:
        """Return the bytes that Bloom filters add to a row group of so many rows, at most."""
        return sum(options.size(rows) for options in self.filters.values())

    def _dictionaries(self, table: pa.Table) -> list[str]:
        """Return the paths of columns whose values repeat; of others Arrow would write values and indexes."""
        rows = table.slice(0, _SAMPLED_ROWS)
        without = {column.name for column in rows.schema if not _repeats(rows.column(column.name))}
        return [path for path in self.paths if path not in without]

    def _check_interval(self, table: pa.Table) -> int:
        """Return how many values may be added to a page before its size is checked: the larger, the fewer."""
        largest = max((column.nbytes for column in table.columns), default=0) / max(1, table.num_rows)
        return int(min(_CHECK_VALUES, max(1, self.page_bytes // max(1, largest))))


def _repeats(column: pa.ChunkedArray) -> bool:
    """Return whether a dictionary of the values, and their indexes, take less than the values; True if nested."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type) or not len(column):
        return True
    distinct = column.unique()
    indexes = len(column) * max(1, (len(distinct) - 1).bit_length()) / 8
    return bool(_bytes(distinct) + indexes < _bytes(column))


def _bytes(values: pa.Array | pa.ChunkedArray) -> int:
    """Return the bytes that values take in a page: texts have their length before them."""
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return int(pc.sum(pc.binary_length(values)).as_py() or 0) + 4 * len(values)
    return int(values.type.bit_width // 8 * len(values))


def _filter(properties: Mapping[str, str], name: str, *, repeated: bool) -> BloomFilterOptions:
    max_bytes = _positive(properties, "bloom-filter-max-bytes", 1 << 20)
    key = f"{_PREFIX}bloom-filter-fpp.column.{name}"
    false_positives = _number(properties, key, 0.01)
    if not 0 < false_positives < 1:
        raise ValueError(f"{key} is {properties[key]}, not between 0 and 1")
    # Java's writer takes the power of two that is not above the limit, too.
    bits = 8 << max(_MIN_FILTER_BYTES, max_bytes).bit_length() - 1
    false_positives = max(false_positives, (1 - math.exp(-8 / bits)) ** 8)  # what such a filter has of one value
    room = max(1, int(-bits * math.log(1 - false_positives ** (1 / 8)) / 8))
    return BloomFilterOptions(
        false_positives, min(room, _positive(properties, f"bloom-filter-ndv.column.{name}", room)), repeated
    )


def _flag(properties: Mapping[str, str], kind: str, name: str, default: bool) -> bool:
    return properties.get(f"{_PREFIX}{kind}.column.{name}", str(default)).lower() == "true"


def _positive(properties: Mapping[str, str], name: str, default: int) -> int:
    value = _number(properties, _PREFIX + name, default)
    if value < 1 or value != int(value):
        raise ValueError(f"{_PREFIX}{name} is {properties[_PREFIX + name]}, not a whole number above 0")
    return int(value)


def _number(properties: Mapping[str, str], key: str, default: float) -> float:
    try:
        return float(properties.get(key, default))
    except ValueError as error:
        raise ValueError(f"{key} is {properties[key]}, not a number") from error


def _property(properties: Mapping[str, str], prefixes: Sequence[str], name: str) -> str | None:
    """Return the property under the first prefix that has it."""
    return next((properties[key] for prefix in prefixes if (key := f"{prefix}.{name}") in properties), None)
