"""File formats: one implementation each, which alone knows how its files are read and written."""

from __future__ import annotations

import ast

import pytest
from pyiceberg.manifest import FileFormat

from tests.support.repository import REPOSITORY
from workers.formats.format_model import format_model

_PARQUET = REPOSITORY / "workers" / "formats" / "parquet"


def test_parquet_is_known_and_no_other_format() -> None:
    assert format_model(FileFormat.PARQUET).extension == "parquet"
    assert format_model(FileFormat.PARQUET) is format_model(FileFormat.PARQUET)
    for file_format in (FileFormat.AVRO, FileFormat.ORC, FileFormat.PUFFIN):
        with pytest.raises(KeyError):
            format_model(file_format)


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
