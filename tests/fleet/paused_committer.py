"""A committer that holds right before or right after the catalog's swap, for tests that kill it there.

Only the catalog is slow: what runs is ``icefleet`` with the arguments given.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from producer.cli.main import main

_commit = SqlCatalog.commit_table


def _hold(at: str) -> None:
    if os.environ["PAUSE_AT"] == at:
        file = Path(os.environ["PAUSE_FILE"])
        file.touch()
        while file.exists():
            time.sleep(0.02)


def _slow_commit(self: SqlCatalog, *arguments: Any, **named: Any) -> Any:
    _hold("before")
    answer = _commit(self, *arguments, **named)
    _hold("after")
    return answer


if __name__ == "__main__":
    SqlCatalog.commit_table = _slow_commit  # type: ignore[method-assign]
    main()
