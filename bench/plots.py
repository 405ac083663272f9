"""Pictures of results: one PNG for each workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import text
from bench.results import CaseResult, Contest, Outcome, WorkloadResult

_OWN, _PEER, _YARDSTICK = "#2a6f97", "#e07a3f", "#8d99ae"
_COLOURS: Final = {"iceberg-spark": _PEER, "plain-spark": "#f2b880", "icefleet-cold": "#89c2d9"}
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.dpi": 150,
    "figure.constrained_layout.h_pad": 0.08,
}
_WIDTH = 9.0  # inches


def draw(result: WorkloadResult, plot: str, path: Path) -> None:
    """Draw a workload.

    Args:
        plot: ``bars``, ``lines`` or ``heap``.
    """
    with mpl.rc_context(_STYLE):
        figure = {"bars": _bars, "lines": _lines, "heap": _heap}[plot](result.cases)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the version of Matplotlib in it: the same results make the same bytes.
        figure.savefig(path, metadata={"Software": None})


def _bars(cases: Sequence[CaseResult]) -> Figure:
    """For each case, time and memory of each contestant."""
    heights = [0.7 + 0.3 * len(case.contests) for case in cases]
    figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
    grid = figure.subplots(len(cases), 2, squeeze=False, height_ratios=heights, sharey="row")
    for (left, right), case in zip(grid, cases, strict=True):
        _bar(left, case, lambda contest: contest.seconds, text.seconds, whiskers=True)
        _bar(right, case, lambda contest: contest.peak_bytes, text.size, whiskers=False)
        left.set_title(f"{case.name}: time")
        right.set_title("peak memory")
    return figure


def _bar(
    axes: Axes,
    case: CaseResult,
    figure: Callable[[Contest], float | None],
    say: Callable[[float | None], str],
    *,
    whiskers: bool,
) -> None:
    values = [figure(contest) for contest in case.contests]
    most = max((value for value in values if value is not None), default=1.0)
    for number, (contest, value) in enumerate(zip(case.contests, values, strict=True)):
        if value is None:
            axes.text(most * 0.01, number, _why(contest), va="center", color="#777777", style="italic")
            continue
        axes.barh(number, value, height=0.65, color=_colour(contest))
        end = value
        if whiskers and len(contest.counted) > 1:
            times = [run.seconds for run in contest.counted]
            end = max(times)
            axes.hlines(number, min(times), end, color="#222222", linewidth=1)
        axes.text(end + most * 0.015, number, say(value), va="center")
    axes.set_yticks(range(len(values)), [contest.name for contest in case.contests])
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xlim(0, most * 1.22)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=False, length=0)
    axes.spines["bottom"].set_visible(False)


def _lines(cases: Sequence[CaseResult]) -> Figure:
    """Time and memory by the number that each case is named by, and where a straight line would go."""
    figure = Figure(figsize=(_WIDTH, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = list(dict.fromkeys(contest.name for case in cases for contest in case.contests))
    for name in names:
        found = [(int(case.name), contest) for case in cases if (contest := case.contest(name)) and contest.counted]
        if not found:
            continue
        numbers = [number for number, _ in found]
        colour = _colour(found[0][1])
        times = [contest.seconds or 0.0 for _, contest in found]
        left.plot(numbers, times, marker="o", markersize=4, color=colour, label=name)
        memory = [(contest.peak_bytes or 0) / 1e6 for _, contest in found]
        right.plot(numbers, memory, marker="o", markersize=4, color=colour, label=name)
        if name == names[0]:
            straight = [times[0] * number / numbers[0] for number in (numbers[0], numbers[-1])]
            ends = [numbers[0], numbers[-1]]
            label = f"{name}, were it in proportion to {numbers[0]}"
            left.plot(ends, straight, linestyle=":", color="#777777", label=label)
    for axes, title, unit in ((left, "time", "seconds"), (right, "peak memory", "MB")):
        axes.set_title(title)
        axes.set_ylabel(unit)
        axes.set_xlabel("commits")
        axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
        axes.set_xlim(left=0)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    if left.lines:
        left.legend(frameon=False)
    return figure


def _heap(cases: Sequence[CaseResult]) -> Figure:
    """For each case and heap, the time of those that finished, and how it went for the others."""
    figure = Figure(figsize=(_WIDTH, 2.8 * len(cases)), layout="constrained")
    for axes, case in zip(figure.subplots(len(cases), 1, squeeze=False)[:, 0], cases, strict=True):
        heaps = sorted({contest.heap_mb for contest in case.contests if contest.heap_mb})
        kinds = list(dict.fromkeys((contest.program, contest.does) for contest in case.contests if contest.heap_mb))
        most = max((contest.seconds for contest in case.contests if contest.seconds is not None), default=1.0)
        width = 0.8 / max(1, len(kinds))
        for contest in case.contests:
            if not contest.heap_mb:
                continue
            kind = kinds.index((contest.program, contest.does))
            where = heaps.index(contest.heap_mb) + (kind - (len(kinds) - 1) / 2) * width
            if contest.seconds is None:
                axes.text(
                    where, most * 0.02, f"✗ {contest.outcome}", rotation=90, ha="center", va="bottom", color="#b00020"
                )
                continue
            axes.bar(where, contest.seconds, width * 0.92, color=_colour(contest))
            label = f"{text.seconds(contest.seconds)}\n{text.size(contest.peak_bytes)}"
            axes.text(where, contest.seconds + most * 0.02, label, ha="center", va="bottom", fontsize=8)
        for program, does in kinds:
            named = next(one for one in case.contests if (one.program, one.does) == (program, does))
            axes.bar(0, 0, color=_colour(named), label=f"{program} {does}".strip())
        axes.set_xticks(range(len(heaps)), [f"{heap:,} MB heap" for heap in heaps])
        axes.set_ylim(0, most * 1.25)
        axes.set_ylabel("seconds")
        axes.set_title(f"{case.name}: time, and peak memory of the whole tree")
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _colour(contest: Contest) -> str:
    if contest.program == "icefleet" and contest.does == "compact":
        return "#52a675"
    usual = _OWN if contest.program.startswith("icefleet") else _YARDSTICK
    return _COLOURS.get(contest.program, usual)


def _why(contest: Contest) -> str:
    return str(contest.outcome) if contest.outcome is not Outcome.RAN else "rows differ"
