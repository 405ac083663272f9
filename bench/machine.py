"""Where a bench runs, and of what."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import psutil

from bench.contestant import ROOT
from bench.results import Machine

_PACKAGES = ("pyspark", "pyiceberg", "pyarrow", "numpy")


def machine() -> Machine:
    """This machine, as far as this process may use it."""
    cores = len(os.sched_getaffinity(0))
    return Machine(cores, psutil.virtual_memory().total, _cpu(), f"{platform.system()} {platform.release()}")


def versions() -> dict[str, str]:
    """Of Icefleet and what it is made of; peers tell theirs themselves."""
    own = {"icefleet": f"{metadata.version('icefleet')} ({_commit()})", "python": platform.python_version()}
    return own | {f"icefleet's {name}": metadata.version(name) for name in _PACKAGES}


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "producer", "tasks", "workers")
        return git("rev-parse", "--short", "HEAD") + (", changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "no commit known"
