"""The programs that can be measured, by name: what each is, and how it is started."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from bench.catalog import NAME, RunCatalog
from bench.peers.environment import Absent, find, make

__all__ = ["PROGRAMS", "Absent", "Program", "Start"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a program is started with."""

    data: Path
    catalog: RunCatalog
    #: A folder of its own for what it spills.
    scratch: Path
    cores: int
    heap_mb: int
    arguments: Sequence[str] = ()
    #: Whether to fetch what is not installed.
    fetch: bool = False


#: Makes the command line and the environment. Raises Absent with the reason when the program cannot be had here.
Launch: TypeAlias = Callable[[Start], tuple[list[str], dict[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A contestant, yardstick or reader."""

    name: str
    about: str
    launch: Launch
    #: Icefleet itself: if it fails, so does the benchmark.
    ours: bool = False
    #: Has a JVM, whose heap the report names.
    jvm: bool = False


def _of_this_python(start: Start, module: str) -> tuple[list[str], dict[str, str]]:
    """A module of :mod:`bench.contestants`: no broker, nothing of the caller's configuration but where Java is."""
    foreign = ("ICEFLEET_", "PYICEBERG_", "SPARK_", "PYSPARK_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own = {
        "ICEFLEET_BROKER_URL": "",
        "ICEFLEET_CORES": str(start.cores),
        "ICEFLEET_HEAP_MB": str(start.heap_mb),
        "ICEFLEET_SCRATCH_DIR": str(start.scratch),
        "TMPDIR": str(start.scratch),
    }
    command = [sys.executable, "-m", f"bench.contestants.{module}", *start.arguments]
    return command, {**inherited, **own, **start.catalog.environment}


def _fleet(start: Start) -> tuple[list[str], dict[str, str]]:
    if shutil.which("redis-server") is None:
        raise Absent("there is no redis-server: install Redis 6.2 or newer")
    return _of_this_python(start, "icefleet_fleet")


def _own(module: str) -> Launch:
    return lambda start: _of_this_python(start, module)


def _peer(module: str, *, catalog: bool) -> Launch:
    def launch(start: Start) -> tuple[list[str], dict[str, str]]:
        found = (make if start.fetch else find)(start.data / "peers")
        command = [str(found.python), "-m", f"bench.peers.{module}", "--cores", str(start.cores)]
        command += ["--heap-mb", str(start.heap_mb), "--scratch", str(start.scratch)]
        if catalog:
            command += ["--catalog-name", NAME, "--catalog-uri", start.catalog.uri]
            command += ["--warehouse", start.catalog.warehouse, "--jars", str(found.jars)]
            command += ["--file-io", json.dumps(dict(start.catalog.place.contestant_properties))]
        return [*command, *start.arguments], {**found.variables, "TMPDIR": str(start.scratch)}

    return launch


_ALL: Final = (
    Program(
        name="icefleet",
        about="Icefleet in one process that has its Spark session already: a warm worker, without the broker",
        launch=_own("icefleet"),
        ours=True,
        jvm=True,
    ),
    Program(
        name="icefleet-cold",
        about="Icefleet's command line, a fresh process each time: the start of Python and Spark included",
        launch=_own("icefleet_cold"),
        ours=True,
        jvm=True,
    ),
    Program(
        name="icefleet-steps",
        about="Icefleet in one process, each step measured apart; a session is there only while it stages",
        launch=_own("icefleet_steps"),
        ours=True,
        jvm=True,
    ),
    Program(
        name="icefleet-fleet",
        about="Icefleet as it is deployed: Redis, workers and an application that enqueues, processes of their own",
        launch=_fleet,
        ours=True,
        jvm=True,
    ),
    Program(
        name="arrow-scan",
        about="yardstick of conversions: a hand-written Arrow scan of the key columns on two threads, nothing written",
        launch=_own("arrow_scan"),
    ),
    Program(
        name="arrow-copy",
        about="yardstick of compaction: PyArrow reads and writes the same bytes, a process for each core",
        launch=_own("arrow_copy"),
    ),
    Program(
        name="arrow-join",
        about="yardstick of many deletes: PyArrow reads keys and deletes and joins them in memory, nothing written",
        launch=_own("arrow_join"),
    ),
    Program(
        name="iceberg-spark",
        about="Iceberg's own Spark procedures, in a session that is started already",
        launch=_peer("iceberg_spark", catalog=True),
        jvm=True,
    ),
    Program(
        name="plain-spark",
        about="Spark reading and writing Parquet, knowing nothing of tables",
        launch=_peer("plain_spark", catalog=False),
        jvm=True,
    ),
    Program(
        name="iceberg-rust",
        about="iceberg-rust under DataFusion: an independent reader, by which rows are judged",
        launch=_own("iceberg_rust"),
    ),
)
PROGRAMS: Final[Mapping[str, Program]] = {program.name: program for program in _ALL}
