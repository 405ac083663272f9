"""The registry of operations: one line for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from producer.model.job import Operation
from producer.planning.compact.definition import COMPACT
from producer.planning.convert.definition import CONVERT
from producer.planning.definition import OperationDefinition

#: Commands and queues are listed in this order.
OPERATIONS: Final[Mapping[Operation, OperationDefinition]] = MappingProxyType(
    {
        Operation.CONVERT: CONVERT,
        Operation.COMPACT: COMPACT,
    }
)
