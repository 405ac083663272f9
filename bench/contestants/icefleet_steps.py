"""Icefleet step by step in one process, each step measured apart: the plan, the staging, the commit and clean-up.

Each plan is made as by a process that has read nothing of the table before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bench.peers.serving import claim_stdout, serve
from bench.usage import UsageMonitor
from producer import Fleet
from producer.common.errors import Failed
from producer.common.settings import Settings
from producer.model.job import Operation, Request, Status
from producer.storage.metadata_cache import METADATA_CACHE
from tasks.job.context import JobContext
from tasks.lifecycle.outcomes import Ended, Stage
from tasks.lifecycle.rounds import advance, begin
from tasks.lifecycle.stage import stage
from workers.runtime import session

T = TypeVar("T")


def plan(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The plans of a compaction, of which nothing comes, and of a conversion with its records."""
    return _planned(asked, Request.new(asked["table"], catalog=asked["catalog"]["name"]), Settings.load())[0]


def convert(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The same, and the conversion."""
    settings, request = Settings.load(), Request.new(asked["table"], catalog=asked["catalog"]["name"])
    facts, step = _planned(asked, request, settings)
    plan, units = step.plan, step.units
    context = JobContext.open(request.job, plan.location)

    def stage_all() -> None:
        for unit in units:
            stage(context, plan, unit, settings, lambda done, files: None)

    _step(facts, "stage", stage_all)
    session.close()  # who commits needs none
    ended = _step(facts, "commit", lambda: advance(context, settings))
    if not isinstance(ended, Ended) or ended.report is None or ended.report.status is not Status.COMMITTED:
        raise Failed(f"it was not committed: {ended}")
    return facts | ended.report.model_dump(mode="json", exclude={"failures", "seconds"})


def _planned(asked: Mapping[str, Any], request: Request, settings: Settings) -> tuple[dict[str, Any], Stage]:
    """Plan a compaction and begin a conversion; return the facts of both, and what is to be staged."""
    facts: dict[str, Any] = {}
    METADATA_CACHE.reset()
    name, catalog = asked["table"], asked["catalog"]["name"]
    planned = _step(facts, "plan_compaction", lambda: Fleet().plan(name, catalog=catalog, operation=Operation.COMPACT))
    facts["compaction_files"] = sum(unit.files for unit in planned.plan.units)
    del planned
    METADATA_CACHE.reset()
    step = _step(facts, "plan", lambda: begin(request, settings))
    if not isinstance(step, Stage):
        raise Failed(f"nothing is planned: {step}")
    return facts | {"units": len(step.units), "files": sum(unit.files for unit in step.plan.units)}, step


def _step(facts: dict[str, Any], name: str, work: Callable[[], T]) -> T:
    """Do a step, and note what it took of this process."""
    with UsageMonitor(os.getpid()) as monitor:
        done = work()
        taken = monitor.usage()
    facts[f"{name}_seconds"], facts[f"{name}_cpu_seconds"] = taken.seconds, taken.cpu_seconds
    facts[f"{name}_peak_bytes"] = taken.peak_bytes
    return done


if __name__ == "__main__":
    serve(claim_stdout(), {"plan": plan, "convert": convert}, {})
