"""Errors of tasks on their way to a report: what a person reads of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.runtime.errors import TaskFailed, record_task_error, reraise_task_error


def fill() -> None:
    with open("/dev/full", "wb", buffering=0) as disk:
        disk.write(b"x")


def spark_fails() -> None:
    raise RuntimeError("as Spark reports it")


@pytest.mark.parametrize("in_task", [True, False])
def test_a_full_disk_is_reported_with_what_to_do(tmp_path: Path, in_task: bool) -> None:
    if in_task:
        with pytest.raises(OSError, match="No space left"), record_task_error(tmp_path):
            fill()
    with pytest.raises(TaskFailed) as error, reraise_task_error(tmp_path):
        spark_fails() if in_task else fill()
    assert "No space left on device" in str(error.value)
    assert f"MB left in {tmp_path}" in str(error.value)
    assert "ICEFLEET_SCRATCH_DIR" in str(error.value)


def test_other_errors_are_reported_unchanged(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"), record_task_error(tmp_path):
        raise OSError("gone")
    with pytest.raises(TaskFailed, match=r"^OSError: gone$"), reraise_task_error(tmp_path):
        spark_fails()
    with pytest.raises(FileNotFoundError), reraise_task_error(tmp_path / "no note"):
        raise FileNotFoundError("elsewhere")
