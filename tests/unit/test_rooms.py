"""The rooms of each package: few, in one order, and nobody looks up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import REPOSITORY

#: The rooms of each package, from the ground up; "" is what lies in no room. A room imports those before it.
ROOMS: dict[str, tuple[str, ...]] = {
    "producer": ("common", "model", "storage", "iceberg", "state", "planning", "broker", "", "cli"),
    "tasks": ("messaging", "job", "operations", "lifecycle", "", "commands", "testing", "demo"),
    "workers": ("runtime", "model", "arrow", "formats", "deletes", "sorting", "operations", ""),
}
#: What of the package producer may be imported by workers.
SHARED = "producer.model"


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((REPOSITORY / package).rglob("*.py")):
        name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """The full names of what a file imports, wherever in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def _room(name: str, package: str) -> str:
    """The room that a module, or a name in one, lies in."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (REPOSITORY / package / parts[1]).is_dir() else ""


@pytest.mark.parametrize("package", ROOMS)
def test_every_folder_is_a_room_that_says_what_it_is_for(package: str) -> None:
    rooms = ROOMS[package]
    folders = {path.name for path in (REPOSITORY / package).iterdir() if (path / "__init__.py").exists()}
    assert folders == set(rooms) - {""}
    assert len(folders) <= 8
    for room in folders:
        doc = ast.get_docstring(ast.parse((REPOSITORY / package / room / "__init__.py").read_text()))
        assert doc is not None
        assert len([line for line in doc.splitlines() if line]) >= 3, f"{package}/{room}/__init__.py"


@pytest.mark.parametrize("package", ROOMS)
def test_a_room_imports_those_below_it_alone(package: str) -> None:
    order = ROOMS[package]
    wrong = [
        f"{name}, line {line}: {imported}"
        for name, path in _modules(package)
        for imported, line in _imports(path)
        if imported.startswith(f"{package}.")
        and order.index(_room(imported, package)) > order.index(_room(name, package))
    ]
    assert wrong == []


def test_workers_share_values_with_producers_and_nothing_else() -> None:
    wrong = [
        f"{name}, line {line}: {imported}"
        for name, path in _modules("workers")
        for imported, line in _imports(path)
        if imported.startswith(("producer", "tasks")) and not imported.startswith(f"{SHARED}.")
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ROOMS)
def test_no_two_modules_import_each_other(package: str) -> None:
    known = dict(_modules(package))
    edges = {
        name: {
            target
            for imported, _ in _imports(path)
            for target in (imported, imported.rpartition(".")[0])
            if target in known and target != name
        }
        for name, path in known.items()
    }
    while leaves := [name for name, targets in edges.items() if not targets & edges.keys()]:
        for name in leaves:
            del edges[name]
    assert not edges, f"a circle among {sorted(edges)}"
