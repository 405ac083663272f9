"""The JVM, a catalog that Icefleet opens, and a conversion between two looks through Java."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

pytest.register_assert_rewrite("tests.interop.checks", "tests.interop.compactions")

from producer import Fleet, Report  # noqa: E402
from tests.interop.bridge import CLASSES, JARS, JAVA, Bridge, JavaTable  # noqa: E402
from tests.interop.checks import Convert  # noqa: E402
from tests.interop.compactions import Compact  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is an interop test."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """Iceberg's Java implementation; skips where its jars or a JDK are missing."""
    home = os.environ.get("JAVA_HOME", "")
    java, javac = (shutil.which(name, path=f"{home}/bin") or shutil.which(name) for name in ("java", "javac"))
    if not (JARS / ".fetched").exists():
        pytest.skip("Iceberg's jars are not fetched: run `make test-interop`, which needs Maven")
    if java is None or javac is None:
        pytest.skip("no JDK (javac) to compile the interop program with: install one, such as openjdk-17-jdk-headless")
    sources = [str(path) for path in JAVA.glob("*.java")]
    subprocess.run([javac, "--release", "17", "-nowarn", "-d", CLASSES, "-cp", f"{JARS}/*", *sources], check=True)
    with (tmp_path_factory.mktemp("java") / "stderr").open("wb") as log:
        jvm = Bridge(java, log)
        yield jvm
        jvm.close()


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """Where a test's tables lie, as Hadoop writes a local address."""
    return f"file:{tmp_path}/warehouse"


@pytest.fixture
def maintain(spark: object, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Converts or compacts a Java table through a catalog of PyIceberg's, and moves it to what the catalog then has.

    ``meanwhile`` is what happens to the table when everything is staged and nothing is committed.
    """
    monkeypatch.setenv("ICEFLEET_BROKER_URL", "")
    catalog = load_catalog("default")
    catalog.create_namespace_if_not_exists("interop")

    def register(table: JavaTable) -> None:
        with suppress(NoSuchTableError):
            catalog.drop_table("interop.t")
        catalog.register_table("interop.t", table.metadata)

    def run(
        operation: str, table: JavaTable, meanwhile: Callable[[JavaTable], object] | None = None, **options: Any
    ) -> Report:
        def report_progress(done: int, of: int, detail: str) -> None:
            nonlocal meanwhile
            if meanwhile is not None and detail == "committing":
                action, meanwhile = meanwhile, None
                action(table)
                register(table)

        register(table)
        report: Report = getattr(Fleet(), operation)("interop.t", on_progress=report_progress, **options).wait()
        table.metadata = catalog.load_table("interop.t").metadata_location
        return report

    return run


@pytest.fixture
def convert(maintain: Callable[..., Report]) -> Convert:
    """Converts a table's equality deletes."""
    return partial(maintain, "convert")


@pytest.fixture
def compact(maintain: Callable[..., Report]) -> Compact:
    """Compacts a table."""
    return partial(maintain, "compact")
