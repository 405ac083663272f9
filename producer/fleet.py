"""The fleet, as other applications see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer.broker.queue import Messenger
from producer.broker.registry import JobRegistry
from producer.common.errors import IcefleetError, Refused
from producer.common.settings import Settings
from producer.engine import ProgressCallback, local_engine
from producer.job import Job
from producer.model.job import JobId, Operation, Request
from producer.planning.compact.options import Options, text_of

if TYPE_CHECKING:  # what reads tables is loaded when one is read: enqueueing does without
    from pyiceberg.table import Table

    from producer.planning.units import PlanWithUnits


class Fleet:
    """Enqueues tables and finds jobs.

    With a broker a job is sent to the fleet and the call returns at once, in milliseconds and without a look at the
    table. Without one it runs in the calling process, and the call returns when it has ended.

    Example:
        >>> from producer import Fleet
        >>> job = Fleet().convert("db.events")         # doctest: +SKIP
        >>> job.wait().status                          # doctest: +SKIP
        <Status.COMMITTED: 'committed'>
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.load()

    def convert(
        self,
        table: str,
        *,
        catalog: str = "default",
        branch: str = "main",
        where: str | None = None,
        all_or_nothing: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> Job:
        """Turn a table's equality deletes into position deletes (v2) or deletion vectors (v3).

        Args:
            table: ``namespace.table``; namespaces may be nested.
            catalog: A catalog as PyIceberg knows it.
            branch: The branch that is read and committed to.
            where: A filter as PyIceberg parses it; it must select whole partitions.
            all_or_nothing: Commit all units or none. By default those that fail are left out.
            on_progress: Called while the job runs, if there is no broker.

        Returns:
            The job; of two equal ones that wait for the same table, the first.

        Raises:
            Refused: the name is none, or the broker does not answer.
        """
        request = Request.new(table, catalog=catalog, branch=branch, where=where, all_or_nothing=all_or_nothing)
        return self.submit(request, on_progress=on_progress)

    def compact(
        self,
        table: str,
        *,
        strategy: str | None = None,
        sort_order: str | None = None,
        zorder: Sequence[str] | None = None,
        tier: str = "major",
        options: Mapping[str, Any] | None = None,
        catalog: str = "default",
        branch: str = "main",
        where: str | None = None,
        all_or_nothing: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> Job:
        """Rewrite small, oversized and delete-laden files into well-sized ones, with every delete applied.

        Args:
            table: ``namespace.table``; namespaces may be nested.
            strategy: ``binpack`` (the default), ``sort`` or ``zorder``.
            sort_order: Such as ``id desc nulls last, bucket(16, name)``; by default the table's sort order.
            zorder: Columns whose values are interleaved.
            tier: ``minor`` for small files only, ``major`` for what the thresholds say, ``full`` for every file.
            options: By the names of Iceberg's ``rewrite_data_files``, such as ``{"min-input-files": 2}``.
            catalog: A catalog as PyIceberg knows it.
            branch: The branch that is read and committed to.
            where: A filter as PyIceberg parses it; it must select whole partitions.
            all_or_nothing: Commit all units or none. By default those that fail are left out.
            on_progress: Called while the job runs, if there is no broker.

        Returns:
            The job; of two equal ones that wait for the same table, the first.

        Raises:
            Refused: the name is none, an option is unknown or not allowed, or the broker does not answer.
        """
        named = {"strategy": strategy, "sort-order": sort_order, "zorder": zorder, "tier": tier}
        asked = text_of({**named, **(options or {})})
        Options.parse(asked)
        request = Request.new(
            table,
            operation=Operation.COMPACT,
            catalog=catalog,
            branch=branch,
            where=where,
            all_or_nothing=all_or_nothing,
            options=asked,
        )
        return self.submit(request, on_progress=on_progress)

    def submit(self, request: Request, *, on_progress: ProgressCallback | None = None) -> Job:
        """Have a request worked on, as :meth:`convert` and :meth:`compact` do."""
        if self.settings.local:
            report = local_engine(self.settings).run(request, on_progress)
            return Job(request.job, self.settings, request=request, report=report)
        messenger, registry = Messenger(self.settings), JobRegistry(self.settings)
        messenger.check()
        if self.settings.redis_url != self.settings.broker_url:
            registry.check()
        job = registry.enqueue(request)
        if job == request.job:
            messenger.plan(request)
        return Job(job, self.settings, request=request.model_copy(update={"job": job}))

    def plan(
        self,
        table: str,
        *,
        operation: Operation | str = Operation.CONVERT,
        catalog: str = "default",
        branch: str = "main",
        where: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> PlanWithUnits:
        """What :meth:`convert`, or :meth:`compact` with these options, would do; nothing is written.

        Raises:
            Refused: the table, the branch, the filter or the options do not allow it.
            Corrupt: a manifest cannot be read.
        """
        request = Request.new(
            table,
            operation=Operation(operation),
            catalog=catalog,
            branch=branch,
            where=where,
            options=text_of(options or {}),
        )
        return self.planned(request)

    def planned(self, request: Request) -> PlanWithUnits:
        """What a request would do, as :meth:`plan`."""
        from producer.iceberg.catalog import open_table
        from producer.planning.planner import plan

        return plan(open_table(request.catalog, request.table), request, unit_bytes=self.settings.unit_mb << 20)

    def job(self, job: str) -> Job:
        """Look a job up again by its id, in any process.

        Raises:
            Refused: that is no job id.
        """
        return Job(job, self.settings)

    def jobs(self, table: str | None = None, *, catalog: str | None = None) -> list[Job]:
        """Recent jobs, newest first.

        Args:
            table: Only those of this table: what Redis knows of, and what the table's history and storage tell of.
            catalog: Only those of this catalog. By default all that Redis knows of; where it knows of none, and for a
                table, ``default``.
        """
        about = (catalog or "default", table) if table else (catalog, None)
        found = {job: at for job, at in JobRegistry(self.settings).jobs() if _is_about(job, *about)}
        if table is not None:
            try:
                from producer.iceberg.catalog import open_table

                found = {**dict(_jobs(open_table(catalog or "default", table))), **found}
            except IcefleetError:
                if not found:
                    raise
        elif not found:
            found = dict(item for opened in _tables(catalog or "default") for item in _jobs(opened))
        return [Job(job, self.settings) for job, _ in sorted(found.items(), key=lambda item: -item[1])]


def _is_about(job: str, catalog: str | None, table: str | None) -> bool:
    try:
        name = JobId.parse(job)
    except Refused:  # another version may have written it
        return False
    return catalog in (None, name.catalog) and table in (None, name.table)


def _tables(catalog: str) -> list[Table]:
    from producer.iceberg.catalog import open_catalog, table_names

    opened = open_catalog(catalog)
    return [opened.load_table(name) for name in table_names(opened)]


def _jobs(table: Table) -> list[tuple[str, float]]:
    """Jobs that have committed to a table, and those that are at work on its branches."""
    from producer.state.commit_history import jobs_of
    from producer.state.job_store import JobStore, branches_of

    found = dict(jobs_of(table.metadata))
    for operation in Operation:
        currents, _ = JobStore(table.io, table.metadata.location, "", branches_of(table.metadata)).currents(operation)
        for current in currents:
            if JobId.parse(current.job).table:
                found.setdefault(current.job, current.submitted)
    return list(found.items())
