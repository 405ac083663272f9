"""Rendering for people: plans, reports, progress bars, tables and warnings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from producer.common.sizes import count_text
from producer.job import Progress as JobProgress
from producer.model.job import Report, Status
from producer.model.plan import Plan, UnitHeader
from producer.planning import OPERATIONS

#: Results go to standard output, progress and errors to standard error, so that programs can read the results.
out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

MAX_ROWS = 40  # of a table; the rest is summed up
_UNLIMITED_WIDTH = 1 << 16  # characters, more than any table takes
_MIN_TEXT_WIDTH = 18  # characters of a column that may wrap
_QUEUED_HINT_SECONDS = 15.0  # in the queue, after which the progress bar asks whether a worker runs

COLOURS = {
    Status.COMMITTED: "green",
    Status.NOTHING_TO_DO: "green",
    Status.PARTIAL: "yellow",
    Status.FAILED: "red",
    Status.REFUSED: "red",
    Status.CANCELLED: "yellow",
}


@dataclass(frozen=True, slots=True)
class UnitColumn:
    """A column of a plan's table of units."""

    name: str
    #: The text of a unit's cell.
    cell: Callable[[UnitHeader], str]
    is_number: bool = True


def show_plan(plan: Plan, columns: Sequence[UnitColumn], summary: Iterable[str]) -> None:
    """Print a plan: its units with these columns after number and label, and the summary; or why it is empty."""
    if plan.empty:
        out.print(f"Nothing to do: {escape(plan.nothing or '')}.")
        return
    if plan.units:
        names = ("unit", "partition", *(column.name for column in columns))
        numbers = (0, *(n for n, column in enumerate(columns, 2) if column.is_number))
        table = new_table(*names, numbers=numbers, texts=tuple(n for n in range(len(names)) if n not in numbers))
        for unit in plan.units[:MAX_ROWS]:
            table.add_row(str(unit.number), escape(unit.label), *(column.cell(unit) for column in columns))
        if len(plan.units) > MAX_ROWS:
            table.add_row("…", count_text(len(plan.units) - MAX_ROWS, "more unit"))
        print_table(table)
    for unit in [unit for unit in plan.units if unit.refused][:MAX_ROWS]:
        out.print(f"[red]refused[/red] unit {unit.number}: {escape(unit.refused or '')}")
    for sentence in summary:
        out.print(escape(sentence))


def show_report(report: Report) -> None:
    """Print how a job ended, in a few lines."""
    colour = COLOURS.get(report.status, "blue")
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
    if report.storage is not None and report.storage.warning is not None:
        out.print(f"  {report.storage.warning}")
    for failure in report.failures[1:MAX_ROWS]:
        out.print(f"  [red]failed[/red] {escape(failure.partition)}: {escape(failure.reason)}")


def new_table(*names: str, numbers: Sequence[int] = (), texts: Sequence[int]) -> Table:
    """Return an empty table: the columns ``numbers`` are aligned to the right, the cells of ``texts`` may wrap."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(names):
        justify: JustifyMethod = "right" if index in numbers else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=index not in texts)
    return table


def print_table(table: Table) -> None:
    """Print a table on standard output, fitted to the terminal, or at its full width if there is none.

    If the terminal is too narrow for columns, each row becomes a block of lines: its first cell, then the other cells
    with the names of their columns. Only columns that may wrap are made narrower than their cells.
    """
    if not out.is_terminal:
        # Programs split the output into lines: no cell is folded, whatever COLUMNS says.
        Console(file=out.file, width=_UNLIMITED_WIDTH, soft_wrap=True, highlight=False).print(table)
    elif _least_width(table) <= out.width:
        out.print(table)
    else:
        for row in zip(*(column.cells for column in table.columns), strict=True):
            _print_block(table.columns, [str(cell) for cell in row])


def _least_width(table: Table) -> int:
    """Return the columns of a terminal that a table takes at least."""
    natural = Measurement.get(out, out.options.update(max_width=_UNLIMITED_WIDTH), table).maximum
    texts = [max(_width(str(cell)) for cell in column.cells) for column in table.columns if not column.no_wrap]
    return natural - sum(width - min(width, _MIN_TEXT_WIDTH) for width in texts)


def _print_block(columns: Sequence[Column], cells: Sequence[str]) -> None:
    """Print a row of a table as a block: the cells that are not empty, as many on a line as there is room for."""
    title = f"{columns[0].header} {cells[0]}" if columns[0].justify == "right" else cells[0]
    lines = [f"[bold]{title}[/bold]"]
    for column, cell in zip(columns[1:], cells[1:], strict=True):
        name = f"[dim]{column.header}[/dim]"
        if not cell:
            continue
        if len(lines) > 1 and _width(f"{lines[-1]}  {name} {cell}") <= out.width:
            lines[-1] += f"  {name} {cell}"
            continue
        lines.append(f"  {name}")
        for number, word in enumerate([cell] if column.no_wrap else cell.split()):
            if number == 0 or _width(f"{lines[-1]} {word}") <= out.width:
                lines[-1] += f" {word}"
            else:
                lines.append(f"    {word}")
    for line in lines:
        out.print(line)


def _width(text: str) -> int:
    return cell_len(Text.from_markup(text).plain)


class Bar:
    """A live progress bar on standard error; it prints nothing if that is no terminal."""

    def __init__(self, progress: Progress, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None, detail="")
        self._since = time.monotonic()

    def update(self, done: int, units: int, detail: str) -> None:
        """Update the bar."""
        self._progress.update(self._task, completed=done, total=units or None, detail=detail)

    def show(self, now: JobProgress) -> None:
        """Update the bar with the progress of a job."""
        waited = time.monotonic() - self._since
        unserved = now.status is Status.QUEUED and waited > _QUEUED_HINT_SECONDS
        hint = "queued: is a worker running?" if unserved else now.detail or now.status
        self.update(now.done, now.units, now.problem or hint)


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Bar]:
    """Show a progress bar until the work is done."""
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
    """Print a warning on standard error."""
    err.print(f"[yellow]Warning:[/yellow] {escape(sentence)}")


def show_error(error: Exception) -> None:
    """Print an error on standard error."""
    err.print(f"[red]{type(error).__name__}:[/red] {escape(str(error))}")
