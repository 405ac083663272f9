"""An object store whose requests fail, are late, are cut short, or are done without an answer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, Final, Self

import boto3

from producer import Job
from producer.model.job import Operation, Status
from tests.chaos import invariants
from tests.chaos.arena import LAKE, Arena
from tests.chaos.game import Game, in_both
from tests.chaos.games.anything import child_dies, machine_dies, redis_dies, redis_forgets
from tests.chaos.invariants import Violated
from tests.chaos.trial import Trial
from tests.fleet.tables import ROWS_OF_A_UNIT, rows_of, streamed
from tests.support.object_store import BUCKET

_NUMBERS: Final = itertools.count()
#: What may happen to a request, and the largest share of requests that it happens to.
_FAULTS: Final = {
    "busy": 0.15,
    "refuse 500": 0.1,
    "answer 500": 0.05,
    "reset": 0.1,
    "slow": 0.02,
    "cut": 0.1,
    "lost": 0.05,
    "twice": 0.1,
}
#: How many of them in one game.
_KINDS: Final = (2, 5)
#: Seconds for which a store answers nothing but that it is busy: less and more than its clients repeat a request.
_AWAY: Final = (3.0, 30.0)
#: What such a request has in its first line.
_PARTS: Final = "[?&]upload(s|Id)"
#: Rows of a partition whose data file takes several requests to be written.
_LARGE: Final = 20 * ROWS_OF_A_UNIT
#: Seconds between two deaths.
_PAUSE: Final = (1.0, 6.0)
_DEATHS: Final = 4


class StoreTrial(Trial):
    """A job on a table that lies on the object store."""

    @classmethod
    def of(cls, arena: Arena, operation: Operation, version: int, units: int = 2, rows: int = ROWS_OF_A_UNIT) -> Self:
        """Fill a table."""
        arena.object_store.counts()  # it starts
        name = f"db.s{next(_NUMBERS)}"
        share = 0.01 * ROWS_OF_A_UNIT / rows  # many deletes take the reader that judges too long
        table = streamed(arena.lake, name, partitions=units, rows=rows, upserts=1, format_version=version, share=share)
        return cls(arena, table, rows_of(table.table), operation, LAKE)

    def end(self) -> None:
        """Check that a job that nobody disturbs does what is left, and have the sweeper look at the table no more."""
        self.done_after_all()
        self.arena.lake.drop_table(self.table.identifier)

    def nothing_is_left(self) -> None:
        """Check that the bucket has the table's files, and nothing else."""
        folder = self.table.table.location().removeprefix(f"s3://{BUCKET}/")
        client = _client(self.arena.object_store.direct)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=folder)
        keys = {f"{BUCKET}/{item['Key']}" for page in pages for item in page.get("Contents", ())}
        begun = client.list_multipart_uploads(Bucket=BUCKET, Prefix=folder).get("Uploads", [])
        # One without parts holds nothing. Nobody but the store knows it if the answer to its beginning was lost.
        uploads = [
            upload["Key"]
            for upload in begun
            if client.list_parts(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"]).get("Parts")
        ]
        invariants.no_object_is_left(self.table.table, keys, uploads)


def games() -> list[Game]:
    """Each in both kinds of work, but for files that are written in parts: those of a conversion are small."""
    large = partial(_requests_fail, Operation.COMPACT, rows=_LARGE)
    return [
        Game("requests to the store for large files fail", large),
        Game("uploads to the store in parts fail", partial(large, only=_PARTS, often=3)),
        *in_both(
            {
                "requests to the store fail": _requests_fail,
                "the store is busy for a while": _busy,
                "requests to the store fail and processes die": _processes_die,
            }
        ),
    ]


def _requests_fail(
    operation: Operation,
    arena: Arena,
    random: Random,
    *,
    rows: int = ROWS_OF_A_UNIT,
    only: str = "",
    often: int = 1,
) -> None:
    """Some of all requests, or of those in which a text is found, and so many times as often."""
    trial = StoreTrial.of(arena, operation, random.choice((2, 3)), rows=rows)
    with _faults(arena, random, only, often):
        report = arena.end_of(trial.start())
    if report.storage is None:
        raise Violated("nobody has counted its requests")
    trial.judged(report, committed=True)
    trial.end()


def _busy(operation: Operation, arena: Arena, random: Random) -> None:
    """All requests from some moment on, until another."""
    trial = StoreTrial.of(arena, operation, random.choice((2, 3)))
    job = trial.start()
    time.sleep(random.uniform(0.0, 1.5))
    with _counted(arena, {"busy": 1.0}):
        time.sleep(random.uniform(*_AWAY))
    trial.judged(arena.end_of(job), committed=True)
    trial.end()


def _processes_die(operation: Operation, arena: Arena, random: Random) -> None:
    """Some of all requests, and now and then whoever sends them."""
    trial = StoreTrial.of(arena, operation, random.choice((2, 3)), units=6)
    deaths: tuple[Callable[[Arena, Job, Random], None], ...] = (child_dies, machine_dies, redis_dies, redis_forgets)
    with _faults(arena, random):
        job = trial.start()
        while job.status in (Status.QUEUED, Status.PLANNING):  # before, Redis alone knows it
            time.sleep(0.1)
        for _ in range(_DEATHS):
            time.sleep(random.uniform(*_PAUSE))
            if job.status.ended:
                break
            random.choice(deaths)(arena, job, random)
            arena.revive()
        report = arena.end_of(job)
    trial.judged(report)  # a unit whose processes died too often has failed
    trial.end()


@contextmanager
def _faults(arena: Arena, random: Random, only: str = "", often: int = 1) -> Iterator[None]:
    kinds = random.sample(sorted(_FAULTS), random.randint(*_KINDS))
    shares = {kind: often * random.uniform(0.01, _FAULTS[kind]) for kind in kinds}
    if only:  # of a few requests so many that a job would wait for the store to become better
        shares["times"] = random.randint(3, 15)
    with _counted(arena, shares, only):
        yield


@contextmanager
def _counted(arena: Arena, shares: Mapping[str, float], only: str = "") -> Iterator[None]:
    """Requests fail, and the account says how many have."""
    arena.object_store.counts()
    try:
        with arena.object_store.faults(only, **shares):
            yield
    finally:
        for kind, times in arena.object_store.counts().items():
            if kind.startswith("fault "):
                arena.counts[f"request to the store: {kind.removeprefix('fault ')}"] += times


def _client(endpoint: str) -> Any:
    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1"
    )
