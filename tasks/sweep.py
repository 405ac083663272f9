"""The sweeper: finds jobs whose messages were lost, and sends what is missing.

Messages are lost when Redis loses them. Jobs are found on the board and, when that was lost too, at their tables.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from producer.board import Board
from producer.catalog import open_catalog, open_table, table_names
from producer.errors import Corrupt, IcefleetError, Newer
from producer.messages import Operation, Request
from producer.messenger import Messenger
from producer.settings import Settings
from producer.store import JobStore

log = logging.getLogger(__name__)


def sweep(settings: Settings) -> list[str]:
    """Take up what stands still; returns the ids of the jobs that were taken up.

    A unit whose message is still queued may be sent a second time, which costs a look at storage and no more.
    """
    board, messenger = Board(settings), Messenger(settings)
    taken = []
    for request in board.heads():
        if _plan_again(request, settings, board, messenger):
            taken.append(request.job)
    for request, store in _working(settings):
        try:
            if _take_up(request, store, settings, board, messenger):
                taken.append(request.job)
        except Exception:  # one table's trouble is not the others'
            log.warning("could not look after %s", request.job, exc_info=True)
    return taken


def _take_up(request: Request, store: JobStore, settings: Settings, board: Board, messenger: Messenger) -> bool:
    if store.concluded():  # its clean-up died
        messenger.commit(request.job, store.location)
        return True
    plan = store.latest_plan()
    if plan is None:  # whoever was to plan it died, or who was to forget it did
        if board.report(request.job) is not None:
            store.forget()
            return False
        return _plan_again(request, settings, board, messenger)
    if store.cancelled() or next(store.at(plan).pending(plan.units), None) is None:
        messenger.commit(request.job, plan.location)  # safe to run twice, and nothing else ends the job
        return True
    if not board.start(request):
        return False
    board.keep(request)
    if not board.may_send_again(request.job, settings.visibility_timeout):
        return False
    messenger.stage(plan, store.at(plan).pending(plan.units))
    return True


def _plan_again(request: Request, settings: Settings, board: Board, messenger: Messenger) -> bool:
    if not board.start(request) or not board.may_send_again(request.job, settings.visibility_timeout):
        return False
    messenger.plan(request)
    return True


def _working(settings: Settings) -> Iterator[tuple[Request, JobStore]]:
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
                store = JobStore(table.io, table.metadata.location, "")
                try:
                    current = store.load_current(operation)
                except (Corrupt, Newer) as error:  # the board may know the job, or somebody newer
                    log.warning("%s", error)
                    continue
                if current is not None:
                    yield current, JobStore(table.io, table.metadata.location, current.token)
