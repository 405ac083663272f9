"""Icefleet as a warm worker: one process that keeps its Spark session, asked without a broker.

All runs are of the same snapshot: what the process has kept of its metadata is forgotten before each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.peers.serving import Idle, claim_stdout, serve
from producer import Fleet
from producer.common.errors import Failed
from producer.common.settings import Settings
from producer.job import Job
from producer.model.job import Status
from producer.storage.metadata_cache import METADATA_CACHE
from tasks.lifecycle.stage import budget_of
from workers.runtime import session


def convert(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Equality deletes of a table become position deletes."""
    METADATA_CACHE.reset()
    return _report(Fleet().convert(asked["table"], catalog=asked["catalog"]["name"]))


def compact(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Files of a table become well-sized ones; ``options`` and ``tier`` as Icefleet names them."""
    METADATA_CACHE.reset()
    tier, options = asked.get("tier", "major"), asked.get("options")
    return _report(Fleet().compact(asked["table"], catalog=asked["catalog"]["name"], tier=tier, options=options))


def _report(job: Job) -> dict[str, Any]:
    report = job.wait()
    if report.status is Status.NOTHING_TO_DO:
        raise Idle(str(report.reason))
    if report.status is not Status.COMMITTED:
        raise Failed(f"{report.status}: {report.reason or [failure.reason for failure in report.failures]}")
    return report.model_dump(mode="json", exclude={"failures"})


if __name__ == "__main__":
    answers = claim_stdout()
    settings = Settings.load()
    spark = session.session(budget_of(settings))
    serve(answers, {"convert": convert, "compact": compact}, {"icefleet's spark": spark.version})
    session.close()
