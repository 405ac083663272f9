"""The workloads, in the order in which they are run and reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.case import Workload
from bench.workloads import planning, small_tables, two_workers, w0, w1, w2, w3, w4, w5, w6, w8, w12

_ALL: Final = (
    w0.WORKLOAD,
    w1.WORKLOAD,
    w2.WORKLOAD,
    w3.WORKLOAD,
    w4.WORKLOAD,
    w5.WORKLOAD,
    w6.WORKLOAD,
    w8.WORKLOAD,
    w12.WORKLOAD,
    small_tables.WORKLOAD,
    planning.WORKLOAD,
    two_workers.WORKLOAD,
)
WORKLOADS: Final[Mapping[str, Workload]] = {workload.name: workload for workload in _ALL}
