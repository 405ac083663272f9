"""Notes of paths: found after a death, deleted so that what is left can still be found."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from workers.formats.output_files import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty journal."""
    return Journal(PyArrowFileIO(), f"file://{tmp_path}/jobs/journal-7-ab")


def test_notes_are_found_again(journal: Journal) -> None:
    for task, number, path in [(0, 0, "a"), (0, 1, "bé"), (2, 0, "c")]:
        journal.note(task, number, path)
    assert list(journal.paths(3)) == ["a", "bé", "c"]
    assert list(journal.paths(2)) == ["a", "bé"]


def test_a_torn_note_names_nothing(journal: Journal, tmp_path: Path) -> None:
    journal.note(0, 0, "a")
    (tmp_path / "jobs" / "journal-7-ab-0-1").touch()
    assert list(journal.paths(1)) == ["a"]


def test_a_note_that_is_no_text_ends_nothing(journal: Journal, tmp_path: Path) -> None:
    journal.note(0, 0, "data/a.parquet")
    (note,) = (path for path in tmp_path.rglob("*") if path.is_file())
    note.write_bytes(b"\xff\xfe\x00")
    journal.note(0, 1, "data/b.parquet")
    assert "data/b.parquet" in list(journal.paths(1))


def test_clearing_ends_with_the_first(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        journal.note(0, number, str(number))
    deleted: list[str] = []
    real = PyArrowFileIO.delete

    def delete(io: PyArrowFileIO, location: str) -> None:
        if len(deleted) == 2:
            raise OSError("the connection was lost")
        deleted.append(location)
        real(io, location)

    monkeypatch.setattr(PyArrowFileIO, "delete", delete)
    with pytest.raises(OSError, match="lost"):
        journal.clear(1)
    assert list(journal.paths(1)) == ["0", "1"], "what is left is found from the first on"
    monkeypatch.undo()
    journal.clear(1)
    assert list((tmp_path / "jobs").iterdir()) == []
