"""The operation ``convert``: equality deletes become position deletes or deletion vectors.

Imports the rooms that operations imports.
Open execute.py first, then conflicts.py.
"""

from __future__ import annotations

from typing import Final

from producer.model.staged import Staged
from tasks.operations.base import TaskOperation
from tasks.operations.convert.commit import ConversionRules
from tasks.operations.convert.execute import ConversionExecutor


def _summarize(staged: Staged) -> str:
    files = len(staged.deletes) + len(staged.vectors)
    return f"{staged.new_positions} rows in {files} delete files or vectors, {staged.seconds} s"


CONVERT: Final = TaskOperation(
    executor=ConversionExecutor.of,
    commit_rules=lambda context, plan, staged: ConversionRules(plan, staged, context.store.at(plan).unit),
    summarize=_summarize,
)
