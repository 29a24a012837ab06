"""Alternative kernels of softmax, layer_norm and rms_norm with a whole workgroup per
row.

Neighbouring invocations read neighbouring elements. It takes the op's own plan and
swaps the shader, so that strides are worked out in one place. Deleting it changes no
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import KernelDispatch, KernelPlan
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule

# shaders/include/group_reduce.wgsl has room for this many invocations, 4 bytes each.
MAX_WORKGROUP_SIZE = 256
# Below this length most of a workgroup would have nothing to do.
MIN_ROW_LENGTH = 128


def workgroup_row_rule(op: str) -> WgslPlanRule:
    """Return the plan rule of an op with a workgroup per row.

    None for short lines, and where neighbours in a line are not so in memory.
    """

    def build_plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        axis = normalize_axis(attrs["axis"], out.rank)
        n, is_dense = out.shape[axis], all(d == 1 for d in out.shape[axis + 1 :])
        if n < MIN_ROW_LENGTH or not is_dense:
            return None
        plan = registry.get(op).kernel_plan(inputs, out, attrs)
        return plan and KernelPlan(
            tuple(_row_dispatch(dispatch, n) for dispatch in plan.dispatches)
        )

    return build_plan


def _row_dispatch(dispatch: KernelDispatch, n: int) -> KernelDispatch:
    """Return the op's own dispatch with a workgroup per row."""
    workgroup_size = min(MAX_WORKGROUP_SIZE, 1 << (n // 4).bit_length())
    return replace(
        dispatch,
        # softmax_group, layer_norm_group or rms_norm_group
        shader=f"{dispatch.shader}_group",
        item_unit="workgroup",
        workgroup_size=workgroup_size,
        uses=(*dispatch.uses, "group_reduce"),
        shared_bytes=4 * MAX_WORKGROUP_SIZE,
        # Three passes by at least 32 invocations.
        iterations=0.1,
    )


KERNELS = tuple(
    KernelVariant(f"{op}, workgroup a row", op, workgroup_row_rule(op))
    for op in ("softmax", "layer_norm", "rms_norm")
)
