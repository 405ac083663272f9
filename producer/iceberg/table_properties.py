"""The table properties that Icefleet honours, checked at planning, before a job begins.

Workers import only ``producer.model`` and read the properties that they use on their own; a test compares both.
Properties that are not listed here may have any text, or are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import parse_mapping_from_json

from producer.common.errors import Reason, Refused
from producer.storage.locations import LOCATION_PROPERTIES

MANIFEST_CODEC: Final = "write.manifest.compression-codec"
MANIFEST_LEVEL: Final = "write.manifest.compression-level"
MANIFEST_SIZE: Final = "commit.manifest.target-size-bytes"
MANIFEST_SIZE_DEFAULT: Final = 8 << 20
LOCATION_PROVIDER: Final = "write.py-location-provider.impl"

#: Iceberg's names of the codecs of manifests, and Avro's.
_MANIFEST_CODECS: Final = {"uncompressed": "null", "gzip": "deflate", "snappy": "snappy", "zstd": "zstandard"}
_MANIFEST_LEVELS: Final = {"deflate": range(10), "zstandard": range(-7, 23)}
_DATA_CODECS: Final = ("uncompressed", "gzip", "snappy", "zstd", "brotli", "lz4", "lz4_raw")
_DATA_LEVELS: Final = ("gzip", "zstd", "brotli")
_FILTER: Final = "write.parquet.bloom-filter-"

#: Raises ValueError with what a value must be, if it is not that.
_Check = Callable[[str], None]


def manifest_codec(properties: Mapping[str, str]) -> tuple[str, int | None]:
    """Return the Avro name of the codec of manifests and manifest lists, and its level.

    Raises:
        Refused: Iceberg has no such codec for manifests, or the codec has no such level.
    """
    name = properties.get(MANIFEST_CODEC, "gzip")
    codec = _MANIFEST_CODECS.get(name.lower())
    if codec is None:
        raise _refused(MANIFEST_CODEC, name, f"one of {', '.join(_MANIFEST_CODECS)}")
    level = properties.get(MANIFEST_LEVEL)
    levels = _MANIFEST_LEVELS.get(codec)
    if level is None or levels is None:
        return codec, None
    _check(properties, MANIFEST_LEVEL, _integer(levels, f"a level of {name}, {levels[0]} to {levels[-1]}"))
    return codec, int(level)


def manifest_size(properties: Mapping[str, str]) -> int:
    """Return the target size of a manifest in bytes.

    Raises:
        Refused: The property is not a number above 0.
    """
    _check(properties, MANIFEST_SIZE, _positive_long)
    return int(properties.get(MANIFEST_SIZE, MANIFEST_SIZE_DEFAULT))


def check_properties(metadata: TableMetadata, *, data_files: bool, delete_files: bool) -> None:
    """Check the table's location, and the properties that govern the data files and delete files of an operation.

    Raises:
        Refused: A property has a value that cannot be used; the sentence names both.
    """
    properties = metadata.properties
    try:
        _path(metadata.location)
    except ValueError as error:
        sentence = f"The table's location={metadata.location!r} is not {error}: move the table."
        raise Refused(Reason.CONFIGURATION, sentence) from error
    manifest_codec(properties)
    for name, check in _checks(metadata, data_files):
        _check(properties, name, check)
    if data_files:
        _check_compression(properties, ("write.parquet",))
    if delete_files:
        _check_compression(properties, ("write.delete.parquet", "write.parquet"))
    try:
        load_location_provider(metadata.location, properties)
    except Exception as error:  # it runs code that the table names
        value = properties.get(LOCATION_PROVIDER)
        if value is None:
            raise
        raise _refused(LOCATION_PROVIDER, value, f"a location provider that can be loaded ({error})") from error


def _checks(metadata: TableMetadata, data_files: bool) -> Iterator[tuple[str, _Check]]:
    yield MANIFEST_SIZE, _positive_long
    yield from ((name, _path) for name in LOCATION_PROPERTIES)
    yield "schema.name-mapping.default", _name_mapping
    yield "write.delete.granularity", _one_of("file", "partition")
    yield "write.object-storage.enabled", _boolean
    yield "write.object-storage.partitioned-paths", _boolean
    # What the catalogs that PyIceberg implements look at when they write metadata.
    yield "write.metadata.previous-versions-max", _int32
    yield "write.metadata.delete-after-commit.enabled", _boolean
    if not data_files:
        return
    yield "write.metadata.metrics.max-inferred-column-defaults", _int32
    for name in ("row-group-size-bytes", "row-group-limit", "page-size-bytes", "page-row-limit", "dict-size-bytes"):
        yield f"write.parquet.{name}", _positive_int
    yield "write.parquet.page-version", _one_of("v1", "v2")
    yield f"{_FILTER}max-bytes", _positive_int
    for column in metadata.schema().column_names:
        if metadata.properties.get(f"{_FILTER}enabled.column.{column}", "").lower() == "true":
            yield f"{_FILTER}fpp.column.{column}", _fraction
            yield f"{_FILTER}ndv.column.{column}", _positive_long


def _check(properties: Mapping[str, str], name: str, check: _Check) -> None:
    value = properties.get(name)
    if value is None:
        return
    try:
        check(value)
    except ValueError as error:
        raise _refused(name, value, str(error)) from error


def _check_compression(properties: Mapping[str, str], prefixes: tuple[str, ...]) -> None:
    """Check codec and level as workers read them: the first prefix that has the property wins."""
    codec_name, codec = _first_of(properties, prefixes, "compression-codec")
    if codec is not None and codec.lower() not in _DATA_CODECS:
        raise _refused(codec_name, codec, f"one of {', '.join(_DATA_CODECS)}")
    level_name, level = _first_of(properties, prefixes, "compression-level")
    codec = (codec or "zstd").lower()
    if level is None or codec not in _DATA_LEVELS:
        return
    import pyarrow as pa  # takes long to load, and an application that only enqueues does not need it

    try:
        pa.Codec(codec, compression_level=int(level))
    except (ValueError, OSError) as error:
        raise _refused(level_name, level, f"a level of {codec}") from error


def _first_of(properties: Mapping[str, str], prefixes: tuple[str, ...], name: str) -> tuple[str, str | None]:
    keys = [f"{prefix}.{name}" for prefix in prefixes]
    key = next((key for key in keys if key in properties), keys[-1])
    return key, properties.get(key)


def _refused(name: str, value: str, expected: str) -> Refused:
    shown = value if len(value) <= 100 else f"{value[:100]}…"
    return Refused(Reason.CONFIGURATION, f"The table's property {name}={shown!r} is not {expected}: change it.")


def _integer(allowed: range, expected: str) -> _Check:
    def check(text: str) -> None:
        with suppress(ValueError):
            if int(text) in allowed:
                return
        raise ValueError(expected)

    return check


_int32: Final = _integer(range(1 - (1 << 31), 1 << 31), "a whole number of 32 bits")
_positive_int: Final = _integer(range(1, 1 << 31), f"a whole number from 1 to {(1 << 31) - 1}")
_positive_long: Final = _integer(range(1, 1 << 63), f"a whole number from 1 to {(1 << 63) - 1}")


def _path(text: str) -> None:
    """Check a path. PyIceberg reads it as a URI and would cut it off at these characters: files would collide."""
    if "#" in text or "?" in text:
        raise ValueError("a path without '#' and '?', where PyIceberg cuts paths off")


def _fraction(text: str) -> None:
    with suppress(ValueError):
        if 0 < float(text) < 1 and 0 < 1 - float(text) ** (1 / 8) < 1:  # the size of a Bloom filter has it as divisor
            return
    raise ValueError("a number between 0 and 1, and not all but equal to one of them")


def _boolean(text: str) -> None:
    if text.lower() not in ("true", "false", "t", "f", "yes", "no", "y", "n", "on", "off", "1", "0"):
        raise ValueError("true or false")


def _one_of(*names: str) -> _Check:
    def check(text: str) -> None:
        if text.lower() not in names:
            raise ValueError(" or ".join(names))

    return check


def _name_mapping(text: str) -> None:
    try:
        parse_mapping_from_json(text)
    except ValueError as error:
        raise ValueError("a name mapping in JSON") from error
