"""Jobs in the middle of their work, saved as files by one version so that later ones can be tested to finish them.

`python -m tests.support.saved_jobs FOLDER` writes them with the version that it runs from; `tests/records` holds those
of earlier versions. For each operation and format version there are the files of its tables in one archive, one JSON
file for each moment with the records that lay beside the table then, and one with the messages of the job that is
planned. Paths in them begin with `lake://`, which `LakeIO` finds in whatever folder it is given, so that no file names
a folder of some machine.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.types import LongType, NestedField, StringType

from producer.common.settings import Settings
from producer.model.job import Operation as Work
from producer.model.job import Request
from producer.state.commit_history import JOB
from producer.state.job_store import ROOT
from tasks.job.context import JobContext
from tasks.lifecycle.outcomes import Stage
from tasks.lifecycle.rounds import advance, begin
from tasks.lifecycle.stage import stage
from tasks.testing import RowDelta, StreamTable
from tests.support.commits import BY_P, data
from tests.support.lake_io import LAKE, lake_properties
from tests.support.saved_messages import messages_of, write_messages

#: What the clock says when a job is saved. Some records hold times, and those of commits are judged by them.
SAVED_AT = 1_750_000_000.0
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "note", StringType(), required=False),
)
#: The live rows of each saved table. A job changes none, so they are the same at each moment. Partition b is an emoji,
#: which takes four bytes in UTF-8 and two units in UTF-16.
A, B = "a", "b\U0001f600"
ROWS = Counter({(1, A, "new"): 1, (4, A, "old"): 1, (5, A, "old"): 1, (2, B, "old"): 1, (3, B, "new"): 1})
MOMENTS = ("planned", "partly-staged", "staged", "commit-noted", "committed", "concluded", "planned-again", "cancelled")


class Killed(BaseException):
    """The process has died."""


class LakeCatalog(InMemoryCatalog):
    """A catalog of tables below `lake://`.

    Attributes:
        on_commit: Called instead of the next commit of a job, with the commit.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__("default", warehouse=LAKE, **lake_properties(folder))
        self.folder = folder
        self.on_commit: Callable[[Callable[[], CommitTableResponse]], CommitTableResponse] | None = None

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit, or let `on_commit` do so."""

        def commit() -> CommitTableResponse:
            return super(LakeCatalog, self).commit_table(table, requirements, updates)

        added = [update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)]
        if self.on_commit is None or not any(s.summary and s.summary[JOB] for s in added):
            return commit()
        action, self.on_commit = self.on_commit, None
        return action(commit)

    def files(self) -> Iterator[str]:
        """The location of every file."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                yield f"lake://{path.relative_to(self.folder)}"


@dataclass(frozen=True)
class SavedJob:
    """A job as it was at one moment.

    Attributes:
        job: Its id.
        table: The table's name.
        metadata: The location of the table's metadata file.
        files: The locations of all files that there were but records; the archive beside has them.
        records: Records by their location, as text.
    """

    job: str
    table: str
    metadata: str
    files: tuple[str, ...]
    records: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> SavedJob:
        """Read a saved job."""
        document = json.loads(path.read_text())
        records = {name: _text(record) for name, record in document.pop("records").items()}
        return cls(**{**document, "files": tuple(document["files"]), "records": records})

    def write(self, path: Path) -> None:
        """Save the job; a record is written as JSON where its text can be had from that."""
        records = {name: _readable(text) for name, text in self.records.items()}
        document = {"job": self.job, "table": self.table, "metadata": self.metadata, "files": self.files}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**document, "records": records}, indent=1, ensure_ascii=False) + "\n")

    def restore(self, archive: Path, folder: Path) -> LakeCatalog:
        """Put the table and the job's records into a folder, and the table into a catalog."""
        self.unpack(archive, folder)
        catalog = LakeCatalog(folder)
        catalog.create_namespace("db")
        catalog.register_table(self.table, self.metadata)
        return catalog

    def unpack(self, archive: Path, folder: Path) -> None:
        """Put the table and the job's records into a folder."""
        with tarfile.open(archive) as packed:
            wanted = [packed.getmember(name.removeprefix("lake://")) for name in self.files]
            packed.extractall(folder, wanted, filter="data")
        for name, text in self.records.items():
            target = folder / name.removeprefix("lake://")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)


