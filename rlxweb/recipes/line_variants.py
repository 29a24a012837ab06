"""softmax, layer_norm and rms_norm with a whole workgroup for every line.

Neighbouring invocations read neighbouring elements. It takes the op's own recipe and
swaps the shader, so that strides are worked out in one place. Deleting it changes no
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlxweb.ir.lowering import Call, Recipe
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ir.shape import normal_axis
from rlxweb.limits import Limits
from rlxweb.recipes.fft_variants import RecipeFor

# shaders/include/group_reduce.wgsl has room for this many invocations, 4 bytes each.
MOST = 256
# Below this length most of a workgroup would have nothing to do.
LEAST = 128


def group_recipe(op: str) -> RecipeFor:
    """The recipe of an op over lines with a workgroup for every line.

    None for short lines, and where neighbours in a line are not so in memory.
    """

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        axis = normal_axis(attrs["axis"], out.rank)
        n, dense = out.shape[axis], all(d == 1 for d in out.shape[axis + 1 :])
        if n < LEAST or not dense:
            return None
        made = registry.get(op).recipe(inputs, out, attrs)
        return made and Recipe(tuple(_per_line(call, n) for call in made.calls))

    return recipe


def _per_line(call: Call, n: int) -> Call:
    group = min(MOST, 1 << (n // 4).bit_length())
    return replace(
        call,
        shader=f"{call.shader}_group",
        per="workgroup",
        workgroup=group,
        uses=(*call.uses, "group_reduce"),
        shared_bytes=4 * MOST,
        # Three passes by at least 32 invocations.
        turns=0.1,
    )
