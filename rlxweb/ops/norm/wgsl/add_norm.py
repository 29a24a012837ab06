"""Kernel plan of a residual sum and its norm in one kernel, a workgroup per row.

Results lie as [2, …]: the norms, then the sums. Two lines are read, and two written,
where two kernels would write the sums and read them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant

MAX_WORKGROUP_SIZE = 256
"""Invocations that shaders/include/group_reduce.wgsl has room for, 4 bytes each."""


def plan_add_norm(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Plan a residual sum and its norm; None for empty rows."""
    *outer_shape, n = inputs[0].shape
    rows = prod(outer_shape)
    if not n:
        return None
    input_strides = (n, 1, 0)
    dispatch = KernelDispatch(
        "add_norm",
        axes=(
            IterationAxis("line", rows),
            IterationAxis("n", n, "whole"),
            IterationAxis("part", 2, "whole"),
        ),
        accesses=(
            OperandAccess(BufferRef("in", 0), input_strides),
            OperandAccess(BufferRef("in", 1), input_strides),
            OperandAccess(BufferRef("in", 2), (0, 1, 0)),
            OperandAccess(BufferRef("in", 3), (0, 1, 0)),
            OperandAccess(BufferRef("out"), (n, 1, rows * n), "write"),
        ),
        grid=(("line", 1),),
        item_unit="workgroup",
        workgroup_size=min(MAX_WORKGROUP_SIZE, max(32, 1 << (n // 4).bit_length())),
        uniforms={
            "part_step": rows * n,
            "centred": int(attrs["centred"]),
            "eps": attrs["eps"],
        },
        uses=("group_reduce",),
        shared_bytes=4 * MAX_WORKGROUP_SIZE,
        # Three passes by at least 32 invocations, over lines that count twice.
        iterations=0.05,
    )
    return KernelPlan((dispatch,))


KERNELS = (KernelVariant("add_norm, workgroup a row", "add_norm", plan_add_norm),)
