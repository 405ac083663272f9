"""A job deletes its own files only, unless an explicit grant names others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.common.errors import OutsideTable
from tasks.job.context import DeletionGrant, JobContext
from tasks.testing import StreamTable
from tests.support.commits import data
from tests.support.faulty import Jobs
from tests.support.repository import REPOSITORY


@pytest.fixture
def context(jobs: Jobs, stream: StreamTable) -> JobContext:
    return jobs.context(jobs.request())


def _exists(stream: StreamTable, path: str) -> bool:
    return stream.table.io.new_input(path).exists()


def _write(stream: StreamTable, name: str) -> str:
    path = f"{stream.table.location()}/data/{name}"
    with stream.table.io.new_output(path).create() as file:
        file.write(b"x")
    return path


def test_a_foreign_file_is_not_deleted_without_a_grant(context: JobContext, stream: StreamTable) -> None:
    own, foreign = _write(stream, f"{context.name.token}-0-0.parquet"), data(stream)[0].path
    for delete in (context.deleter.delete, context.deleter.delete_in_order):
        with pytest.raises(OutsideTable, match="is no file of this job: it is not deleted"):
            delete([own, foreign])
        assert _exists(stream, own), "a list with a foreign file is refused as a whole"
        assert _exists(stream, foreign)
    context.deleter.delete([own])
    assert not _exists(stream, own)


def test_a_grant_covers_the_files_that_it_names(context: JobContext, stream: StreamTable) -> None:
    granted, other = _write(stream, "orphan.parquet"), _write(stream, "other.parquet")
    grant = DeletionGrant(frozenset({granted}), "no snapshot refers to it", unreferenced_since=1.7e9)
    deleter = context.deleter.with_grant(grant)
    with pytest.raises(OutsideTable, match=r"other\.parquet is no file of this job"):
        deleter.delete([granted, other])
    deleter.delete([granted])
    assert not _exists(stream, granted)
    assert _exists(stream, other)


def test_a_grant_does_not_reach_outside_of_the_table(
    context: JobContext, stream: StreamTable, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("elsewhere") / "file.parquet"
    path.write_bytes(b"x")
    grant = DeletionGrant(frozenset({str(path)}), "a test", unreferenced_since=1.7e9)
    with pytest.raises(OutsideTable, match="lies outside of the table's locations"):
        context.deleter.with_grant(grant).delete([str(path)])
    assert path.exists()


@pytest.mark.parametrize(("reason", "since"), [("", 1.7e9), ("expired", 0.0)])
def test_a_grant_says_why_and_since_when(reason: str, since: float) -> None:
    with pytest.raises(ValueError, match="a grant says why"):
        DeletionGrant(frozenset({"a"}), reason, since)


def _deletions() -> Iterator[str]:
    """Every call in the steps of a job that deletes files by other means than the deleter of its context."""
    for path in sorted((REPOSITORY / "tasks").rglob("*.py")):
        room = path.relative_to(REPOSITORY / "tasks").parts[0]
        if room in ("testing", "demo"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                yield from (
                    f"{path.name}: {a.name}" for a in node.names if a.name in ("delete_files", "delete_in_order")
                )
            elif (
                isinstance(node, ast.Attribute) and node.attr == "delete" and "io" in ast.unparse(node.value).split(".")
            ):
                yield f"{path.name}, line {node.lineno}"


def test_the_steps_of_a_job_delete_files_by_the_deleter_alone() -> None:
    assert list(_deletions()) == ["context.py: delete_files", "context.py: delete_in_order"]


def test_no_operation_has_a_grant_yet() -> None:
    """Whoever adds one says so here: expiry of snapshots and removal of orphans are meant to."""
    users = {
        Path(path).relative_to(REPOSITORY).as_posix()
        for package in ("producer", "tasks", "workers")
        for path in (REPOSITORY / package).rglob("*.py")
        if "DeletionGrant" in path.read_text()
    }
    assert users == {"tasks/job/context.py"}
