"""Errors of tasks on their way to a report: what a person reads of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workers.runtime.errors import TaskFailed, cause_of, name_file, record_task_error, reraise_task_error

#: What Spark raises for an error in a Python worker, and for one in the JVM.
PYTHON_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "errors.py", line 48, in record_task_error
    yield
OSError: [Errno 28] No space left on device

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
    ^^^^^^^^^
OSError: [Errno 28] No space left on device: '/scratch/part'


JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$2(DAGScheduler.scala:2935)
"""
JVM = """An error occurred while calling o68.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$2(DAGScheduler.scala:2935)
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
\t... 1 more
"""


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


@pytest.mark.parametrize("text", [PYTHON_WORKER, JVM])
def test_scratch_that_is_full_to_the_last_byte(tmp_path: Path, text: str) -> None:
    """Not even the record of the error can be written."""
    (tmp_path / f"task-error.json.{os.getpid()}").mkdir()
    with pytest.raises(OSError, match="No space left"), record_task_error(tmp_path):
        fill()
    with (
        pytest.raises(TaskFailed, match=r"No space left on device.*ICEFLEET_SCRATCH_DIR"),
        reraise_task_error(tmp_path),
    ):
        raise RuntimeError(text)


def test_a_full_disk_of_the_table_is_not_taken_for_scratch(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="No space left"),
        record_task_error(tmp_path),
        name_file("file:///lake/a.parquet"),
    ):
        fill()
    with pytest.raises(TaskFailed) as error, reraise_task_error(tmp_path):
        spark_fails()
    assert "'file:///lake/a.parquet': the disk of this file is full" in str(error.value)
    assert "ICEFLEET_SCRATCH_DIR" not in str(error.value)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RuntimeError(PYTHON_WORKER), "OSError: [Errno 28] No space left on device: '/scratch/part'"),
        (RuntimeError(JVM), "java.io.IOException: No space left on device"),
        (
            RuntimeError(JVM.partition("Caused")[0]),
            "org.apache.spark.SparkException: Job aborted due to stage failure: ",
        ),
        (ValueError("no\nmore"), "ValueError: no"),
        (ValueError(), "ValueError"),
    ],
)
def test_the_line_that_says_the_cause(error: Exception, cause: str) -> None:
    assert cause_of(error).startswith(cause)
    assert "\n" not in cause_of(error)


def test_other_errors_are_reported_unchanged(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"), record_task_error(tmp_path):
        raise OSError("gone")
    with pytest.raises(TaskFailed, match=r"^OSError: gone$"), reraise_task_error(tmp_path):
        spark_fails()
    with pytest.raises(FileNotFoundError), reraise_task_error(tmp_path / "no note"):
        raise FileNotFoundError("elsewhere")
