"""Whether tables hold the rows they must hold, by a reader that shares no code with who worked on them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.case import Entry
from bench.catalog import RunTables
from bench.contestant import Failed
from bench.pool import ContestantPool
from tasks.testing.reader import Checksum

READER = "iceberg-rust"
#: Seconds for one table.
_LIMIT = 900.0


def difference(pool: ContestantPool, run_tables: RunTables, truths: Sequence[Checksum]) -> str | None:
    """What is wrong with the tables' rows, as a sentence; None when they are what they must be."""
    for name, table, known, truth in zip(
        run_tables.names, run_tables.tables(), run_tables.master.tables, truths, strict=True
    ):
        request = {
            "do": "checksum",
            "metadata_location": table.metadata_location,
            "file_io": dict(run_tables.catalog.place.properties),
            "columns": known.columns,
        }
        try:
            facts = pool.reader(READER).contestant.ask(request, _LIMIT).facts
        except Failed as error:
            pool.stop_reader(READER)
            return f"{READER} could not read {name}: {error}"
        found = Checksum(facts["rows"], int(facts["hashes"]))
        if found != truth:
            return f"{name} has {_text(found)}, not {_text(truth)}"
    return None


def shortfall(run_tables: RunTables, entry: Entry, facts: dict[str, object]) -> str | None:
    """What an entry was to do and has not done; None when it did it all."""
    for name, expected in entry.expect.items():
        if facts.get(name) != expected:
            return f"it says {name} = {facts.get(name)}, not {expected}"
    if entry.commits and not run_tables.changed():
        return "it committed nothing"
    files = run_tables.files() if entry.leaves else None
    for kind, most in entry.leaves.items():
        left = getattr(files, kind)
        if left > most:
            return f"it left {left} files of the kind {kind}, not {most}"
    return entry.check(run_tables, facts) if entry.check else None


def _text(checksum: Checksum) -> str:
    return f"{checksum.rows:,} rows with checksum {checksum}"
