"""Scratch folders: gone with the block, and with the process that died."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from workers.runtime.scratch import scratch


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


def test_a_root_that_cannot_be_used_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    says = rf"No scratch folder can be made in {tmp_path}/file/x \(Not a directory\): have ICEFLEET_SCRATCH_DIR name "
    with pytest.raises(NotADirectoryError, match=says), scratch(tmp_path / "file" / "x"):
        pass


def test_leftovers_of_dead_processes_go_and_nothing_else(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host, me, started = platform.node(), os.getpid(), int(psutil.Process().create_time())
    left = [
        tmp_path / f"icefleet-scratch-{host}@{dead.pid}@{started}@abc",
        tmp_path / f"icefleet-scratch-{host}@{me}@{started - 3600}@of-one-before-with-my-number",
        tmp_path / f"icefleet-scratch-{host}@{me}@t1@of-one-before-with-my-number",
        tmp_path / f"icefleet-scratch-{host}@{dead.pid}@t1@abc",
    ]
    others = [
        tmp_path / f"icefleet-scratch-{host}@{me}@{started}@mine",
        tmp_path / f"icefleet-scratch-{host}@{os.getppid()}@{int(psutil.Process(os.getppid()).create_time())}@alive",
        tmp_path / f"icefleet-scratch-another-host@{dead.pid}@{started}@x",
        tmp_path / "icefleet-scratch-notes",
        tmp_path / f"other-{host}@{dead.pid}@{started}@x",
    ]
    for folder in left + others:
        folder.mkdir()
        (folder / "spill").write_text("x")
    with scratch(tmp_path):
        assert not any(folder.exists() for folder in left)
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_folders_stay_when_the_clock_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of a process that is computed from the clock moves with it."""
    create_time = psutil.Process.create_time
    with scratch(tmp_path) as folder:
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) + 900)
        with scratch(tmp_path):
            assert folder.exists()
