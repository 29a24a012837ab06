"""Other ways to run a convolution on a device, each for some sizes.

Windows of one element are a product of the weights and the array; few channels are
computed in small tiles. Deleting any of them changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from rlxweb.ir.lowering import Call, Recipe, Ref
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ir.shape import numel
from rlxweb.limits import Limits
from rlxweb.recipes.conv_calls import text_of as tile_text
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.windows import windows_of

SMALL = 8
"""Channels of a small tile, at four positions each."""


def as_product(rule: RecipeFor) -> RecipeFor:
    """The recipe of a product for windows of one element; None for others."""

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        x, w = inputs
        windows = windows_of(x.shape[2:], w.shape[2:], attrs)
        if prod(windows.kernel) != 1 or windows.out != windows.size:
            return None
        groups, places = attrs["groups"], numel(windows.out)
        n, (m, c) = x.shape[0], w.shape[:2]
        left = TensorType((1, groups, m // groups, c), w.dtype)
        right = TensorType((n, groups, c, places), x.dtype)
        made = TensorType((n, groups, m // groups, places), out.dtype)
        found = rule((left, right), made, {}, limits)
        if found is None:
            return None
        return replace(found, calls=tuple(map(_exchanged, found.calls)))

    return recipe


def _exchanged(call: Call) -> Call:
    """The weights are the left operand of the product and the second of the op."""
    other = {Ref("in", 0): Ref("in", 1), Ref("in", 1): Ref("in", 0)}
    accesses = (replace(a, ref=other.get(a.ref, a.ref)) for a in call.accesses)
    return replace(call, accesses=tuple(accesses))


def small_tiles(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """The op's own kernel in tiles that a GPU's lane has registers for."""
    made = registry.get("conv").recipe(inputs, out, attrs)
    rows = inputs[1].shape[0] // attrs["groups"]
    if made is None or rows == 0:
        return None
    rows = -(-rows // -(-rows // SMALL))
    *before, last = made.calls
    tiles = {"m": rows, "o2": 4}
    call = replace(
        last,
        grid=tuple((name, tiles.get(name, 1)) for name, _ in last.grid),
        workgroup=64,
        source=tile_text(rows, 1),
    )
    return replace(made, calls=(*before, call))
