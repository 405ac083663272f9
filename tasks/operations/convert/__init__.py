"""The operation ``convert``: equality deletes become position deletes or deletion vectors.

Imports the rooms that operations imports.
Open execute.py first, then conflicts.py.
"""

from __future__ import annotations

from typing import Final

from producer.common.sizes import count_text
from producer.model.staged import Staged
from tasks.operations.base import TaskOperation
from tasks.operations.convert.commit import ConversionRules
from tasks.operations.convert.execute import prepare


def _summarize(staged: Staged) -> str:
    files = (count_text(len(staged.deletes), "delete file"), count_text(len(staged.vectors), "vector"))
    made = files[bool(staged.vectors)]
    return f"{count_text(staged.new_positions, 'row')} in {made}, {staged.seconds} s"


CONVERT: Final = TaskOperation(
    executor=prepare,
    commit_rules=lambda context, plan, staged: ConversionRules(plan, staged, context.store.at(plan).unit),
    summarize=_summarize,
)
