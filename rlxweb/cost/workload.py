"""Workload of a compiled plan: kernels, bytes in and out. Plain data.

The compiler fills it in from the steps it made (`compiler/plan_workload.py`); a
calibrated model prices it (`work_pricing.py`). It names no op: kinds are those of
the table in `work_kinds.py`, or ops by name, which it passes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Work of one step of a plan.

    launches  kernels it starts (NumPy: calls)
    flops     arithmetic operations, by the ops' own counts
    nbytes    bytes read and written by it
    size      the fields of its kind, and what an op says besides
    strided_bytes  bytes of operands that are read across their rows
    dtype_class  "half" or "whole" where NumPy has no fast loops for what it computes
                 with
    """

    kind: str
    label: str
    launches: int
    flops: float
    nbytes: int
    size: Mapping[str, int] = field(default_factory=dict)
    strided_bytes: int = 0
    dtype_class: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """Workload of one run: its steps, the bytes uploaded before and read back after
    them.

    syncs   times the host waits in the middle (0 when the device runs all of it alone)
    """

    items: tuple[WorkItem, ...]
    upload_bytes: int
    readback_bytes: int
    syncs: int = 0
