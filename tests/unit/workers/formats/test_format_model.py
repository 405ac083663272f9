"""File formats: one implementation each, which alone knows how its files are read and written."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tests.support.repository import REPOSITORY
from workers.arrow.schema import arrow_schema
from workers.formats.deletion_vector import DeletionVector
from workers.formats.format_model import format_model
from workers.formats.puffin import PuffinWriter

_PARQUET = REPOSITORY / "workers" / "formats" / "parquet"


def test_parquet_is_known_and_no_other_format() -> None:
    assert format_model(FileFormat.PARQUET).extension == "parquet"
    assert format_model(FileFormat.PARQUET) is format_model(FileFormat.PARQUET)
    for file_format in (FileFormat.AVRO, FileFormat.ORC, FileFormat.PUFFIN):
        with pytest.raises(KeyError):
            format_model(file_format)


def _write_vector(io: Any) -> None:
    with PuffinWriter(io, "s3://lake/new") as writer:
        writer.add_vector("a", DeletionVector.of([0]))


def _write_positions(io: Any) -> None:
    with format_model(FileFormat.PARQUET).create_position_deletes(io, "s3://lake/new", {}) as writer:
        writer.write("a", np.arange(3, dtype=np.int64))
        writer.close(0)


def _write_rows(io: Any) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    with format_model(FileFormat.PARQUET).create(io, "s3://lake/new", schema, {}, ()) as writer:
        writer.write(pa.table({"id": pa.array([1], pa.int64())}).cast(arrow_schema(schema)))


@pytest.mark.parametrize("write", [_write_vector, _write_positions, _write_rows])
def test_an_error_of_writing_names_the_file(write: Any) -> None:
    full = SimpleNamespace(create=lambda overwrite: pa.OSFile("/dev/full", "w"))
    with pytest.raises(OSError, match="No space left on device: 's3://lake/new'"):
        write(SimpleNamespace(new_output=lambda path: full, delete=lambda path: None))


def test_one_folder_alone_uses_the_parquet_module_of_arrow() -> None:
    users = {
        path
        for path in (REPOSITORY / "workers").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(alias.name == "pyarrow.parquet" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and str(node.module).startswith("pyarrow.parquet"))
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "pyarrow"
            and any(alias.name == "parquet" for alias in node.names)
        )
    }
    assert users
    assert {path.parent for path in users} == {_PARQUET}


def test_one_folder_alone_is_imported_by_the_registry() -> None:
    """Nothing above the formats names an implementation, but what loads it before Spark's workers are forked."""
    users = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "workers").rglob("*.py")
        if path.parent != _PARQUET and "workers.formats.parquet" in path.read_text()
    }
    assert users == {"workers/daemon.py", "workers/formats/format_model.py"}
