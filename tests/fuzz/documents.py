"""What tells of jobs and tables, fuzzed: messages, records, metadata, manifests."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest import mock

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from producer.broker.queue import CommitMessage, Messenger, UnitMessage, parse_message, parse_plan_message
from producer.common.errors import Corrupt, IcefleetError, Newer, Refused
from producer.iceberg import catalog as catalogs
from producer.iceberg.catalog import open_table
from producer.iceberg.manifest_reader import read_manifest, read_manifest_list
from producer.model.codec import decode, encode
from producer.model.job import Failure, JobId, Report, Request, Value
from producer.model.plan import Plan, Unit
from producer.model.staged import Attempt, CommitNote, PlanNote, Staged
from producer.planning.planner import plan
from tests.fuzz.samples import Samples
from tests.fuzz.target import Target

KINDS: tuple[type[Value], ...] = (Plan, Unit, Attempt, Staged, Failure, CommitNote, PlanNote, Report, Request)


def messages() -> Target:
    request = Request.new("db.t", where="p = 1", options={"min-input-files": "2"})
    sent: list[dict[str, Any]] = []
    with mock.patch.object(Messenger, "_send", lambda self, name, arguments, *rest: sent.append(arguments)):
        messenger = Messenger(SimpleNamespace())  # type: ignore[arg-type]
        messenger.plan(request)
        messenger.commit(request.job, "s3://lake/t")
    sent.append({"table": "db.t", "partition": "p=1", "job": request.job, "round": 0, "unit": 3})

    def run(data: bytes) -> bool:
        try:
            arguments = json.loads(data)
        except (ValueError, RecursionError):
            return False  # kombu's to refuse
        if not isinstance(arguments, dict):
            return False  # Celery's
        taken = False
        for read in (
            parse_plan_message,
            lambda a: parse_message(UnitMessage, a),
            lambda a: parse_message(CommitMessage, a),
        ):
            try:
                order = read(arguments)
            except Refused:
                continue
            assert JobId.parse(order.job).table == order.table
            taken = True
        return taken

    return Target("messages", tuple(json.dumps(arguments).encode() for arguments in sent), run)


def records(samples: Samples) -> Target:
    request = Request.new("db.t")
    planned = plan(samples.table, request, unit_bytes=1 << 28)
    header = planned.units[0].header
    values: list[Value] = [planned.plan, planned.units[0], request]
    values += [
        Attempt(unit=header.number, number=0, token="t", host="h", started=1.5, paths=("a", "b"), journal="j", tasks=2),
        Staged(unit=0, attempt=0, scopes=planned.units[0].scopes, named={"x": ("y",)}, inputs=("a",)),
        CommitNote(token="t", started=2.0, head=5, snapshots={"a": 1}),
        PlanNote(token="t", units=3),
        Failure(unit=0, partition="p", reason="r"),
        Report(job=request.job, table="db.t", status="failed", failures=(Failure(unit=0, partition="p", reason="r"),)),
    ]

    def run(data: bytes) -> bool:
        taken = False
        for kind in KINDS:
            try:
                value = decode(data, kind, "x.json")
            except (Corrupt, Newer):
                continue
            assert decode(encode(value), kind, "x.json") == value
            taken = True
        return taken

    return Target("records", tuple(encode(value).encode() for value in values), run)


def _table(samples: Samples, io: FileIO) -> Table:
    """The table of the samples, read through another file access."""
    table = samples.table
    return Table(("db", "t"), table.metadata, table.metadata_location, io, table.catalog)


def _planned(table: Table) -> None:
    plan(table, Request.new("db.t"), unit_bytes=1 << 28)


def metadata(samples: Samples) -> Target:
    def run(data: bytes) -> bool:
        io = samples.io(**{samples.table.metadata_location: data})

        def load(name: str) -> Table:
            metadata = FromInputFile.table_metadata(io.new_input(samples.table.metadata_location))
            return Table(("db", "t"), metadata, samples.table.metadata_location, io, samples.table.catalog)

        opened = SimpleNamespace(load_table=load, properties={})
        with mock.patch.object(catalogs, "load_catalog", return_value=opened):
            try:
                _planned(open_table("default", "db.t"))
            except IcefleetError:
                return False
        return True

    return Target("metadata", (samples.files[samples.table.metadata_location],), run)


def manifest_list(samples: Samples) -> Target:
    def run(data: bytes) -> bool:
        io = samples.io(**{samples.manifest_list: data})
        snapshot = samples.table.current_snapshot()
        assert snapshot is not None
        try:
            read_manifest_list(io, snapshot)
            _planned(_table(samples, io))
        except IcefleetError:
            return False
        return True

    return Target("manifest list", (samples.files[samples.manifest_list],), run)


def manifests(samples: Samples) -> Target:
    def run(data: bytes) -> bool:
        taken = False
        for manifest in samples.manifests:
            io = samples.io(**{manifest.manifest_path: data})
            try:
                read_manifest(io, manifest)
                _planned(_table(samples, io))
            except IcefleetError:
                continue
            taken = True
        return taken

    return Target("manifests", tuple(samples.files[manifest.manifest_path] for manifest in samples.manifests), run)
