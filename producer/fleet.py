"""The fleet: what other applications enqueue tables with and find jobs with."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer.broker.queue import Messenger
from producer.broker.registry import JobRegistry
from producer.common.errors import Reason, Refused
from producer.common.settings import Settings
from producer.job import Job, ProgressCallback, local_engine
from producer.model.job import JobId, Operation, Request, check_table_name
from producer.planning import OPERATIONS
from producer.planning.compact.options import encode_options
from producer.storage.concurrency import limit_requests

if TYPE_CHECKING:  # loaded when a table is read: enqueueing does not need it
    from pyiceberg.table import Table

    from producer.planning.units import PlanWithUnits

log = logging.getLogger(__name__)


class Fleet:
    """Enqueues tables and finds jobs.

    With a broker a job is sent to the fleet, and the call returns within milliseconds, without reading the table.
    Without a broker the job runs in the calling process, and the call returns when it has ended.

    Example:
        >>> from producer import Fleet
        >>> job = Fleet().convert("db.events")         # doctest: +SKIP
        >>> job.wait().status                          # doctest: +SKIP
        <Status.COMMITTED: 'committed'>
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.load()
        limit_requests(self.settings.storage_requests)

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
            catalog: The name of a catalog in PyIceberg's configuration.
            branch: The branch to read and to commit to.
            where: A filter as PyIceberg parses it; it must select whole partitions.
            all_or_nothing: Commit all units or none. By default failed units are left out.
            on_progress: Called while the job runs, if there is no broker.

        Returns:
            The job, or an equal one that is already waiting for the table.

        Raises:
            Refused: The table name or the filter is not valid, or the broker does not answer.
        """
        request = Request.new(table, catalog=catalog, branch=branch, where=where, all_or_nothing=all_or_nothing)
        return self.submit(request, on_progress=on_progress)

    def compact(
        self,
        table: str,
        *,
        strategy: str | None = None,
        sort_order: str | Sequence[str] | None = None,
        zorder: str | Sequence[str] | None = None,
        tier: str = "major",
        options: Mapping[str, Any] | None = None,
        catalog: str = "default",
        branch: str = "main",
        where: str | None = None,
        all_or_nothing: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> Job:
        """Rewrite files that are small, oversized or have many deletes into well-sized ones, with every delete applied.

        The arguments that are not listed, the result and the errors are those of :meth:`convert`. An option that is
        unknown or not allowed is refused too.

        Args:
            strategy: ``binpack`` (the default), ``sort`` or ``zorder``.
            sort_order: Such as ``id desc nulls last, bucket(16, name)``, or a list of such terms; by default the
                table's sort order.
            zorder: Columns whose values are interleaved: a list of names, or names separated by commas; those with
                commas are in backticks then.
            tier: ``minor`` for small files only, ``major`` for files that the thresholds select, ``full`` for every
                file.
            options: Options of Iceberg's ``rewrite_data_files``, such as ``{"min-input-files": 2}``.
        """
        arguments = {"strategy": strategy, "sort-order": sort_order, "zorder": zorder, "tier": tier}
        given = encode_options({**arguments, **(options or {})})
        OPERATIONS[Operation.COMPACT].check_options(given)
        request = Request.new(
            table,
            operation=Operation.COMPACT,
            catalog=catalog,
            branch=branch,
            where=where,
            all_or_nothing=all_or_nothing,
            options=given,
        )
        return self.submit(request, on_progress=on_progress)

    def submit(self, request: Request, *, on_progress: ProgressCallback | None = None) -> Job:
        """Submit a request, as the methods named after operations do.

        Raises:
            Refused: The filter cannot be parsed, or the broker does not answer.
        """
        if request.where is not None:  # only then: the parser takes a quarter of a second to load
            from producer.planning.partition_filter import parse_filter

            parse_filter(request.where)
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
        """Return the plan of an operation with these options; nothing is written.

        Raises:
            Refused: There is no such operation; or the table, the branch, the filter or the options do not allow it.
            Corrupt: A manifest cannot be read.
        """
        if operation not in list(Operation):
            raise Refused(Reason.USAGE, f"There is no operation {operation!r}; there are {', '.join(Operation)}.")
        given, known = encode_options(options or {}), Operation(operation)
        OPERATIONS[known].check_options(given)
        request = Request.new(table, operation=known, catalog=catalog, branch=branch, where=where, options=given)
        return self.plan_request(request)

    def plan_request(self, request: Request) -> PlanWithUnits:
        """Return the plan of a request; see :meth:`plan`."""
        from producer.iceberg.catalog import open_table
        from producer.planning.planner import plan

        return plan(open_table(request.catalog, request.table), request, unit_bytes=self.settings.unit_mb << 20)

    def job(self, job: str) -> Job:
        """Return a job by its id, in any process.

        Raises:
            Refused: The text is not a job id.
        """
        return Job(job, self.settings)

    def jobs(self, table: str | None = None, *, catalog: str | None = None) -> list[Job]:
        """Return recent jobs, newest first.

        Args:
            table: Only jobs of this table: those in Redis, and those in the table's history and storage.
            catalog: Only jobs of this catalog. By default all jobs in Redis; if there are none, or if a table is given,
                those of ``default``.

        Raises:
            Refused: The table's name has no namespace, nothing is known of the table, or Redis does not answer.
        """
        if table is not None:
            check_table_name(table)
        wanted = (catalog or "default", table) if table else (catalog, None)
        registry = JobRegistry(self.settings)
        with registry.refused():
            found = {job: at for job, at in registry.jobs() if _is_job_of(job, *wanted)}
        if table is not None:
            try:
                from producer.iceberg.catalog import open_table

                found = {**_jobs(open_table(catalog or "default", table)), **found}
            except Exception:  # clients of catalogs and storage raise errors of many kinds
                if not found:
                    raise
        elif not found:
            found = dict(item for jobs in _jobs_of_tables(catalog or "default") for item in jobs.items())
        return [Job(job, self.settings) for job, _ in sorted(found.items(), key=lambda item: -item[1])]


def _is_job_of(job: str, catalog: str | None, table: str | None) -> bool:
    try:
        name = JobId.parse(job)
    except Refused:  # another version may have written it
        return False
    return catalog in (None, name.catalog) and table in (None, name.table)


def _jobs_of_tables(catalog: str) -> Iterator[dict[str, float]]:
    """Yield the jobs of each table of a catalog, without the tables that cannot be read."""
    from producer.iceberg.catalog import open_catalog, open_table, table_names

    for name in table_names(open_catalog(catalog)):
        try:
            yield _jobs(open_table(catalog, name))
        except Exception:  # clients of catalogs and storage raise errors of many kinds
            log.info("The jobs of %s cannot be read", name, exc_info=True)


def _jobs(table: Table) -> dict[str, float]:
    """Return the jobs that have committed to a table, and those that work on its branches, with their times."""
    from producer.state.commit_history import jobs_of
    from producer.state.job_store import JobStore, branches_of

    found = jobs_of(table.metadata)
    store = JobStore(table.io, table.metadata.location, "", branches_of(table.metadata))
    try:
        currents = [current for operation in Operation for current in store.currents(operation)[0]]
    except Exception:  # as storage's client raises it
        if not found:
            raise
        log.info("The records of jobs at %s cannot be read", store.location, exc_info=True)
        currents = []
    for current in currents:
        if JobId.parse(current.job).table:
            found.setdefault(current.job, current.submitted)
    return found
