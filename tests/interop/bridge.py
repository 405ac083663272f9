"""Iceberg's Java implementation in a process of its own, and tables as it sees them."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

JAVA = Path(__file__).parent / "java"
JARS = JAVA / "target" / "jars"
CLASSES = JAVA / "target" / "classes"

Row = Sequence[Any]
#: A type as the table spec writes it in JSON: a name, or an object for a nested type.
Type = str | Mapping[str, Any]
#: A filter as Iceberg's Java implementation reads it from JSON, such as ``{"type": "eq", "term": "id", "value": 1}``.
Filter = Mapping[str, Any]


class JavaError(Exception):
    """What Iceberg's Java implementation threw; ``kind`` is the exception's class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Bridge:
    """One JVM that runs one command at a time; see ``java/Interop.java``."""

    def __init__(self, java: str, log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            # The tests are short: the second compiler would only take the cores from Spark.
            [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{CLASSES}:{JARS}/*", "Interop"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a command; raises :class:`JavaError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the JVM ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JavaError(answer["error"], answer["message"])
        return answer

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def create(
        self,
        location: str,
        version: int,
        columns: Mapping[str, Type],
        *partition: str,
        required: Iterable[str] = (),
        **properties: str,
    ) -> JavaTable:
        """A new table. Columns get the ids 1, 2, …; ``partition`` holds fields such as ``day=day(ts)`` or ``p``."""
        names = list(columns)
        needed = set(required)
        fields = [{"name": n, "type": t, "required": n in needed} for n, t in columns.items()]
        spec = [_partition_field(text, names) for text in partition]
        answer = self.call(
            "create",
            location=location,
            schema={"type": "struct", "fields": [{"id": i, **f} for i, f in enumerate(fields, 1)]},
            spec={"spec-id": 0, "fields": [{"field-id": 1000 + i, **field} for i, field in enumerate(spec)]},
            properties={"format-version": str(version), **properties},
        )
        return JavaTable(self, answer["metadata"])


def eq(columns: str, *rows: Any, partition: Sequence[Any] = (), spec: int | None = None, **more: Any) -> dict[str, Any]:
    """An equality delete file: rows hold the columns named, one value may stand for a row of one column."""
    keys = [name.strip() for name in columns.split(",")]
    written = list(more.pop("written", keys))
    values = [[row] if len(written) == 1 and not isinstance(row, list) else list(row) for row in rows]
    file = {"columns": keys, "written": written, "rows": values, "partition": list(partition), **more}
    return file if spec is None else {**file, "spec": spec}


def pos(version: int, *of: tuple[str | int, Sequence[int]]) -> dict[str, Any]:
    """Positions of data files (a path, or the number of one in the same commit) as the format version has them."""
    return {"vectors": of} if version > 2 else {"positions": [of]}


@dataclass
class JavaTable:
    """A table as of one metadata file; a commit moves it to the next one."""

    bridge: Bridge
    metadata: str

    def commit(self, *rows: Row, **content: Any) -> list[str]:
        """One commit of rows (in one data file a partition) and of the content that ``Commits.java`` describes.

        Returns the paths of its data files.
        """
        groups = [{"rows": rows}] if rows else []
        answer = self._move("commit", **{**content, "data": [*groups, *content.get("data", ())]})
        paths: list[str] = answer["paths"]
        return paths

    def evolve(self, *steps: Sequence[Any]) -> None:
        """Change the table's schema, partition spec or properties, one commit a step; see ``Evolution.java``."""
        self._move("evolve", steps=steps)

    def compact(self, planned: str | None = None, where: Filter | None = None) -> None:
        """Rewrite data files as they were in the metadata file ``planned``, now unless given.

        All of them, or the partitions that ``where`` selects.
        """
        self._move("compact", planned=planned or self.metadata, where=where)

    def expire(self) -> None:
        """Expire all snapshots but the last, with their files."""
        self._move("expire")

    def rows(self, **of: Any) -> Counter[str]:
        """The multiset of rows, each as JSON; ``branch`` or ``snapshot`` of which, ``lineage`` with row ids."""
        return bag(self.lists(**of))

    def lists(self, **of: Any) -> list[list[Any]]:
        """The rows as lists; of what, as for :meth:`rows`."""
        rows: list[list[Any]] = self.bridge.call("read", metadata=self.metadata, **of)["rows"]
        return rows

    def select(self, *filters: Filter) -> list[dict[str, Any]]:
        """For each filter the rows that a scan finds (``pruned``), those there are (``all``), and its ``files``."""
        found: list[dict[str, Any]] = self.bridge.call("select", metadata=self.metadata, filters=filters)["filters"]
        return found

    def inspect(self, branch: str = "main") -> dict[str, Any]:
        """Manifests, manifest entries, the deletes of each data file's scan, and the summary of a branch's snapshot."""
        return self.bridge.call("inspect", metadata=self.metadata, branch=branch)

    def document(self) -> dict[str, Any]:
        """The metadata file as it stands."""
        document: dict[str, Any] = json.loads(Path(local(self.metadata)).read_text())
        return document

    def partition_names(self, spec: int | None = None) -> list[str]:
        """The names of the fields of a partition spec, the default one unless given."""
        document = self.document()
        wanted = document["default-spec-id"] if spec is None else spec
        (fields,) = (s["fields"] for s in document["partition-specs"] if s["spec-id"] == wanted)
        return [field["name"] for field in fields]

    def _move(self, op: str, **arguments: Any) -> dict[str, Any]:
        answer = self.bridge.call(op, metadata=self.metadata, **arguments)
        self.metadata = answer["metadata"]
        return answer


def local(location: str) -> str:
    """The path of a location on this disk, with or without a scheme."""
    return "/" + location.removeprefix("file:").lstrip("/")


def bag(rows: Iterable[Row]) -> Counter[str]:
    """Rows as a multiset whose elements print well."""
    return Counter(json.dumps(row, ensure_ascii=False) for row in rows)


def _partition_field(text: str, columns: list[str]) -> dict[str, Any]:
    """``p``, ``name=transform(column)`` or ``name=bucket[4](column)``."""
    name, _, call = text.partition("=")
    transform, _, column = call.rstrip(")").partition("(")
    return {
        "name": name,
        "transform": transform or "identity",
        "source-id": columns.index(column or name) + 1,
    }
