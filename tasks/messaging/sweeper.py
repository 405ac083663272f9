"""The sweeper: finds jobs whose messages were lost, and sends what is missing.

Messages are lost when Redis loses them. Jobs are found on the registry and, when that was lost too, at their tables.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from producer.broker.queue import Messenger, QueueInspector, plan_id, unit_id
from producer.broker.registry import JobRegistry
from producer.common.errors import IcefleetError, Refused
from producer.common.settings import Settings
from producer.iceberg.catalog import open_catalog, open_table, table_names
from producer.model.job import JobId, Operation, Request
from producer.model.plan import Plan
from producer.state.job_store import JobStore, branches_of

log = logging.getLogger(__name__)


#: Looks of the sweeper for which a job's messages are taken to be on their way: sending very many takes a while.
_REST: Final = 2


def sweep(settings: Settings) -> list[str]:
    """Take up what stands still; returns the ids of the jobs that were taken up.

    A unit whose message is still queued may be sent a second time, which costs a look at storage and no more.
    """
    sweeper, seen, taken = _Sweeper(settings), set(), []
    heads = sweeper.registry.next_requests()
    for request, store in working(settings):
        seen.add(request.job)
        try:
            if sweeper.take_up(request, store):
                taken.append(request.job)
        except Exception:  # one table's trouble is not the others'
            log.warning("could not look after %s", request.job, exc_info=True)
    # Whoever is at the head of a table's queue and not at the table was not planned yet.
    return taken + [head.job for head in heads if head.job not in seen and sweeper.plan_again(head)]


class _Sweeper:
    """One look at all jobs."""

    def __init__(self, settings: Settings) -> None:
        self.registry = JobRegistry(settings)
        self._messenger = Messenger(settings)
        self._queue = QueueInspector(settings)
        self._seconds = settings.visibility_timeout
        self._rest = _REST * settings.sweep_seconds
        self._catalogs = settings.catalog_names

    def take_up(self, request: Request, store: JobStore) -> bool:
        """Send what is missing of a job that is noted at its table; whether there was anything."""
        job = request.job
        if store.has_conclusion() or self.registry.report(job) is not None:  # its clean-up died, or never began
            self._messenger.commit(job, store.location)
            return True
        plan = store.latest_plan()
        if plan is None:  # whoever was to plan it died
            return self.plan_again(request)
        if store.is_cancelled() or next(store.at(plan).pending(plan.units), None) is None:
            self._messenger.commit(job, plan.location)  # safe to run twice, and nothing else ends the job
            return True
        if not self.registry.lock(request):
            return False
        self.registry.extend_lock(request)
        units = self._unsent(plan, store)
        if units:
            self.registry.mark_sent(job, self._seconds)
            self._messenger.stage(plan, units)
        return bool(units)

    def plan_again(self, request: Request) -> bool:
        """Have a job planned whose message is lost, when its table is free; whether it was."""
        if not self.registry.lock(request):
            return False
        if not self.registry.may_send_again(request.job, self._seconds):
            visited = request.catalog in self._catalogs  # else it may be planned, and nobody has looked
            if not visited or not self._has_rested(request.job) or not self._queue.is_lost(plan_id(request.job)):
                return False
            self.registry.mark_sent(request.job)
        self._messenger.plan(request)
        return True

    def _unsent(self, plan: Plan, store: JobStore) -> list[int]:
        """Units that nobody is going to stage: all that are left when their time is over, before it those lost."""
        job, pending = plan.request.job, store.at(plan).pending(plan.units)
        if self.registry.may_send_again(job, self._seconds):
            return list(pending)
        if not self._has_rested(job) or self._queue.task_ids is None:  # looked at before storage is
            return []
        return [unit for unit in pending if self._queue.is_lost(unit_id(plan, unit))]

    def _has_rested(self, job: str) -> bool:
        return self.registry.sent_before(job, self._rest)


def working(settings: Settings) -> Iterator[tuple[Request, JobStore]]:
    """The jobs that are noted at the tables of the catalogs in ``ICEFLEET_CATALOGS``."""
    for catalog in settings.catalog_names:
        try:
            names = list(table_names(open_catalog(catalog)))
        except IcefleetError as error:
            log.warning("%s", error)
            continue
        for name in names:
            try:
                table = open_table(catalog, name)
            except IcefleetError:
                continue  # dropped since, or not ours to mend
            for operation in Operation:
                branches = branches_of(table.metadata)
                found, wrong = JobStore(table.io, table.metadata.location, "", branches).currents(operation)
                for what in wrong:  # the registry may know the job, or somebody newer
                    log.warning("%s", what)
                for current in found:
                    if _about(current, catalog, name):
                        yield current, JobStore(table.io, table.metadata.location, current.token, branches)


def _about(request: Request, catalog: str, table: str) -> bool:
    """Whether what is noted at a table is a job at it: whoever writes there has no business at other tables."""
    try:
        job = JobId.parse(request.job)
    except Refused:
        job = None
    if job is not None and (job.catalog, job.table) == (request.catalog, request.table) == (catalog, table):
        return True
    log.warning("%s is noted at %s, and is no job there", request.job, table)
    return False
