"""Icefleet's command line, a fresh process each time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from bench.peers.serving import claim_stdout, serve


def convert(asked: Mapping[str, Any]) -> dict[str, Any]:
    """``icefleet convert``, as one types it."""
    command = [sys.executable, "-c", "from producer.cli.main import main; main()", "convert", asked["table"]]
    options = ["--catalog", asked["catalog"]["name"], "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


if __name__ == "__main__":
    serve(claim_stdout(), {"convert": convert}, {})
