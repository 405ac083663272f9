"""Planning: the metadata of one snapshot becomes a plan of units. Reads manifests, writes nothing.

Imports common, model, iceberg and state.
Open planner.py first. This module is the registry of operations, each in a folder of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from producer.model.job import Operation
from producer.planning.compact import COMPACT
from producer.planning.convert import CONVERT
from producer.planning.definition import OperationDefinition

#: Commands and queues are listed in this order.
OPERATIONS: Final[Mapping[Operation, OperationDefinition]] = MappingProxyType(
    {Operation.CONVERT: CONVERT, Operation.COMPACT: COMPACT}
)
