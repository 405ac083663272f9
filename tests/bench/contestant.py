"""A contestant for tests of the judge: does what its first argument says."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import load_catalog

from bench.peers.serving import claim_stdout, serve


def touch(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Commit something that leaves all rows as they are."""
    for name in asked["tables"]:
        with load_catalog("bench").load_table(name).transaction() as transaction:
            transaction.set_properties(touched="yes")
    return {"tables": len(asked["tables"])}


def idle(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Do nothing, and say so."""
    return {"tables": 0}


def fail(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Say that it failed."""
    raise ValueError("not today")


def die(asked: Mapping[str, Any]) -> dict[str, Any]:
    """End without an answer."""
    print("java.lang.OutOfMemoryError: Java heap space", file=sys.stderr, flush=True)
    os._exit(3)


def starve(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Fail for want of memory, and answer with something else."""
    print("java.lang.OutOfMemoryError: Java heap space", file=sys.stderr, flush=True)
    raise ConnectionRefusedError("nobody is there")


def dawdle(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Answer much too late."""
    time.sleep(600)
    return {}


if __name__ == "__main__":
    if sys.argv[1:] == ["stillborn"]:
        sys.exit("it cannot start")
    commands = {command.__name__: command for command in (touch, idle, fail, die, starve, dawdle)}
    serve(claim_stdout(), commands, {"contestant": "1"})
