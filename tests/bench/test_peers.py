"""The peers' environment, as far as it can be tested without fetching it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import environment
from bench.peers.environment import Absent, find, make


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "find_java", lambda: tmp_path / "java")


def test_what_was_not_fetched_is_absent(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="--peers"):
        find(tmp_path)


def test_other_versions_are_absent(tmp_path: Path) -> None:
    (tmp_path / "made").write_text("of other files")
    with pytest.raises(Absent, match="other versions"):
        find(tmp_path)


def test_without_maven_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Absent, match="Maven"):
        make(tmp_path / "peers")
    assert not (tmp_path / "peers").exists()


def test_peers_hear_of_no_other_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", "/somewhere")
    monkeypatch.setenv("PYSPARK_PYTHON", "/somewhere/python")
    (tmp_path / "made").write_text(environment._wanted())
    variables = find(tmp_path).variables
    assert not [name for name in variables if name.startswith(("SPARK_", "PYSPARK_"))]
    assert variables["JAVA_HOME"] == str(tmp_path / "java")


def test_versions_are_pinned_and_no_registry_is_named() -> None:
    folder = Path(environment.__file__).parent
    lines = (folder / "requirements.txt").read_text().splitlines()
    assert all("==" in line for line in lines if not line.startswith("#"))
    assert "http" not in (folder / "requirements.txt").read_text() + (folder / "pom.xml").read_text()
