"""A stream that goes on updating lineitem while others work on it, and keeps account of what it changes.

It commits at fixed times, the first an interval after it is ready; a commit that takes longer puts the next ones off.

    {"do": "stop"}
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pydantic import TypeAdapter
from pyiceberg.catalog.sql import SqlCatalog

from bench.lineitem import Lineitem
from bench.peers.serving import claim_stdout, serve
from bench.workloads.w3 import SEED, share_of
from tasks.demo.lineitem import KEY
from tasks.testing import StreamTable
from tasks.testing.reader import Checksum


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What the writer is to do."""

    catalog: str
    uri: str
    warehouse: str
    table: str
    scale: float
    #: Batches that the table has seen already.
    batches: int
    #: Seconds from one commit to the next.
    interval: float


@dataclass
class Writer:
    """Commits batches in a thread of its own until it is asked to stop."""

    errand: Errand
    commits: int = 0
    difference: Checksum = field(default_factory=Checksum)
    error: Exception | None = None

    def __post_init__(self) -> None:
        asked = self.errand
        self._lineitem = Lineitem(asked.scale, SEED)
        for number in range(asked.batches):
            self._lineitem.update(share_of(number))
        catalog = SqlCatalog(asked.catalog, uri=asked.uri, warehouse=asked.warehouse)
        self._table = StreamTable(catalog, asked.table)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """End after the commit that is on its way; what was changed."""
        self._stopped.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        return {"commits": self.commits, "rows": self.difference.rows, "hashes": str(self.difference.hashes)}

    def _run(self) -> None:
        due = time.monotonic()
        for number in count(self.errand.batches):
            due = max(due + self.errand.interval, time.monotonic())
            if self._stopped.wait(due - time.monotonic()):
                return
            try:
                self._commit(number)
            except Exception as error:
                self.error = error
                return

    def _commit(self, number: int) -> None:
        update = self._lineitem.update(share_of(number))
        self._table.upsert(update.new, KEY)
        self.difference += update.difference
        self.commits += 1


if __name__ == "__main__":
    answers = claim_stdout()
    writer = Writer(TypeAdapter(Errand).validate_json(sys.argv[1]))
    serve(answers, {"stop": writer.stop}, {})
    writer.stop({})
