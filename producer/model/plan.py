"""Plans: what one round of a job does, unit by unit, derived from one snapshot. Frozen, kept as JSON."""

from __future__ import annotations

import secrets
from enum import StrEnum

from pydantic import Field

from producer.model.job import Report, Request, Value


class Scope(Value):
    """One partition: a partition spec and a tuple of its values, as hexadecimal single values (spec, Appendix D)."""

    spec_id: int
    values: tuple[str | None, ...]
    #: The Hive-style path, such as ``day=2024-05-01``; empty for an unpartitioned spec.
    label: str

    def to_path(self) -> str:
        """Return the path, which is all that a location provider asks of a partition."""
        return self.label


class VectorRef(Value):
    """Where a live deletion vector lies."""

    path: str
    offset: int
    size: int
    cardinality: int


class DataFile(Value):
    """A data file that a unit reads."""

    path: str
    sequence_number: int
    records: int
    size: int
    #: Index into the unit's scopes.
    scope: int
    #: The vector that was live at the plan's snapshot.
    vector: VectorRef | None = None
    #: Row id of the first row (format version 3); None for rows from before that.
    first_row_id: int | None = None


class EqualityDeleteFile(Value):
    """An equality delete file that a unit applies."""

    path: str
    sequence_number: int
    records: int
    size: int
    #: In ascending order.
    equality_ids: tuple[int, ...]
    #: Index into the unit's scopes; None is global: every spec and partition (spec, Scan Planning).
    scope: int | None


class PositionDeleteFile(Value):
    """A live position delete file."""

    path: str
    sequence_number: int
    scope: int
    #: The only data file that it names, if that is known.
    referenced: str | None


class UnitHeader(Value):
    """A unit in a plan, without its files."""

    number: int
    label: str
    files: int
    delete_files: int
    rows: int
    delete_rows: int
    #: Bytes that will be read.
    cost: int
    #: About how many bytes will be written; 0 for a conversion.
    output: int = 0
    #: Why these files were selected, for a person; empty for a conversion.
    why: str = ""
    #: Why the unit is refused: nothing is read or written for it. None if it is not.
    refused: str | None = None


class Unit(Value):
    """One share of a table: data files of one or more partitions, with every delete that reaches them."""

    header: UnitHeader
    scopes: tuple[Scope, ...]
    data: tuple[DataFile, ...]
    deletes: tuple[EqualityDeleteFile, ...]
    positions: tuple[PositionDeleteFile, ...]


class Retirement(Value):
    """An equality delete file that may leave the table once its whole scope is done."""

    path: str
    sequence_number: int
    #: None is global.
    scope: Scope | None
    #: The units that apply it; it leaves only when all of them are committed.
    units: tuple[int, ...]
    #: False if the request leaves out data files that it reaches: then it stays.
    complete: bool = True


class Strategy(StrEnum):
    """How a compaction arranges rows."""

    BINPACK = "binpack"
    SORT = "sort"
    ZORDER = "zorder"


class SortKey(Value):
    """One field of a sort order (spec, Sorting)."""

    field_id: int
    #: As the spec writes it, such as ``identity`` or ``bucket[16]``.
    transform: str = "identity"
    descending: bool = False
    nulls_first: bool = True


class Rewrite(Value):
    """How a compaction rewrites its groups: every option resolved against the table."""

    strategy: Strategy
    #: Bytes of the files to be written: they come out between ``min_size`` and ``max_size`` where rows suffice.
    target_size: int
    min_size: int
    max_size: int
    #: The spec that outputs are written under.
    spec_id: int
    #: The schema that outputs are written in.
    schema_id: int
    #: Outputs carry the data sequence number of the plan's snapshot.
    keep_sequence_number: bool = True
    #: Delete files that reach no data file after the commit leave with it, wherever in the table they are.
    remove_dangling: bool = True
    #: What to sort by; empty unless the strategy is ``sort``.
    order: tuple[SortKey, ...] = ()
    #: The table's sort order that the outputs then follow; 0 is none.
    sort_order_id: int = 0
    #: Field ids of the columns that are interleaved; empty unless the strategy is ``zorder``.
    zorder: tuple[int, ...] = ()


class Plan(Value):
    """What one round of a job does, derived from one snapshot."""

    request: Request
    #: 0, then one more each time that conflicts are planned again.
    round: int
    #: Distinguishes plans of one round that two committers made at once; the one that is written last counts.
    token: str = Field(default_factory=lambda: secrets.token_hex(4))
    table_uuid: str
    location: str
    format_version: int
    #: The snapshot planned from: None for an empty branch.
    snapshot_id: int | None
    sequence_number: int
    units: tuple[UnitHeader, ...] = ()
    retirements: tuple[Retirement, ...] = ()
    #: How units are rewritten; None for a conversion.
    rewrite: Rewrite | None = None
    #: Whether there are delete files to drop that reach no data file any more (compaction).
    dangling: bool = False
    #: A sentence that says why nothing is selected.
    nothing: str | None = None
    #: What earlier rounds have done.
    before: Report | None = None

    @property
    def all_refused(self) -> bool:
        """Whether every unit is refused and the plan has nothing else to commit."""
        retiring = any(r.complete and not r.units for r in self.retirements)
        return bool(self.units) and all(u.refused for u in self.units) and not retiring and not self.dangling

    @property
    def empty(self) -> bool:
        """Whether there is nothing to stage and nothing to retire."""
        return not self.units and not self.dangling and not any(r.complete for r in self.retirements)
