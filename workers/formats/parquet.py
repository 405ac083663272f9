"""Opening Parquet files, and telling a file that is broken from storage that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.io import FileIO

from workers.formats.batch_decoder import STREAM_BYTES, BoundedFile
from workers.runtime.errors import CorruptFile, UnsupportedFile

_OTHER_FORMATS = {b"Obj\x01": "an Avro file", b"ORC": "an ORC file", b"PARE": "an encrypted Parquet file"}


@contextmanager
def open_parquet(io: FileIO, path: str, *, int96_unit: str = "us") -> Iterator[BoundedFile]:
    """A Parquet file to read from; errors raised inside the block are told apart as well.

    CorruptFile where the file is missing or cannot be decoded, UnsupportedFile where it is of another format. Errors
    of the storage are raised as they are: they may pass.
    """
    try:
        with (
            io.new_input(path).open() as source,
            BoundedFile(
                source,
                coerce_int96_timestamp_unit=int96_unit,
                page_checksum_verification=True,  # where the writer left checksums, as Iceberg's own does
            ) as file,
        ):
            yield file
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    except pa.ArrowInvalid as error:
        raise _undecodable(io, path, error) from error
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFile(path, f"Arrow does not read such Parquet ({_line(error)})") from error
    except OSError as error:
        # Arrow raises OSError without a number both for bad bytes and for a storage that fails.
        # It was the bytes if all of them can be read.
        if error.errno is not None or not _is_readable(io, path):
            raise
        raise _undecodable(io, path, error) from error


def _undecodable(io: FileIO, path: str, error: Exception) -> CorruptFile | UnsupportedFile:
    with io.new_input(path).open() as source:
        start = source.read(4)
    for magic, name in _OTHER_FORMATS.items():
        if start.startswith(magic):
            return UnsupportedFile(path, f"it is {name}; only Parquet is read")
    return CorruptFile(path, f"it cannot be read as Parquet ({_line(error)})")


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _is_readable(io: FileIO, path: str) -> bool:
    try:
        with io.new_input(path).open() as source:
            while source.read(STREAM_BYTES):
                pass
    except OSError:
        return False
    return True
