"""The workloads, in the order in which they are run and reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.case import Workload
from bench.workloads import w0

WORKLOADS: Final[Mapping[str, Workload]] = {workload.name: workload for workload in (w0.WORKLOAD,)}
