"""What people see of plans, jobs and settings: tables, sentences and bars."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from producer.broker.leases import Holder
from producer.common.sizes import count_text, size_text
from producer.job import Progress as JobProgress
from producer.job_list import JobLine
from producer.model.job import Report, Status
from producer.model.plan import Plan, Rewrite
from producer.planning.operations import OPERATIONS

#: Results go to standard output, progress and refusals to standard error, so that programs can listen.
out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

_LONELY = 15.0  # seconds in the queue after which a person should wonder
_SHOWN = 40  # rows of a table before the rest is summed up
_REASON = 24  # columns that a reason takes at least
_ENDLESS = 1 << 16  # columns, more than any table takes

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
        print_table(_compaction_units(plan) if plan.rewrite else _conversion_units(plan))
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
        table.add_row(str(unit.number), escape(unit.label), *(f"{count:,}" for count in counts), size_text(unit.cost))
    _sum_up(table, plan)
    return table


def _compaction_units(plan: Plan) -> Table:
    table = _table(
        "unit", "partition", "files", "rows", "deletes", "to read", "to write", "why", numbers=(0, 2, 3, 4, 5, 6)
    )
    for unit in plan.units[:_SHOWN]:
        counts = (f"{count:,}" for count in (unit.files, unit.rows, unit.delete_files))
        sizes = (size_text(unit.cost), size_text(unit.output))
        table.add_row(str(unit.number), escape(unit.label), *counts, *sizes, unit.why)
    _sum_up(table, plan)
    return table


def _sum_up(table: Table, plan: Plan) -> None:
    if len(plan.units) > _SHOWN:
        table.add_row("…", count_text(len(plan.units) - _SHOWN, "more unit"))


def _show_conversion(plan: Plan) -> None:
    kind = "deletion vectors" if plan.format_version >= 3 else "position delete files"
    leaving = sum(r.complete for r in plan.retirements)
    staying = len(plan.retirements) - leaving
    out.print(
        f"{count_text(leaving, 'equality delete file')} {'becomes' if leaving == 1 else 'become'} {kind}: "
        f"{count_text(len(plan.units), 'unit')}, {count_text(sum(u.files for u in plan.units), 'data file')}, "
        f"{size_text(sum(u.cost for u in plan.units))} to read."
    )
    if staying:
        more = "1 more is applied and stays, since it reaches" if staying == 1 else ""
        more = more or f"{staying:,} more are applied and stay, since they reach"
        out.print(f"{more} partitions that are not selected.")


def _show_compaction(plan: Plan, rewrite: Rewrite) -> None:
    units = [unit for unit in plan.units if unit.refused is None]
    if units:
        outputs = sum(max(1, round(unit.output / rewrite.target_size)) for unit in units)
        rewritten = count_text(sum(u.files for u in units), "data file is", "data files are")
        out.print(
            f"{rewritten} rewritten ({rewrite.strategy}) "
            f"into about {count_text(outputs, 'file')} of {size_text(rewrite.target_size)}: "
            f"{count_text(len(units), 'unit')}, {size_text(sum(u.cost for u in units))} to read, "
            f"{size_text(sum(u.output for u in units))} to write."
        )
    elif plan.nothing:
        out.print(f"No data file is rewritten: {escape(plan.nothing)}.")
    if plan.dangling:
        out.print("Delete files that reach no data file any more are dropped.")


def show_report(report: Report) -> None:
    """How a job ended, in a few lines."""
    colour = _COLOURS.get(report.status, "blue")
    name, table = report.status.replace("_", " "), escape(report.table)
    if report.status is Status.NOTHING_TO_DO:
        out.print(f"[{colour}]Nothing to do[/{colour}] in {table}: {escape(report.reason or '')}.")
        return
    out.print(f"[{colour}]{table}: {name}[/{colour}]" + (f" — {escape(report.reason)}" if report.reason else ""))
    if report.snapshot_id is not None:
        change = OPERATIONS[report.operation].describe_result(report)
        out.print(f"  {change}; snapshot {report.snapshot_id}")
    if report.units:
        failed = f", {report.failed_units:,} failed" if report.failed_units else ""
        seconds = f", {report.seconds:,.1f} s" if report.seconds else ""
        out.print(f"  {count_text(report.units, 'unit')}{failed}{seconds}, job {report.job}")
    for failure in report.failures[1:_SHOWN]:
        out.print(f"  [red]failed[/red] {escape(failure.partition)}: {escape(failure.reason)}")


def show_progress(job: str, now: JobProgress) -> None:
    """How far a job is that has not ended, and who works on it."""
    shares = [f"{now.done:,} of {count_text(now.units, 'unit')}"] if now.units else []
    shares += [f"{now.files_done:,} of {count_text(now.files, 'file')}"] if now.files else []
    out.print(escape(", ".join([f"{job}: {now.status}", *shares])))
    for holder in now.holders[:_SHOWN]:
        out.print(f"  {escape(_holding(holder))}")


def _holding(holder: Holder) -> str:
    """Who holds a unit since when, how far it is, and when its worker was last seen."""
    since, seen = (time.strftime("%H:%M:%S", time.localtime(at)) for at in (holder.since, holder.seen))
    files = f", {holder.files_done:,} of {count_text(holder.files, 'file')}" if holder.files else ""
    partition = f" ({holder.partition})" if holder.partition else ""
    last = f"last seen at {seen}, {holder.silent:.0f} s ago"
    return f"unit {holder.unit}{partition}: {holder.worker} since {since}{files}, {last}"


def show_jobs(lines: Sequence[JobLine]) -> None:
    """Jobs, one a row; where a terminal is too narrow for that, one below the other. Ids are never broken."""
    if not lines:
        out.print("No jobs.")
        return
    table = _table("job", "catalog", "table", "status", "units", "started", "took", "reason", numbers=(4, 6))
    for column in table.columns[:-1]:
        column.no_wrap = True
    table.columns[-1].min_width = _REASON
    for line in lines:
        table.add_row(*_cells(line))
    least = Measurement.get(out, out.options.update(max_width=_ENDLESS), table).minimum
    if not out.is_terminal or least <= out.width:
        print_table(table)
        return
    for line in lines:
        job, _, _, *details, reason = _cells(line)
        out.print(job)
        out.print("  " + "  ".join(detail for detail in details if detail))
        if reason:
            out.print(f"  {reason}")


def _cells(line: JobLine) -> tuple[str, ...]:
    colour = _COLOURS.get(Status(line.status), "blue") if line.status in set(Status) else "dim"
    units = f"{line.done:,}/{line.units:,}" if line.units else ""
    took = "" if line.seconds is None else _duration(line.seconds)
    status = f"[{colour}]{line.status}[/{colour}]"
    texts = (escape(text) for text in (line.job, line.catalog, line.table))
    return *texts, status, units, line.started_text, took, escape(line.reason or "")


def _duration(seconds: float) -> str:
    """As ``4.2s``, ``12:07`` or ``3:12:07``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_settings(rows: Iterable[tuple[str, str, str, str]]) -> None:
    """Settings, one a row: variable, value, source, description."""
    table = _table("setting", "value", "from", "what it is")
    for name, value, source, description in rows:
        where = f"[bold]{source}[/bold]" if source != "default" else source
        table.add_row(escape(name), escape(value), where, escape(description))
    table.columns[0].no_wrap = True
    print_table(table)