def _readable(text: str) -> Any:
    try:
        record = json.loads(text)
    except ValueError:
        return text
    return record if _text(record) == text else text


def _text(record: Any) -> str:
    return record if isinstance(record, str) else json.dumps(record, separators=(",", ":"), ensure_ascii=False)


# -- writing -------------------------------------------------------------------------------------------------------


def save(folder: Path) -> None:
    """Save jobs of each operation on tables of each format version at each moment."""
    for work in Work:
        for version in (2, 3):
            with TemporaryDirectory() as lake, pytest.MonkeyPatch.context() as monkeypatch:
                _Saving(Path(lake), folder / f"{work}-v{version}", monkeypatch).save(work, version)


class _Saving:
    """Takes jobs through their moments, with the real engine, and saves each."""

    def __init__(self, lake: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.catalog = LakeCatalog(lake)
        self.folder = folder
        self.settings = Settings(_env_file=None, broker_url="", board_url="").model_copy(
            update={"unit_mb": 0}  # each partition is a unit of its own
        )
        self.late = 0.0
        self.packed: dict[str, bytes] = {}
        self.monkeypatch = monkeypatch
        started = time.time()
        real = time.time
        monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: self.catalog)
        for operation in ("convert", "compact"):
            monkeypatch.setattr(
                f"producer.planning.{operation}.planner.bundle", lambda groups, _: [(g,) for g in groups]
            )
        monkeypatch.setattr(socket, "gethostname", lambda: "worker-1")
        monkeypatch.setattr(time, "time", lambda: SAVED_AT - 3600 + real() - started + self.late)

    def save(self, work: Work, version: int) -> None:
        """Save every moment."""
        self._from_plan_to_end(work, version)
        self._planned_again(work, version)
        self._cancelled(work, version)
        with tarfile.open(self.folder.with_suffix(".tar.xz"), "w:xz") as archive:
            for name, content in sorted(self.packed.items()):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))

    def _from_plan_to_end(self, work: Work, version: int) -> None:
        stream, request = self._table("db.once", version), self._request("db.once", work)
        step = begin(request, self.settings)
        assert isinstance(step, Stage), step
        assert len(step.units) == 2, step
        self._note("planned", request)
        write_messages(self.folder.with_suffix(".messages.json"), messages_of(step.plan))
        self._stage(step, 0)
        with self._dying_before("producer.state.round_store.RoundStore.write_staged"):
            self._stage(step, 1)
        self._note("partly-staged", request)
        self._stage(step, 1)
        self._note("staged", request)
        self._advance_until_killed(request, self._die)
        self._note("commit-noted", request)
        self.late += 400
        self._advance_until_killed(request, self._die_after)
        assert len(stream.table.metadata.snapshots) == self.snapshots + 1
        self._note("committed", request)
        self.late += 400
        with self._dying_before("tasks.lifecycle.ending.clean_up"):
            advance(JobContext.open(request.job), self.settings)
        self._note("concluded", request)

    def _planned_again(self, work: Work, version: int) -> None:
        stream, request = self._table("db.again", version), self._request("db.again", work)
        step = begin(request, self.settings)
        assert isinstance(step, Stage)
        self._stage(step, *step.units)
        [first, *_] = data(stream, A)
        if work is Work.CONVERT:  # another engine compacts a file, and its rows are of before the deletes
            rows = pa.Table.from_pylist([{"id": i, "p": A, "note": "old"} for i in (1, 4, 5)], _ARROW)
            again = stream.write_data(rows, sequence_number=first.sequence_number)
            stream.commit(RowDelta(again, [first]), operation=Operation.REPLACE)
        elif version == 2:
            stream.delete_positions({first.path: [0]})
        else:
            stream.delete_vector({first.path: [0, 1]})
        step = advance(JobContext.open(request.job), self.settings)
        assert isinstance(step, Stage), step
        assert step.plan.round == 1
        self._note("planned-again", request)

    def _cancelled(self, work: Work, version: int) -> None:
        self._table("db.cancelled", version)
        request = self._request("db.cancelled", work)
        step = begin(request, self.settings)
        assert isinstance(step, Stage)
        self._stage(step, 0)
        JobContext.open(request.job).store.cancel()
        self._note("cancelled", request)

    def _table(self, name: str, version: int) -> StreamTable:
        """A table with each kind of delete; of format version 3 it was one of version 2 at first."""
        properties = {"write.avro.compression-codec": "uncompressed"}  # the archive is
        stream = StreamTable.create(self.catalog, name, SCHEMA, spec=BY_P, properties=properties)
        stream.append(_rows((1, A), (4, A), (5, A), (6, A)))
        stream.append(_rows((2, B), (3, B), (7, B), (8, B)))
        [first], [second] = data(stream, A), data(stream, B)
        stream.delete_positions({first.path: [3], second.path: [2]}, by_partition=True)
        stream.delete_positions({second.path: [3]})
        if version == 3:
            stream.upgrade()
            stream.append(_rows((9, B)))
            stream.append(_rows((9, A)))
            stream.delete_vector({data(stream, A)[-1].path: [0]})
            stream.delete_where_equal(_rows((9, B)), ["id"])
        stream.delete_where_equal(pa.table({"id": pa.array([1], pa.int64()), "p": [A]}), ["id"])
        stream.upsert(_rows((3, B), note="new"), ["id"])
        stream.append(_rows((1, A), note="new"))
        self.snapshots = len(stream.table.metadata.snapshots)
        return stream

    def _request(self, table: str, work: Work) -> Request:
        options = {"rewrite-all": "true"} if work is Work.COMPACT else {}
        return Request.new(table, operation=work, options=options)

    def _stage(self, step: Stage, *units: int) -> None:
        context = JobContext.open(step.plan.request.job, step.plan.location)
        for unit in units:
            done = stage(context, step.plan, unit, self.settings, lambda done, of: None)
            assert done is not None
            assert not hasattr(done, "reason"), done

    def _advance_until_killed(self, request: Request, action: Callable[[Any], CommitTableResponse]) -> None:
        self.catalog.on_commit = action
        with pytest.raises(Killed):
            advance(JobContext.open(request.job), self.settings)

    @staticmethod
    def _die(commit: Any) -> CommitTableResponse:
        raise Killed

    @staticmethod
    def _die_after(commit: Any) -> CommitTableResponse:
        commit()
        raise Killed

    @contextmanager
    def _dying_before(self, function: str) -> Iterator[None]:
        def die(*_: Any, **__: Any) -> None:
            raise Killed

        with self.monkeypatch.context() as inner:
            inner.setattr(function, die)
            with suppress(Killed):
                yield
                raise AssertionError("nobody died")

    def _note(self, moment: str, request: Request) -> None:
        table = self.catalog.load_table(request.table)
        own = [
            name
            for name in self.catalog.files()
            if name.startswith(f"{table.metadata.location}/")
            and (name == table.metadata_location or not name.endswith(".metadata.json"))
        ]
        records = {name for name in own if f"/{ROOT}/" in name}
        content = {name: (self.catalog.folder / name.removeprefix("lake://")).read_bytes() for name in own}
        SavedJob(
            request.job,
            request.table,
            table.metadata_location,
            tuple(name for name in own if name not in records),
            {name: content[name].decode() for name in own if name in records},
        ).write(self.folder / f"{moment}.json")
        for name in own:
            if name not in records:
                packed = self.packed.setdefault(name.removeprefix("lake://"), content[name])
                assert packed == content[name], f"{name} has changed"


_ARROW = pa.schema([("id", pa.int64()), ("p", pa.string()), ("note", pa.string())])


def _rows(*keys: tuple[int, str], note: str = "old") -> pa.Table:
    return pa.Table.from_pylist([{"id": id_, "p": p, "note": note} for id_, p in keys], _ARROW)


if __name__ == "__main__":
    save(Path(sys.argv[1]))
