"""One delivery of a unit, without a fleet: stages it as soon as all that take part are ready.

Arguments: the job's id, the table's location, the unit, a folder to meet in, and how many meet there.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from producer.common.settings import Settings
from tasks.job.context import JobContext
from tasks.lifecycle.stage import stage
from tasks.messaging.retry_policy import TryAgain


def main(job: str, location: str, unit: str, folder: str, parties: str) -> None:
    """Meet the others, and stage."""
    settings = Settings.load()
    context = JobContext.open(job, location)
    plan = context.store.plan(0)
    assert plan is not None
    (Path(folder) / str(os.getpid())).touch()
    while len(list(Path(folder).iterdir())) < int(parties):
        time.sleep(0.001)
    outcome = None
    while outcome is None:
        with suppress(TryAgain):  # both have taken the same number, as two messages at once may
            outcome = stage(context, plan, int(unit), settings, lambda done, files: None)
    print(outcome.model_dump_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
