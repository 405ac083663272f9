"""What is shipped: pinned names, entry points that resolve, imports in one direction, units that systemd takes."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from producer.common.settings import Settings
from tests.support.repository import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
UNITS = sorted((REPOSITORY / "deploy").glob("*.service"))

#: What is shipped.
SHIPPED = {"producer", "tasks", "workers"}
#: Whom a package may import of these.
ALLOWED = {
    "producer": {"producer", "icefleet_main"},
    "icefleet_main.py": {"producer"},
    "workers": {"workers", "producer"},
    "tasks": SHIPPED,
    "bench": SHIPPED | {"bench"},
}


def _pins() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_constraints_name_packages_and_versions_only() -> None:
    for name, version in _pins().items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
        assert re.fullmatch(r"[0-9][A-Za-z0-9.+]*", version), name


def _needed(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """The names of all that a distribution asks for here, and what those ask for."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    yield name
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield from _needed(canonicalize_name(requirement.name), frozenset(requirement.extras), seen)


def test_everything_that_is_installed_is_pinned() -> None:
    pinned = {canonicalize_name(name): version for name, version in _pins().items()}
    needed = set(_needed("icefleet", frozenset({"dev"}), set())) - {"icefleet"}
    assert needed <= pinned.keys()
    assert {name: metadata.version(name) for name in needed} == {
        name: pinned[canonicalize_name(name)] for name in needed
    }


@pytest.mark.parametrize("group", ["icefleet.engines", "icefleet.commands"])
def test_entry_points_resolve(group: str) -> None:
    declared = PROJECT["project"]["entry-points"][group]
    found = {point.name: point for point in metadata.entry_points(group=group)}
    assert {name: point.value for name, point in found.items()} == declared
    for point in found.values():
        assert callable(point.load())


def _modules(part: str) -> list[Path]:
    """The files of a package, or of a module that is named with its ending."""
    path = REPOSITORY / part
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _imports(package: str) -> Iterator[tuple[str, str]]:
    """Top-level names that a package imports, each with where."""
    for path in _modules(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            for name in names:
                yield name.partition(".")[0], f"{path.relative_to(REPOSITORY)}, line {node.lineno}"


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_know_each_other_in_one_direction(package: str) -> None:
    known = {name.removesuffix(".py") for name in ALLOWED}
    assert [where for name, where in _imports(package) if name in known - ALLOWED[package]] == []


#: The one module that may depend on how PyIceberg works inside.
INTERNALS = "producer/iceberg/pyiceberg_metadata.py"


def _uses_of_internals(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield uses of PyIceberg's private names and local variables, and assignments to its attributes."""
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pyiceberg":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            if any(name.startswith("_") for name in names):
                yield node
            imported |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
            if node.attr.startswith("_") or isinstance(node.ctx, ast.Store):
                yield node
        elif (isinstance(node, ast.Attribute) and node.attr == "f_locals") or (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).split(".")[0] in imported
            and any((keyword.arg or "").startswith("_") for keyword in node.keywords)
        ):
            yield node


def test_one_module_depends_on_the_inside_of_pyiceberg() -> None:
    found = {
        str(path.relative_to(REPOSITORY))
        for package in SHIPPED
        for path in _modules(package)
        if any(_uses_of_internals(ast.parse(path.read_text())))
    }
    assert found == {INTERNALS}


#: Whose modules an extra is for; a module belongs to the last that it fits.
EXTRAS: dict[str, tuple[str, ...]] = {
    "icefleet_main.py": (),
    "producer": (),
    "workers": ("worker",),
    "tasks": ("worker",),
    "tasks/testing": ("worker", "sqlite"),
    "tasks/testing/reader.py": ("demo",),
    "tasks/demo": ("demo",),
    # What keeps the time, or only looks on, has neither Spark nor numpy.
    **dict.fromkeys(
        (
            "tasks/application.py",
            "tasks/commands/beat.py",
        ),
        (),
    ),
    "tasks/messaging/base_task.py": (),
    "tasks/messaging/transport.py": (),
    "tasks/commands/flower.py": ("flower",),
    "tests": ("worker", "demo", "flower", "test"),
    "bench": ("worker", "demo", "bench"),
}
#: Imported as a part of what is declared: of pyiceberg[pyarrow], of celery, of pyspark, of flower.
PARTS = {"pyarrow", "kombu", "py4j", "tornado"}


def _lines(extras: tuple[str, ...]) -> Iterator[Requirement]:
    """What the package and some of its extras ask for, those that an extra takes in included."""
    project = PROJECT["project"]
    for line in project["dependencies"]:
        yield Requirement(line)
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            requirement = Requirement(line)
            if requirement.name == "icefleet":
                yield from _lines(tuple(requirement.extras))
            else:
                yield requirement


@pytest.mark.parametrize("part", EXTRAS)
def test_what_is_imported_is_declared_by_the_extra(part: str) -> None:
    lines = list(_lines(EXTRAS[part]))
    required = {
        canonicalize_name(name)
        for line in lines
        for name in _needed(canonicalize_name(line.name), frozenset(line.extras), set())
    }
    declared = {canonicalize_name(line.name) for line in lines} | (PARTS & required)
    distributions = metadata.packages_distributions()
    own = {*(name.removesuffix(".py") for name in ALLOWED), "tests"}
    others = [other for other in EXTRAS if other.startswith(f"{part}/")]
    undeclared = [
        (name, where)
        for name, where in _imports(part)
        if name not in sys.stdlib_module_names and name not in own and not where.startswith(tuple(others))
        if not declared & {canonicalize_name(owner) for owner in distributions.get(name, ())}
    ]
    assert undeclared == []


def test_the_transport_of_redis_is_declared() -> None:
    """Whoever enqueues needs all that Celery's transport imports: kombu requires it by its extra alone."""
    required = {
        canonicalize_name(name)
        for line in _lines(())
        for name in _needed(canonicalize_name(line.name), frozenset(line.extras), set())
    }
    transport = {Requirement(text).name for text in metadata.requires("kombu") or () if "redis" in text}
    assert "packaging" in transport
    assert transport <= required


def test_what_needs_no_extra_loads_nothing_of_one() -> None:
    """Flower and beat start with their own extra; what they load may not come from the one of workers."""
    loads = ["application", "commands.beat", "commands.flower", "messaging.base_task", "messaging.transport"]
    code = f"import sys, {', '.join(f'tasks.{name}' for name in loads)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pyspark", "py4j", "pandas", "psutil", "workers", "tornado"}


