"""What is assumed of an engine nobody has measured yet.

The assumed times of the table of kinds as records in the form of a calibration, so that
one model prices both.
"""

from __future__ import annotations

from functools import cache

from rlxweb.cost.kinds import KINDS, Assumed
from rlxweb.cost.record import Calibration, Point


@cache
def assumed_cpu(in_a_tab: bool = False) -> Calibration:
    """NumPy on an ordinary machine, or compiled to WebAssembly on the same one."""
    return _record("cpu", "NumPy", "tab" if in_a_tab else "cpu")


@cache
def assumed_gpu() -> Calibration:
    """A small GPU of its own hardware."""
    return _record("gpu", "a GPU", "gpu")


def _record(device: str, engine: str, which: Assumed) -> Calibration:
    points = tuple(
        Point(kind.name, dict(zip(kind.fields, size, strict=True)), ns)
        for kind in KINDS.values()
        for size, ns in kind.assumed.get(which, {}).items()
    )
    return Calibration(device, engine, "assumed", "", "", "", points)
