"""Kernel dispatch that selects the strongest bins of each row of power."""

from __future__ import annotations

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    OperandAccess,
)
from rlxweb.ops.reduce.wgsl.plan import (
    element_type_include,
)

_OUT = BufferRef("out")


def peaks_dispatch(power: BufferRef, rows: int, bins: int, k: int) -> KernelDispatch:
    """Return the dispatch that selects the k strongest bins of each row of power,
    packed as (bin, power) pairs.
    """
    return KernelDispatch(
        "welch_peaks",
        (IterationAxis("rows", rows), IterationAxis("bins", bins, "serial")),
        (
            OperandAccess(power, (bins, 1)),
            OperandAccess(_OUT, (2 * k, 0), "update", span=2 * k),
        ),
        (("rows", 1),),
        uniforms={"pitch": bins, "k": k},
        uses=(element_type_include(DType.F32),),
        iterations=2.0 * (k + 1),
    )