def test_a_producer_needs_nothing_of_a_worker() -> None:
    core = {canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]}
    assert not core & {"pyspark", "pandas", "psutil", "flower"}
    code = "import sys; from producer import Fleet, Job; import producer.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pyspark", "py4j", "pandas", "psutil", "flower", "tasks", "workers"}


def test_a_wheel_holds_the_packages_and_their_types_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "icefleet_main.py"):
        shutil.copy(REPOSITORY / name, source)
    for package in (*SHIPPED, "bench", "tests", "deploy"):
        shutil.copytree(REPOSITORY / package, source / package, ignore=shutil.ignore_patterns("__pycache__", "java"))
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
        source,
    ]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"icefleet-{PROJECT['project']['version']}-py3-")
    names = subprocess.run([sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True, check=True)
    held = {line.split()[0] for line in names.stdout.splitlines()[1:]}
    tops = {name.partition("/")[0] for name in held if ".dist-info/" not in name}
    assert tops == {*SHIPPED, "icefleet_main.py"}
    assert {f"{package}/py.typed" for package in SHIPPED} <= held, "types are there for whoever installs it"
    modules = {
        str(path.relative_to(REPOSITORY)) for package in SHIPPED for path in (REPOSITORY / package).rglob("*.py")
    }
    assert modules <= held


def test_the_image_is_built_from_what_there_is() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    sources = set()
    for line in (REPOSITORY / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            sources |= set(line.split()[1:-1])
    for source in sources:
        assert (REPOSITORY / source).exists()
        assert f"!{source}" in ignored
    assert "USER icefleet" in (REPOSITORY / "Dockerfile").read_text()


def _options(unit: Path) -> dict[str, str]:
    lines = unit.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_drain_and_are_capped(unit: Path) -> None:
    options = _options(unit)
    assert options["KillSignal"] == "SIGTERM"
    assert options["KillMode"] == "mixed"
    assert options["MemoryMax"]
    assert (options["StartLimitIntervalSec"], options["RestartPreventExitStatus"]) == ("0", "2")
    if " worker " in options["ExecStart"]:
        assert int(options["TimeoutStopSec"]) >= Settings.model_fields["shutdown_seconds"].default + 30


def test_units_run_what_compose_runs() -> None:
    compose = (REPOSITORY / "docker-compose.yml").read_text()
    composed = " ".join(re.sub(r"[][\",]+", " ", compose).split())
    for unit in UNITS:
        command = _options(unit)["ExecStart"].replace("%%", "%").removeprefix("/opt/icefleet/bin/")
        assert " ".join(command.replace(",", " ").split()) in composed


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/icefleet/bin/", "/bin/true "))
    done = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, said) == (0, []), done.stderr


@pytest.mark.parametrize("example", [".env.example", "deploy/icefleet.env.example"])
def test_examples_name_settings_that_exist(example: str) -> None:
    known = {f"ICEFLEET_{name.upper()}" for name in Settings.model_fields}
    named = set(re.findall(r"^#?(ICEFLEET_\w+)=", (REPOSITORY / example).read_text(), re.MULTILINE))
    assert named
    assert named <= known
