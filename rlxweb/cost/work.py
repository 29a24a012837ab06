"""What a compiled plan asks of a device: kernels, bytes in and out. Plain data.

The compiler fills it in from the steps it made (`compile/plan_work.py`); a calibrated
model prices it (`cost/price.py`). It names no op: kinds are those of the table in
`cost/kinds.py`, or ops by name, which it passes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Item:
    """One step of a plan.

    launches  kernels it starts (NumPy: calls)
    flops     arithmetic operations, by the ops' own counts
    nbytes    bytes read and written by it
    size      the fields of its kind, and what an op says besides
    turned    bytes of operands that are read across their rows
    numbers   "half" or "whole" where NumPy has no fast loops for what it computes with
    """

    kind: str
    label: str
    launches: int
    flops: float
    nbytes: int
    size: Mapping[str, int] = field(default_factory=dict)
    turned: int = 0
    numbers: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """One run: its steps, what goes up before them and comes back after them.

    syncs   times the host waits in the middle (0 when the device runs all of it alone)
    """

    items: tuple[Item, ...]
    upload_bytes: int
    readback_bytes: int
    syncs: int = 0
