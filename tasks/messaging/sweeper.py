"""The sweeper: finds jobs whose messages were lost, and sends what is missing.

Redis may lose messages. Jobs are found in the registry and, if that is lost too, at their tables.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
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

#: Sweeps for which a job's messages are taken to be on their way: sending very many takes a while.
_QUIET_SWEEPS: Final = 2


def sweep(settings: Settings) -> list[str]:
    """Resume jobs that stand still; return their ids.

    The message of a unit may be sent a second time, which costs a look at storage and no more.
    """
    sweeper, seen, resumed = _Sweeper(settings), set(), []
    heads = sweeper.registry.next_requests()
    known = [job for job, _ in sweeper.registry.jobs()]
    for request, store in current_jobs(settings, known):
        seen.add(request.job)
        try:
            if sweeper.resume(request, store):
                resumed.append(request.job)
        except Exception:  # an error at one table must not stop the others
            log.warning("%s cannot be resumed", request.job, exc_info=True)
    # A job that is next in its table's queue and not recorded at the table is not planned yet.
    return resumed + [head.job for head in heads if head.job not in seen and sweeper.plan_again(head)]


class _Sweeper:
    def __init__(self, settings: Settings) -> None:
        self.registry = JobRegistry(settings)
        self._messenger = Messenger(settings)
        self._queue = QueueInspector(settings)
        self._seconds = settings.visibility_timeout
        self._quiet_seconds = _QUIET_SWEEPS * settings.sweep_seconds
        self._catalogs = settings.catalog_names

    def resume(self, request: Request, store: JobStore) -> bool:
        """Send the missing messages of a job that is recorded at its table; return whether there are any."""
        job = request.job
        if store.has_conclusion() or self.registry.report(job) is not None:  # its clean-up died or never began
            self._messenger.commit(job, store.location)
            return True
        plan = store.latest_plan()
        if plan is not None and (store.is_cancelled() or next(store.at(plan).pending(plan.units), None) is None):
            self._messenger.commit(job, plan.location)  # safe to run twice, and nothing else ends the job
            return True
        if not self.registry.lock(request):
            return False
        if store.request_of(request.operation, job) is None:  # a process without a broker has ended it just now
            if (waiting := self.registry.release(request)) is not None:
                self._messenger.plan(waiting)
            return False
        if plan is None:  # the process that was to plan it died
            return self.plan_again(request)
        self.registry.extend_lock(request)
        if units := self._lost_units(plan, store):
            self.registry.mark_sent(job, self._seconds)
            self._messenger.stage(plan, units)
        return bool(units)

    def plan_again(self, request: Request) -> bool:
        """Have a job planned whose message is lost, if its table is free; return whether it is sent."""
        if not self.registry.lock(request):
            return False
        if not self.registry.may_send_again(request.job, self._seconds):
            is_swept = request.catalog in self._catalogs  # else it may be planned already
            if not is_swept or not self._is_quiet(request.job) or not self._queue.is_lost(plan_id(request.job)):
                return False
            self.registry.mark_sent(request.job)
        self._messenger.plan(request)
        return True

    def _lost_units(self, plan: Plan, store: JobStore) -> list[int]:
        """Return the pending units that no message is for; all of them after the visibility timeout."""
        job, pending = plan.request.job, store.at(plan).pending(plan.units)
        if self.registry.may_send_again(job, self._seconds):
            return list(pending)
        if not self._is_quiet(job) or self._queue.task_ids is None:  # checked before storage is read
            return []
        return [unit for unit in pending if self._queue.is_lost(unit_id(plan, unit))]

    def _is_quiet(self, job: str) -> bool:
        return self.registry.sent_before(job, self._quiet_seconds)


def current_jobs(settings: Settings, known: Iterable[str] = ()) -> Iterator[tuple[Request, JobStore]]:
    """Yield the jobs that are recorded at the tables of the catalogs in ``ICEFLEET_CATALOGS``.

    Catalogs may refuse to list tables: those of the ``known`` jobs are looked at too.
    """
    tables = defaultdict(list)
    for job in known:
        with suppress(Refused):  # another version may have written it
            tables[JobId.parse(job).catalog].append(JobId.parse(job).table)
    for catalog in settings.catalog_names:
        names = dict.fromkeys(tables[catalog])
        try:
            names |= dict.fromkeys(table_names(open_catalog(catalog)))
        except Refused as error:
            log.warning("%s", error)
        except Exception as error:  # an error at one catalog or table must not stop the others
            log.warning("the tables of catalog %s cannot be listed: %s", catalog, error)
        for name in names:
            try:
                yield from _jobs_at(catalog, name)
            except IcefleetError:
                continue  # dropped since, or unreadable
            except Exception as error:  # its storage is away, or denies access
                log.warning("the jobs at %s cannot be read: %s", name, error)


def _jobs_at(catalog: str, name: str) -> list[tuple[Request, JobStore]]:
    table, jobs = open_table(catalog, name), []
    location, branches = table.metadata.location, branches_of(table.metadata)
    for operation in Operation:
        found, wrong = JobStore(table.io, location, "", branches).currents(operation)
        for problem in wrong:  # the registry may know the job, or a newer version may read the record
            log.warning("%s", problem)
        for current in found:
            if _is_job_at(current, catalog, name):
                jobs.append((current, JobStore(table.io, location, current.token, branches)))
    return jobs


def _is_job_at(request: Request, catalog: str, table: str) -> bool:
    """Return whether a record at a table is of a job on this table: records must not reach other tables."""
    with suppress(Refused):
        job = JobId.parse(request.job)
        if (job.catalog, job.table) == (request.catalog, request.table) == (catalog, table):
            return True
    log.warning("%s is recorded at %s, and is not a job on that table", request.job, table)
    return False
