"""Other shapes of the matmul recipe, for adapters that like them better.

Each takes the op's own recipe and swaps the shader and the tile, so that axes, strides
and offsets are worked out in one place. A variant answers None when the product is not
one for it. Deleting any of them changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlxweb.ir.lowering import Recipe
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.limits import Limits
from rlxweb.recipes.reduce_calls import scalar_of

# One workgroup's tile in shaders/matmul_tiled.wgsl and the invocations it needs.
TILE, SLICE, GROUP = 32, 16, 64


def matmul_tiled(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """For GPUs: 64 invocations share a tile of 32 by 32 through workgroup memory.

    None where the tile would be mostly empty or the device has no 64 invocations.
    """
    most = limits.workgroup_lanes
    if most < GROUP or min(out.shape[-2:]) < TILE or inputs[0].shape[-1] < SLICE:
        return None
    return _reshaped(
        inputs,
        out,
        attrs,
        {"m": TILE, "n": TILE},
        shader="matmul_tiled",
        per="workgroup",
        workgroup=GROUP,
        uses=("matmul_tile", f"matmul_{scalar_of(out.dtype)}", "rows_single"),
        shared_bytes=2 * TILE * SLICE * 4,
        turns=1.75,
        finishes="stores",
    )


def _reshaped(
    inputs: Types, out: TensorType, attrs: Attrs, tiles: Mapping[str, int], **new: Any
) -> Recipe | None:
    """The op's own recipe with other tiles and whatever else is new in its calls."""
    made = registry.get("matmul").recipe(inputs, out, attrs)
    if made is None:
        return None
    grids = (((name, tiles.get(name, n)) for name, n in c.grid) for c in made.calls)
    calls = zip(made.calls, grids, strict=True)
    return Recipe(tuple(replace(call, grid=tuple(g), **new) for call, g in calls))
