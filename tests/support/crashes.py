"""Jobs whose process is killed at its first change to storage, then at its second, and so on, and that run again."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from producer.model.job import Report, Request
from tasks.testing import StreamTable
from tests.support import oracle
from tests.support.faulty import Fault, FaultyCatalog, Jobs
from tests.support.traps import Killed, Trap
from tests.support.unreferenced import unreferenced

#: The rows of the table.
ROWS: Counter[tuple[int, ...]] = Counter({(n,): 1 for n in (1, 3, 4, 6)})


def ids(*numbers: int) -> pa.Table:
    """Return rows of one column."""
    return pa.table({"id": pa.array(numbers, pa.int64())})


def table(catalog: FaultyCatalog, name: str, version: int) -> StreamTable:
    """Make a table of the rows 1 to 6 in two files, without 2 and 5."""
    stream = StreamTable.create(catalog, name, ids().schema, format_version=version)
    stream.append(ids(1, 2, 3))
    stream.append(ids(4, 5, 6))
    stream.delete_where_equal(ids(2, 5), ["id"])
    return stream


@dataclass(frozen=True)
class Crash:
    """A job that was killed and run again.

    Attributes:
        number: How many changes it made before it was killed.
        killed: False for the last one, which made all of its changes.
        fault_left: Whether the first run did not come as far as the fault of its commit.
    """

    stream: StreamTable
    request: Request
    report: Report
    number: int
    killed: bool
    fault_left: bool

    @property
    def moment(self) -> str:
        """When it was killed, for messages of failed assertions."""
        return f"killed at change {self.number}"

    def assert_rows(self, expected: Counter[tuple[int, ...]] = ROWS) -> None:
        """Check the rows, and that nothing is left behind but a metadata file that its catalog has to delete."""
        assert oracle.rows(self.stream.table) == expected, self.moment
        assert unreferenced(self.stream.table, metadata_files=False) == set(), self.moment


class SavedTable:
    """A table that is put back as it was made: that takes less time than making it anew."""

    def __init__(self, catalog: FaultyCatalog, version: int) -> None:
        stream = table(catalog, "db.t", version)
        self._catalog = catalog
        self._metadata = stream.table.metadata_location
        self._folder = Path(stream.table.location().removeprefix("file://"))
        self._copy = self._folder.with_name("saved")
        shutil.copytree(self._folder, self._copy)

    def restore(self) -> StreamTable:
        """Put it back."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._copy, self._folder)
        self._catalog.drop_table("db.t")
        self._catalog.register_table("db.t", self._metadata)
        return StreamTable(self._catalog, "db.t")


class Crashes:
    """Kills and repeats jobs."""

    def __init__(self, catalog: FaultyCatalog, jobs: Jobs, trap: Trap) -> None:
        self.catalog = catalog
        self.jobs = jobs
        self.trap = trap

    def each(
        self,
        version: int,
        request: Callable[[StreamTable], Request],
        *,
        torn: bool,
        fault: Callable[[StreamTable], Fault] | None = None,
    ) -> Iterator[Crash]:
        """Yield the job killed at each of its changes, each on the table as it was, and at last the one that survives.

        Args:
            version: Format version of the table.
            request: Makes the request of the job.
            torn: Whether the file that is written at that moment is there, and empty.
            fault: Makes what happens to the job's first commit.
        """
        saved = SavedTable(self.catalog, version)
        for number in itertools.count():
            stream = saved.restore()
            asked = request(stream)
            self.trap.arm(number, torn=torn)
            if fault is not None:
                self.catalog.faults.append(fault(stream))
            with suppress(Killed):
                self.jobs.run(asked)
            self.trap.revive()
            self.jobs.wait(400)
            left = bool(self.catalog.faults)
            report = self.jobs.run(asked)
            self.catalog.faults.clear()
            yield Crash(stream, asked, report, number, self.trap.sprung, left)
            if not self.trap.sprung:
                return
