"""The JVM, a catalog that Icefleet opens, and a conversion between two looks through Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

# PyIceberg reads its configuration once, when it is imported.
CATALOG = "interop"
CATALOG_FOLDER = tempfile.TemporaryDirectory(prefix="icefleet-interop-")
os.environ[f"PYICEBERG_CATALOG__{CATALOG.upper()}__TYPE"] = "sql"
os.environ[f"PYICEBERG_CATALOG__{CATALOG.upper()}__URI"] = f"sqlite:///{CATALOG_FOLDER.name}/catalog.db"

pytest.register_assert_rewrite("tests.interop.checks")

from pyiceberg.catalog import load_catalog  # noqa: E402
from pyiceberg.exceptions import NoSuchTableError  # noqa: E402

from producer import Fleet, Report  # noqa: E402
from tests.interop.bridge import CLASSES, JARS, JAVA, Bridge, JavaTable  # noqa: E402
from tests.interop.checks import Convert  # noqa: E402


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
def convert(monkeypatch: pytest.MonkeyPatch) -> Convert:
    """Converts a Java table through a catalog of PyIceberg's, and moves it to what the catalog has afterwards."""
    monkeypatch.delenv("ICEFLEET_BROKER_URL", raising=False)
    catalog = load_catalog(CATALOG)
    catalog.create_namespace_if_not_exists("db")

    def run(table: JavaTable, **options: Any) -> Report:
        with suppress(NoSuchTableError):
            catalog.drop_table("db.t")
        catalog.register_table("db.t", table.metadata)
        report = Fleet().convert("db.t", catalog=CATALOG, **options).wait()
        table.metadata = catalog.load_table("db.t").metadata_location
        return report

    return run
