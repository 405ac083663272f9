"""What the demonstration prints: a line for each step, a table of the states, and what to type next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from producer.cli.render import err, out, print_table
from tasks.demo.catalog import DemoCatalog
from tasks.demo.outcome import Outcome, TableState
from tasks.demo.reading import Reading


@dataclass
class Step:
    """A step that is running."""

    #: Moves the bar by one.
    advance: Callable[[], None]
    #: The line that is printed at the end of the step.
    result: str


class Page:
    """Results on standard output, unless it is quiet for programs that read it; live bars on standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def say(self, text: str = "") -> None:
        """Print a line, with rich's markup."""
        if not self._quiet:
            out.print(text)

    @contextmanager
    def step(self, title: str, total: int | None = None, *, live: bool = True) -> Iterator[Step]:
        """Show a bar while a step runs, unless the step shows one itself, and print a line at its end.

        ``total`` is how often the step advances, if that is known.
        """
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        started = time.perf_counter()
        with Progress(*columns, console=err, transient=True, disable=not live or not err.is_terminal) as progress:
            step = Step(partial(progress.advance, progress.add_task(title, total=total)), title)
            yield step
        self.say(f"[green]✓[/green] {step.result} [dim]({time.perf_counter() - started:.1f} s)[/dim]")

    def print_outcome(self, outcome: Outcome) -> None:
        """Print the states of the table side by side, and what follows from them."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("", "loaded", "streamed", "converted", "compacted"):
            table.add_column(name, justify="right" if name else "left", no_wrap=True)
        converted, compacted = outcome.conversion.state, outcome.compaction.state
        states = (outcome.loaded, outcome.streamed, converted, compacted)

        def row(name: str, cell: Callable[[TableState], str]) -> None:
            table.add_row(name, *(cell(state) for state in states))

        row("data files", lambda state: f"{state.files.data:,}")
        row("equality delete files", lambda state: f"{state.files.equality_deletes:,}")
        if converted.files.vectors:
            row("deletion vectors", lambda state: f"{state.files.vectors:,}")
        else:
            row("position delete files", lambda state: f"{state.files.position_deletes:,}")
        row("rows", lambda state: _read(state.reading, lambda r: f"{r.checksum.rows:,}"))
        row("checksum", lambda state: _read(state.reading, lambda r: f"{str(r.checksum)[:8]}…"))
        row("Q6, iceberg-rust", lambda state: _read(state.reading, lambda r: f"{r.query_seconds:,.2f} s"))
        row("scan, iceberg-rust", lambda state: _read(state.reading, lambda r: f"{r.scan_seconds:,.2f} s"))
        row("PyIceberg", lambda state: "reads it" if isinstance(state.pyiceberg, int) else "[red]cannot[/red]")
        if not self._quiet:
            out.print()
            print_table(table)
        if outcome.difference is not None:
            self.say(f"[bold red]The table is not right:[/bold red] {escape(outcome.difference)}.")
            return
        if (times := outcome.times_faster) is not None and times >= 2:
            self.say(f"iceberg-rust answers Q6 [bold green]{times:,.0f} times[/bold green] faster than before.")
        self.say(
            "All rows are what the stream wrote: [bold green]checksums are equal[/bold green]. "
            "The same jobs once more found nothing to do."
        )
        self.say("[dim]iceberg-rust tests each row against each deleted key; engines that join them lose less.[/dim]")

    def print_next_commands(self, catalog: DemoCatalog, *, is_converted: bool) -> None:
        """Print what to type next."""
        names = ("plan", "jobs") if is_converted else ("plan", "convert", "compact")
        self.say("\n[bold]Look further[/bold]")
        for command in (*catalog.exports(), *(catalog.command(name) for name in names)):
            self.say(f"  {escape(command)}")
        self.say("[bold]Clean up[/bold]")
        self.say(f"  {escape(catalog.removal())}")


def _read(reading: Reading | None, cell: Callable[[Reading], str]) -> str:
    return "[red]stopped[/red]" if reading is None else cell(reading)
