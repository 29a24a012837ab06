"""Kernel of a gather that moves four neighbours of a row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import KernelPlan
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ops.kernel_variant import KernelVariant


def plan_vec4_gather(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Plan a gather by vec4s; None where a row's length is no multiple of four."""
    plan = registry.get("gather").kernel_plan(inputs, out, attrs)
    if plan is None:
        return None
    (dispatch,) = plan.dispatches
    inner = next(axis.size for axis in dispatch.axes if axis.name == "inner")
    if inner % 4 or inner == 0 or inputs[0].dtype is DType.BOOL:
        return None
    table, indices, target = dispatch.accesses
    vec4_accesses = (
        replace(table, is_vec4=True),
        indices,
        replace(target, is_vec4=True),
    )
    grid = (("outer", 1), ("index", 1), ("inner", 4))
    vec4_dispatch = replace(
        dispatch, shader="gather_rows", accesses=vec4_accesses, grid=grid
    )
    return KernelPlan((vec4_dispatch,))


KERNELS = (KernelVariant("gather, rows by fours", "gather", plan_vec4_gather),)
