"""Alternative matmul kernels, for adapters on which they are faster.

Each takes the op's own plan and swaps the shader and the tile, so that axes, strides
and offsets are worked out in one place. A variant answers None when the product is not
one for it. Deleting any of them changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import KernelPlan
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.reduce.wgsl.plan import compute_scalar

# One workgroup's tile in shaders/matmul/matmul_tiled.wgsl and the invocations it needs.
TILE_SIDE, SLICE_DEPTH, WORKGROUP_SIZE = 32, 16, 64


def plan_tiled_matmul(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Plan a product for GPUs: 64 invocations share a tile of 32 by 32 through
    workgroup memory.

    None where the tile would be mostly empty or the device has no 64 invocations.
    """
    max_lanes = limits.max_linear_workgroup_size
    if (
        max_lanes < WORKGROUP_SIZE
        or min(out.shape[-2:]) < TILE_SIDE
        or inputs[0].shape[-1] < SLICE_DEPTH
    ):
        return None
    return _retile_plan(
        inputs,
        out,
        attrs,
        {"m": TILE_SIDE, "n": TILE_SIDE},
        shader="matmul_tiled",
        item_unit="workgroup",
        workgroup_size=WORKGROUP_SIZE,
        # matmul_f32, matmul_i32 or matmul_u32
        uses=("matmul_tile", f"matmul_{compute_scalar(out.dtype)}", "rows_single"),
        shared_bytes=2 * TILE_SIDE * SLICE_DEPTH * 4,
        iterations=1.75,
        epilogue_site="stores",
    )


def _retile_plan(
    inputs: Types,
    out: TensorType,
    attrs: Attrs,
    tiles: Mapping[str, int],
    **changes: Any,
) -> KernelPlan | None:
    """Return the op's own plan with other tiles and the given changes to its
    dispatches.
    """
    plan = registry.get("matmul").kernel_plan(inputs, out, attrs)
    if plan is None:
        return None
    grids = (
        ((name, tiles.get(name, n)) for name, n in c.grid) for c in plan.dispatches
    )
    pairs = zip(plan.dispatches, grids, strict=True)
    return KernelPlan(
        tuple(
            replace(dispatch, grid=tuple(grid), **changes) for dispatch, grid in pairs
        )
    )


KERNELS = (KernelVariant("matmul, shared tiles", "matmul", plan_tiled_matmul),)
