"""The operation ``compact``: data files are rewritten.

Imports the rooms that operations imports.
Open execute.py first, then conflicts.py.
"""

from __future__ import annotations

from typing import Final

from producer.common.sizes import count_text, size_text
from producer.model.staged import Staged
from tasks.operations.base import TaskOperation
from tasks.operations.compact.commit import CompactionRules
from tasks.operations.compact.execute import prepare


def _summarize(staged: Staged) -> str:
    rows, size = sum(file.records for file in staged.data), sum(file.size for file in staged.data)
    made = f"{count_text(len(staged.inputs), 'file')} became {len(staged.data)} with {count_text(rows, 'row')}"
    return f"{made}, {size_text(size)}, {count_text(staged.deleted_rows, 'row')} deleted, {staged.seconds} s"


COMPACT: Final = TaskOperation(
    executor=prepare,
    commit_rules=lambda _, plan, staged: CompactionRules(plan, staged),
    summarize=_summarize,
)
