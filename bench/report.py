"""The report: a page of tables and plots, made from results; only the page about limits is written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from bench import text
from bench.case import Workload
from bench.files import Files
from bench.plots import draw
from bench.programs import PROGRAMS
from bench.results import CaseResult, Contest, Outcome, Results, WorkloadResult
from bench.targets import Target, targets

_PAGE = "README.md"
#: The one page beside the results that is written by hand.
_LIMITS = "limits.md"
_HEAD = (
    "contestant",
    "median",
    "ratio",
    "min–max",
    "CPU",
    "peak memory",
    "read",
    "written",
    "write amplification",
    "files",
    "query",
    "rows",
    "runs",
)


def write(folder: Path, workloads: Mapping[str, Workload]) -> Path:
    """Write the page and its plots from the results in a folder, and return the page.

    Args:
        workloads: All workloads; those without results are listed as not run.
    """
    results = Results.load(folder)
    lines = [*_opening(results), *_targets(results), *_limits(folder)]
    for name, workload in workloads.items():
        lines += [f"## {workload.title}", "", workload.about, ""]
        if (result := results.workloads.get(name)) is None:
            lines += [f"Not run: `python -m bench run {name}`.", ""]
            continue
        draw(result, workload.plot, folder / "plots" / f"{name}.png")
        lines += [f"![{workload.title}](plots/{name}.png)", "", *_workload(result)]
    lines += _explanations(results)
    page = folder / _PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return page


def _opening(results: Results) -> Iterator[str]:
    yield from ("# Icefleet beside its peers", "")
    yield "Written by `make bench` from the results beside it. Compare ratios, which are of one run on one machine, and"
    yield "not times of different machines. Figures are medians of runs whose rows were checked; memory is that of all"
    yield from ("processes together.", "")
    rows = [
        [name, result.date, result.size, *_machine(result), text.seconds(result.seconds)]
        for name, result in results.workloads.items()
    ]
    yield from text.table(
        ("workload", "measured at", "size", "cores", "memory", "CPU", "kernel", "took"), rows, words=7
    )
    yield ""
    for versions, names in _versions(results).items():
        of = "" if len(names) == len(results.workloads) else f" of {', '.join(names)}"
        yield from (f"Versions{of}: {'; '.join(f'{name} {version}' for name, version in versions)}.", "")


def _machine(result: WorkloadResult) -> tuple[str, ...]:
    machine = result.machine
    return str(machine.cores), text.size(machine.memory_bytes), machine.cpu, machine.kernel


def _versions(results: Results) -> dict[tuple[tuple[str, str], ...], list[str]]:
    """Workloads by the versions they were measured with."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, result in results.workloads.items():
        found.setdefault(tuple(sorted(result.versions.items())), []).append(name)
    return found


def _targets(results: Results) -> Iterator[str]:
    yield from ("## Targets", "")
    sizes = {name: result.size for name, result in results.workloads.items()}
    if set(sizes.values()) - {"full"}:
        yield from ("Targets apply to the full size only.", "")

    def verdict(target: Target) -> str:
        size = sizes.get(target.workload.lower().replace(" ", "-"), "full")
        return target.verdict if size == "full" else f"{size} size"

    rows = [[one.workload, one.goal, one.figure or text.NOTHING, verdict(one)] for one in targets(results)]
    yield from (*text.table(("", "target", "figure", ""), rows, words=4), "")


def _limits(folder: Path) -> Iterator[str]:
    """The page about what limits the targets that are missed."""
    found = folder / _LIMITS
    if found.exists():
        yield from ("### What limits it", "", found.read_text(encoding="utf-8").strip(), "")


def _workload(result: WorkloadResult) -> Iterator[str]:
    for case in result.cases:
        yield from (f"### {case.title[:1].upper()}{case.title[1:]}", "")
        tables = f"{case.tables:,} tables, " if case.tables > 1 else ""
        changes = f"{text.size(case.changed_bytes)} of changes" if case.changed_bytes else ""
        query = f"`{' '.join(case.query.split())}`, run by {case.reader}" if case.query and case.reader else ""
        known = [f"{tables}{case.rows:,} rows, {_files(case.files)}", f"{case.cores} cores", changes]
        yield from ("; ".join(part for part in known if part) + ".", "")
        if query:
            yield from (f"Query: {query}.", "")
        yield from (*text.table(_HEAD, [_row(case, contest) for contest in case.contests]), "")
        yield from _traffic(case)
        yield from _notes(case)


def _row(case: CaseResult, contest: Contest) -> list[str]:
    runs = contest.counted
    name = f"**{contest.name}**" if _is_own(contest) else contest.name
    if contest.heap_mb and " MB" not in contest.name:
        name += f", {contest.heap_mb:,} MB heap"
    if not runs:
        word = str(contest.outcome) if contest.outcome is not Outcome.RAN else "rows differ"
        differ = [run for run in contest.runs if not run.rows_equal]
        rows = "**differ**" if differ else text.NOTHING
        return [name, word, *(text.NOTHING for _ in _HEAD[4:]), rows, str(len(contest.runs))][: len(_HEAD)]

    def median(figure: str) -> float | None:
        return contest.median(lambda run: getattr(run, figure))

    times = [run.seconds for run in runs]
    base = case.contests[0].seconds
    added = median("added_bytes")
    return [
        name,
        text.seconds(contest.seconds),
        text.times(contest.seconds / base if contest.seconds is not None and base else None),
        f"{text.seconds(min(times))} – {text.seconds(max(times))}" if len(times) > 1 else text.NOTHING,
        text.seconds(median("cpu_seconds")),
        text.size(contest.peak_bytes),
        text.size(median("read_bytes")),
        text.size(median("written_bytes")),
        _amplification(added, case.changed_bytes),
        f"{_short(case.files)} → {_short(runs[-1].files)}" if runs[-1].files != case.files else "unchanged",
        _query(case, contest),
        "equal" if len(runs) == len(contest.runs) else "**differ**",
        str(len(runs)),
    ]


