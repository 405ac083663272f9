"""The operations of the workers' side: a new operation adds one line here."""

from __future__ import annotations

from typing import Final

from producer.model.job import Operation
from tasks.operations.base import TaskOperation
from tasks.operations.compact import COMPACT
from tasks.operations.convert import CONVERT

OPERATIONS: Final[dict[Operation, TaskOperation]] = {
    Operation.CONVERT: CONVERT,
    Operation.COMPACT: COMPACT,
}
