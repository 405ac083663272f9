"""The definition of an operation on the producer's side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # definitions are loaded by applications that only enqueue
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from producer.model.job import Report, Request
    from producer.model.plan import Plan
    from producer.planning.units import PlanWithUnits


class PlanOperation(Protocol):
    """Plans an operation on one snapshot."""

    def __call__(
        self, table: Table, base: Plan, head: Snapshot, *, unit_bytes: int, only: frozenset[str] | None
    ) -> PlanWithUnits:
        """Plan the operation.

        A plan without units goes straight to its commit, unless it is empty. An empty plan says why in ``nothing``.

        Args:
            table: A freshly loaded table.
            base: The plan without its units.
            head: The snapshot to plan from.
            unit_bytes: Bytes that a unit reads at most, unless a single file (compaction: file group) is larger.
            only: What a later round is to work on, in the operation's own terms, such as paths; None for everything.

        Raises:
            Refused: The options do not fit the table.
            Corrupt: A manifest cannot be read or contradicts the specification.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDefinition:
    """The producer's side of an operation.

    The names of the command, the queue and the task that stages a unit follow from the member of
    :class:`~producer.model.job.Operation`. A definition's module loads neither PyIceberg nor Arrow: its functions
    import what they need when they are called.
    """

    #: One sentence for the list of commands. The help of the operation's command begins with it.
    summary: str
    #: The options that the operation takes are checked here without a table; it raises ``Refused``.
    check_options: Callable[[Mapping[str, str]], object]
    #: Checks a table for the operation; it raises ``Refused``, or returns a sentence if there is nothing to do.
    check_table: Callable[[Table, Request], str | None]
    plan: PlanOperation
    #: Describes what a job that committed has changed, from the counters of its report.
    describe_result: Callable[[Report], str]
    #: What the operation writes: the table properties that govern it are checked before planning.
    writes_data_files: bool = False
    writes_delete_files: bool = False
