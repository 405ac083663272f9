"""Planning: a table of very many files is planned, and what was staged for it committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.case import Case, Entry, Workload
from bench.catalog import RunTables
from bench.sizes import Size
from bench.wide import Wide

#: Of the recipe.
_VERSION: Final = 1
#: So that each partition is a unit or two.
_UNIT_MB: Final = 8


def _check(run_tables: RunTables, facts: Mapping[str, Any]) -> str | None:
    """Whether all that had to be found was, and all equality deletes have left."""
    known = run_tables.master.tables[0].facts
    pairs = {"added_position_deletes": "positions", "removed_equality_delete_files": "delete_files"}
    for said, made in pairs.items():
        if facts[said] != known[made]:
            return f"it says {said} = {facts[said]}, not {known[made]}"
    return None


def cases(size: Size) -> Sequence[Case]:
    """One table."""
    wide = Wide(partitions=size.planning_partitions, commits=size.planning_commits, files=size.planning_files)
    return [
        Case(
            name="convert",
            title=f"{wide.data_files:,} data files and {wide.delete_files:,} equality delete files in "
            f"{wide.partitions:,} partitions, by {wide.commits:,} commits",
            master=f"planning-{wide.partitions}x{wide.commits}x{wide.files}-v{_VERSION}",
            recipe=wide.recipe,
            entries=[
                Entry(
                    program="icefleet-steps",
                    ask={"do": "convert"},
                    leaves={"equality_deletes": 0},
                    check=_check,
                    limit=1800.0,
                    environment={"ICEFLEET_UNIT_MB": str(_UNIT_MB)},
                )
            ],
        )
    ]


WORKLOAD = Workload(
    name="planning",
    title="Planning at scale",
    about="A stream has left very many files, with keys whose bounds rule nothing out. The time of a run is mostly "
    "that of its staging, which opens each file; the targets are for the plan (its records included) and for the "
    "commit (its clean-up included), each without a Spark session beside it.",
    cases=cases,
)
