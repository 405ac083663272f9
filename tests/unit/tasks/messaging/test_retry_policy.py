"""What a person reads of an attempt that failed."""

from __future__ import annotations

import errno

import pytest

from producer.common.errors import Corrupt
from producer.storage.errors import StorageBusy
from tasks.messaging.retry_policy import MEMORY_ADVICE, TryAgain, reason_of
from workers.runtime.errors import TaskFailed


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Corrupt("The record is empty."), "The record is empty."),
        (TryAgain("OSError: away"), "OSError: away"),
        (TaskFailed("OSError: away"), "OSError: away"),
        (TaskFailed("ArrowMemoryError: malloc of size 64 failed"), f"memory ran out: {MEMORY_ADVICE}"),
        (
            RuntimeError("Spark did not start: There is insufficient memory for the Java Runtime Environment"),
            f"memory ran out: {MEMORY_ADVICE}",
        ),
        (OSError("away\nfor now"), "OSError: away"),
        (StorageBusy(errno.EIO, "the store is busy", "s3://lake/file"), "s3://lake/file: the store is busy"),
        (
            OSError(errno.ENOSPC, "No space left"),
            "OSError: [Errno 28] No space left: this disk is full: free some space",
        ),
    ],
)
def test_the_reason(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
