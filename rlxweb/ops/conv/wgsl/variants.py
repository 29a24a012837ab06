"""Alternative convolution kernels for GPUs, each for some sizes.

Windows of one element are a product of the weights and the array; few channels are
computed in small tiles. Deleting any of them changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import BufferRef, KernelDispatch, KernelPlan
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import numel
from rlxweb.ops.conv.wgsl.implicit_gemm import implicit_gemm_rule
from rlxweb.ops.conv.wgsl.plan import conv_tile_source
from rlxweb.ops.conv.windows import sliding_windows
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule
from rlxweb.ops.layout.wgsl.padding import default_plan_rule, whole_image_padding_rule
from rlxweb.ops.matmul.wgsl.blocked import BLOCK_SIDES, blocked_matmul_rule
from rlxweb.ops.matmul.wgsl.variants import plan_tiled_matmul

SMALL_TILE_ROWS = 8
"""Channels of a small tile, at four positions each."""


def pointwise_conv_rule(matmul_rule: WgslPlanRule) -> WgslPlanRule:
    """Return the rule that plans a convolution with windows of one element by a matrix
    product rule; None for other windows.
    """

    def build_plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        x, w = inputs
        windows = sliding_windows(x.shape[2:], w.shape[2:], attrs)
        if prod(windows.kernel) != 1 or windows.out_shape != windows.spatial_shape:
            return None
        groups, positions = attrs["groups"], numel(windows.out_shape)
        n, (m, c) = x.shape[0], w.shape[:2]
        left = TensorType((1, groups, m // groups, c), w.dtype)
        right = TensorType((n, groups, c, positions), x.dtype)
        product_type = TensorType((n, groups, m // groups, positions), out.dtype)
        plan = matmul_rule((left, right), product_type, {}, limits)
        if plan is None:
            return None
        return replace(plan, dispatches=tuple(map(_swap_operands, plan.dispatches)))

    return build_plan


def _swap_operands(dispatch: KernelDispatch) -> KernelDispatch:
    """Swap the inputs of a dispatch: the weights are the left operand of the product
    and the second of the op.
    """
    swapped_refs = {
        BufferRef("in", 0): BufferRef("in", 1),
        BufferRef("in", 1): BufferRef("in", 0),
    }
    accesses = (
        replace(a, ref=swapped_refs.get(a.ref, a.ref)) for a in dispatch.accesses
    )
    return replace(dispatch, accesses=tuple(accesses))


def plan_conv_small_tiles(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Plan the op's own kernel with tiles small enough for the registers of a GPU
    lane.
    """
    plan = registry.get("conv").kernel_plan(inputs, out, attrs)
    rows = inputs[1].shape[0] // attrs["groups"]
    if plan is None or rows == 0:
        return None
    rows = -(-rows // -(-rows // SMALL_TILE_ROWS))
    *earlier_dispatches, conv_dispatch = plan.dispatches
    tiles = {"m": rows, "o2": 4}
    dispatch = replace(
        conv_dispatch,
        grid=tuple((name, tiles.get(name, 1)) for name, _ in conv_dispatch.grid),
        workgroup_size=64,
        source=conv_tile_source(rows, 1),
    )
    return replace(plan, dispatches=(*earlier_dispatches, dispatch))


KERNELS = (
    *(
        KernelVariant(
            f"conv, blocks of {side}",
            "conv",
            pointwise_conv_rule(blocked_matmul_rule(side)),
        )
        for side in BLOCK_SIDES
    ),
    KernelVariant("conv, shared tiles", "conv", pointwise_conv_rule(plan_tiled_matmul)),
    *(
        KernelVariant(
            f"conv, blocks of {side} windows",
            "conv",
            whole_image_padding_rule(implicit_gemm_rule(side)),
        )
        for side in BLOCK_SIDES
    ),
    KernelVariant(
        "conv, small tiles", "conv", whole_image_padding_rule(plan_conv_small_tiles)
    ),
    KernelVariant(
        "conv, padded at once",
        "conv",
        whole_image_padding_rule(default_plan_rule("conv")),
    ),
)