def print_table(table: Table) -> None:
    """A table on standard output: fitted into a terminal, and as wide as it is where there is none."""
    # Whoever reads it without a terminal cuts lines apart: nothing is folded, whatever COLUMNS says.
    wide = out if out.is_terminal else Console(file=out.file, width=_ENDLESS, soft_wrap=True, highlight=False)
    wide.print(table)


class Bar:
    """A live progress bar on standard error; plain silence where that is no terminal."""

    def __init__(self, progress: Progress, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None, detail="")
        self._since = time.monotonic()

    def update(self, done: int, units: int, detail: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, total=units or None, detail=detail)

    def show(self, now: JobProgress) -> None:
        """Move the bar to where a job stands."""
        waited = time.monotonic() - self._since
        lonely = now.status is Status.QUEUED and waited > _LONELY
        self.update(now.done, now.units, "queued: is a worker running?" if lonely else now.detail or now.status)


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


def show_warning(sentence: str) -> None:
    """What a person should know and what stops nothing, on standard error."""
    err.print(f"[yellow]Warning:[/yellow] {escape(sentence)}")


def show_error(error: Exception) -> None:
    """A refusal or a failure, as a sentence on standard error."""
    err.print(f"[red]{type(error).__name__}:[/red] {escape(str(error))}")


def _table(*names: str, numbers: tuple[int, ...] = ()) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(names):
        table.add_column(name, justify="right" if index in numbers else "left", overflow="fold")
    return table
