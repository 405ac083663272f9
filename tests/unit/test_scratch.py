"""Scratch folders: gone with the block, and with the process that died."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.scratch import scratch


def test_a_folder_of_its_own_that_goes_with_the_block(tmp_path: Path) -> None:
    with scratch(tmp_path) as one, scratch(tmp_path) as two:
        assert one != two
        assert one.parent == two.parent == tmp_path
        (one / "deep").mkdir()
        (one / "deep" / "file").write_text("x")
    assert not list(tmp_path.iterdir())


def test_it_goes_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scratch(tmp_path):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_a_root_that_is_missing_is_made(tmp_path: Path) -> None:
    with scratch(tmp_path / "a" / "b") as folder:
        assert folder.exists()


def test_leftovers_of_dead_processes_go_and_nothing_else(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / f"icefleet-scratch-{dead.pid}-abc"
    left.mkdir()
    (left / "spill").write_text("x")
    others = [
        tmp_path / f"icefleet-scratch-{os.getpid()}-mine",
        tmp_path / f"icefleet-scratch-{os.getppid()}-of-one-alive",
        tmp_path / "icefleet-scratch-notes",
        tmp_path / f"other-{dead.pid}-x",
    ]
    for folder in others:
        folder.mkdir()
    with scratch(tmp_path):
        assert not left.exists()
    assert sorted(tmp_path.iterdir()) == sorted(others)
