"""What people see of plans, jobs and settings: tables, sentences and bars."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal as bytes_text
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from producer.holders import Holder
from producer.job import Progress as JobProgress
from producer.messages import Operation, Report, Status
from producer.plans import Plan, Rewrite

#: Results go to standard output, progress and refusals to standard error, so that programs can listen.
out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

_LONELY = 15.0  # seconds in the queue after which a person should wonder
_SHOWN = 40  # rows of a table before the rest is summed up

_COLOURS = {
    Status.COMMITTED: "green",
    Status.NOTHING_TO_DO: "green",
    Status.PARTIAL: "yellow",
    Status.FAILED: "red",
    Status.REFUSED: "red",
    Status.CANCELLED: "yellow",
}


def show_plan(plan: Plan) -> None:
    """A plan as a table of its units, or the reason why there are none."""
    if plan.empty:
        out.print(f"Nothing to do: {escape(plan.nothing or '')}.")
        return
    if plan.units:
        out.print(_compaction_units(plan) if plan.rewrite else _conversion_units(plan))
    for unit in [unit for unit in plan.units if unit.refused][:_SHOWN]:
        out.print(f"[red]refused[/red] unit {unit.number}: {escape(unit.refused or '')}")
    if plan.rewrite:
        _show_compaction(plan, plan.rewrite)
    else:
        _show_conversion(plan)


def _conversion_units(plan: Plan) -> Table:
    table = _table(
        "unit", "partition", "files", "rows", "deletes", "delete rows", "to read", numbers=(0, 2, 3, 4, 5, 6)
    )
    for unit in plan.units[:_SHOWN]:
        counts = (unit.files, unit.rows, unit.delete_files, unit.delete_rows)
        table.add_row(str(unit.number), escape(unit.label), *(f"{count:,}" for count in counts), bytes_text(unit.cost))
    _sum_up(table, plan)
    return table


def _compaction_units(plan: Plan) -> Table:
    table = _table(
        "unit", "partition", "files", "rows", "deletes", "to read", "to write", "why", numbers=(0, 2, 3, 4, 5, 6)
    )
    for unit in plan.units[:_SHOWN]:
        counts = (f"{count:,}" for count in (unit.files, unit.rows, unit.delete_files))
        sizes = (bytes_text(unit.cost), bytes_text(unit.output))
        table.add_row(str(unit.number), escape(unit.label), *counts, *sizes, unit.why)
    _sum_up(table, plan)
    return table


def _sum_up(table: Table, plan: Plan) -> None:
    if len(plan.units) > _SHOWN:
        table.add_row("…", f"{len(plan.units) - _SHOWN} more units")


def _show_conversion(plan: Plan) -> None:
    kind = "deletion vectors" if plan.format_version >= 3 else "position delete files"
    leaving = sum(r.complete for r in plan.retirements)
    staying = len(plan.retirements) - leaving
    out.print(
        f"{leaving:,} equality delete files become {kind}: {len(plan.units):,} units, "
        f"{sum(u.files for u in plan.units):,} data files, {bytes_text(sum(u.cost for u in plan.units))} to read."
    )
    if staying:
        out.print(f"{staying:,} more are applied and stay, since they reach partitions that are not selected.")


def _show_compaction(plan: Plan, rewrite: Rewrite) -> None:
    units = [unit for unit in plan.units if unit.refused is None]
    if units:
        out.print(
            f"{sum(u.files for u in units):,} data files are rewritten ({rewrite.strategy}) into files of about "
            f"{bytes_text(rewrite.target_size)}: {len(units):,} units, {bytes_text(sum(u.cost for u in units))} to "
            f"read, {bytes_text(sum(u.output for u in units))} to write."
        )
    elif plan.nothing:
        out.print(f"No data file is rewritten: {escape(plan.nothing)}.")
    if plan.dangling:
        out.print("Delete files that reach no data file any more are dropped.")


def show_report(report: Report) -> None:
    """How a job ended, in a few lines."""
    colour = _COLOURS.get(report.status, "blue")
    name = report.status.replace("_", " ")
    if report.status is Status.NOTHING_TO_DO:
        out.print(f"[{colour}]Nothing to do[/{colour}] in {report.table}: {escape(report.reason or '')}.")
        return
    out.print(f"[{colour}]{report.table}: {name}[/{colour}]" + (f" — {escape(report.reason)}" if report.reason else ""))
    if report.snapshot_id is not None and report.operation is Operation.COMPACT:
        out.print(
            f"  {report.rewritten_data_files:,} data files became {report.added_data_files:,}, "
            f"{bytes_text(report.removed_bytes)} became {bytes_text(report.added_bytes)}, "
            f"{report.removed_delete_files:,} delete files removed; snapshot {report.snapshot_id}"
        )
    elif report.snapshot_id is not None:
        added = [f"{report.added_dvs:,} deletion vectors"] if report.added_dvs else []
        added += [f"{report.added_position_delete_files:,} position delete files"] if not added else []
        out.print(
            f"  {report.removed_equality_delete_files:,} equality delete files became {added[0]} with "
            f"{report.added_position_deletes:,} positions; snapshot {report.snapshot_id}"
        )
    if report.units:
        failed = f", {report.failed_units:,} failed" if report.failed_units else ""
        seconds = f", {report.seconds:,.1f} s" if report.seconds else ""
        out.print(f"  {report.units:,} units{failed}{seconds}, job {report.job}")
    for failure in report.failures[1:_SHOWN]:
        out.print(f"  [red]failed[/red] {escape(failure.partition)}: {escape(failure.reason)}")


def show_progress(job: str, now: JobProgress) -> None:
    """How far a job is that has not ended."""
    share = f", {now.done} of {now.units} units" if now.units else ""
    out.print(f"{job}: {now.status}{share}")
    for holder in now.holders[:_SHOWN]:
        out.print(f"  {escape(_holding(holder))}")


def _holding(holder: Holder) -> str:
    """Who holds a unit since when, how far it is, and when its worker was last seen."""
    since, seen = (time.strftime("%H:%M:%S", time.localtime(at)) for at in (holder.since, holder.seen))
    files = f", {holder.files_done} of {holder.files} files" if holder.files else ""
    partition = f" ({holder.partition})" if holder.partition else ""
    last = f"last seen at {seen}, {holder.silent:.0f} s ago"
    return f"unit {holder.unit}{partition}: {holder.worker} since {since}{files}, {last}"


def show_jobs(rows: Iterable[tuple[str, str, str, str]]) -> None:
    """Jobs, one a row: id, table, status, units."""
    table = _table("job", "table", "status", "units")
    for job, name, status, units in rows:
        colour = _COLOURS.get(Status(status), "blue") if status in set(Status) else "dim"
        table.add_row(job, name, f"[{colour}]{status}[/{colour}]", units)
    if table.row_count:
        out.print(table)
    else:
        out.print("No jobs.")


def show_settings(rows: Iterable[tuple[str, str, str, str]]) -> None:
    """Settings, one a row: variable, value, source, description."""
    table = _table("setting", "value", "from", "what it is")
    for name, value, source, description in rows:
        table.add_row(name, value, f"[bold]{source}[/bold]" if source != "default" else source, description)
    out.print(table)


class Bar:
    """A live progress bar on standard error; plain silence where that is no terminal."""

    def __init__(self, progress: Progress, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None, detail="")
        self._since = time.monotonic()

    def told(self, done: int, units: int, detail: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, total=units or None, detail=detail)

    def show(self, now: JobProgress) -> None:
        """Move the bar to where a job stands."""
        waited = time.monotonic() - self._since
        lonely = now.status is Status.QUEUED and waited > _LONELY
        self.told(now.done, now.units, "queued: is a worker running?" if lonely else now.detail or now.status)


@contextmanager
def bar(title: str, *, quiet: bool = False) -> Iterator[Bar]:
    """A progress bar that is gone when the work is done."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("units"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[detail]}"),
    )
    with Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal) as progress:
        yield Bar(progress, title)


def show_error(error: Exception) -> None:
    """A refusal or a failure, as a sentence on standard error."""
    err.print(f"[red]{type(error).__name__}:[/red] {escape(str(error))}")


def _table(*names: str, numbers: tuple[int, ...] = ()) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(names):
        table.add_column(name, justify="right" if index in numbers else "left", overflow="fold")
    return table
