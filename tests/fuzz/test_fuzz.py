"""Whatever is read from outside is what was written, or refused by an error of ours, in bounded time and memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.repository import REPOSITORY

#: Inputs of each target in a normal run; `python -m tests.fuzz --minutes 10` goes further.
EXAMPLES = {
    "messages": 500,
    "records": 400,
    "metadata": 300,
    "manifest list": 300,
    "manifests": 200,
    "equality deletes": 100,
    "keys of data": 100,
    "rows of data": 100,
    "position deletes": 100,
    "puffin": 400,
    "vectors": 400,
    "roaring": 300,
}


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what crashes or wants too much memory is not this one."""
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize(
    "names", [tuple(EXAMPLES)[:3], tuple(EXAMPLES)[3:5], tuple(EXAMPLES)[5:9], tuple(EXAMPLES)[9:]]
)
def test_changed_bytes(names: tuple[str, ...]) -> None:
    done = fuzz(*(f"--target={name}:{EXAMPLES[name]}" for name in names))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == list(names)