def _amplification(added: float | None, changed: int) -> str:
    return text.NOTHING if not added or not changed else f"{added / changed:.2f}"


def _query(case: CaseResult, contest: Contest) -> str:
    if case.reader is None:
        return text.NOTHING
    before = text.seconds(case.query_seconds) if case.query_seconds is not None else "stopped"
    after = text.seconds(contest.query_seconds) if contest.query_seconds is not None else "stopped"
    return f"{before} → {after}"


def _traffic(case: CaseResult) -> Iterator[str]:
    """Yield a table of the requests to the object store, by kind: medians of the runs that count."""
    found = {
        contest.name: seen
        for contest in case.contests
        if (seen := [run.traffic for run in contest.counted if run.traffic is not None])
    }
    if not found:
        return
    kinds = sorted({kind for runs in found.values() for run in runs for kind in run.requests})
    rows = [
        [
            name,
            *(f"{median(run.requests.get(kind, 0) for run in runs):,.0f}" for kind in kinds),
            f"{median(sum(run.requests.values()) for run in runs):,.0f}",
            text.size(median(run.bytes_down for run in runs)),
            text.size(median(run.bytes_up for run in runs)),
            text.seconds(median(run.cpu_seconds for run in runs)),
        ]
        for name, runs in found.items()
    ]
    yield from (*text.table(("requests", *kinds, "all", "down", "up", "CPU of the store"), rows), "")


def _notes(case: CaseResult) -> Iterator[str]:
    """Yield which contestants did not run and why, by reason, and what was wrong with runs."""
    reasons: dict[tuple[Outcome, str | None], list[str]] = {}
    for contest in case.contests:
        if contest.outcome is not Outcome.RAN:
            reasons.setdefault((contest.outcome, contest.reason), []).append(contest.name)
    for contest in case.contests:
        for summary in (run.facts["summary"] for run in contest.counted if "summary" in run.facts):
            yield from (f"{contest.name}: {_plain(summary)}.", "")
    for (outcome, reason), names in reasons.items():
        yield from (f"{'; '.join(names)}: {outcome}: {_plain(reason)}.", "")
    for contest in case.contests:
        for difference in (run.difference for run in contest.runs if not run.rows_equal):
            yield from (f"{contest.name}: a run does not count: {_plain(difference)}.", "")


def _plain(reason: str | None) -> str:
    """Return the text of a program as code, so that nothing in it is read as Markdown."""
    return f"`{' '.join((reason or 'no reason was given').replace('`', chr(39)).split())}`"


def _files(files: Files) -> str:
    kinds = {
        "equality delete files": files.equality_deletes,
        "position delete files": files.position_deletes,
        "deletion vectors": files.vectors,
    }
    deletes = [f"{count:,} {kind}" for kind, count in kinds.items() if count]
    texts = [f"{files.data:,} data files ({text.size(files.data_bytes)})", *deletes]
    return ", ".join(texts) + (f" ({text.size(files.delete_bytes)})" if deletes else "")


def _short(files: Files) -> str:
    kinds = (
        ("data", files.data),
        ("eq", files.equality_deletes),
        ("pos", files.position_deletes),
        ("dv", files.vectors),
    )
    return " + ".join(f"{count:,} {kind}" for kind, count in kinds if count) or "0"


def _is_own(contest: Contest) -> bool:
    program = PROGRAMS.get(contest.program)
    return program is not None and program.ours


def _explanations(results: Results) -> Iterator[str]:
    yield from ("## Contestants and columns", "")
    seen = {
        contest.program for result in results.workloads.values() for case in result.cases for contest in case.contests
    }
    for program in PROGRAMS.values():
        if program.name in seen or not seen:
            yield f"* **{program.name}**: {program.about}."
    yield from ("", *_COLUMNS)


_COLUMNS = (
    "The columns of the tables:",
    "",
    "* median, min–max, CPU: of the runs that count; CPU seconds are those of all processes together;",
    "* ratio: to the median of the table's first line;",
    "* peak memory: the highest proportional set size of all processes together in any run that counts, sampled;",
    "* read, written: bytes read from and written to files, pipes and sockets, cached or not, without mapped files;",
    "* write amplification: bytes of all files that a run added, divided by the bytes of changes;",
    "* files, before → after: data files, equality delete files (eq), position delete files (pos), vectors (dv);",
    "* query, before → after: medians;",
    "* rows: whether their checksum equals that of the rows that were written, in every run;",
    "* requests: those to the object store by kind, as its proxy counts them; down, up: bytes of their bodies;",
    "* CPU of the store: CPU seconds of its server and its proxy, which share the machine with the contestant;",
    "* runs: those that count; one in W2 and W5, and fewer than five for slow contestants (`--patience`).",
)
