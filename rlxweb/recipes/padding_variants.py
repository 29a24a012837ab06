"""Padding in one pass where images fit a binding: edges and middle by the same lanes.

The op's own recipe fills a temporary and copies the array into its middle, so that
every axis may be cut; here an image is never cut. Deleting it changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.limits import Limits
from rlxweb.recipes.fft_variants import RecipeFor


def own(op: str) -> RecipeFor:
    """The op's own recipe, as a variant has it."""

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        return registry.get(op).recipe(inputs, out, attrs)

    return recipe


def padded_at_once(rule: RecipeFor) -> RecipeFor:
    """That recipe, if it pads, with one call for it in place of two."""

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        made = rule(inputs, out, attrs, limits)
        if made is None or len(made.calls) < 3:
            return made
        filled, placed, *rest = made.calls
        if (filled.shader, placed.shader) != ("fill_bits", "place"):
            return made
        return replace(made, calls=(_at_once(filled, placed), *rest))

    return recipe


def _at_once(filled: Call, placed: Call) -> Call:
    given, target = placed.accesses
    lead, *kept = placed.axes
    values: dict[str, Any] = {"bits": filled.values["bits"]}
    at, steps = target.offset, target.strides
    sizes = [steps[n] // steps[n + 1] for n in range(3)]
    for axis in range(3):
        before, at = divmod(at, steps[1 + axis])
        values |= {
            f"x_{axis}": given.strides[1 + axis],
            f"before{axis}": before,
            f"kept{axis}": kept[axis].size,
        }
    values["x_lead"] = given.strides[0]
    return Call(
        "pad_planes",
        axes=(lead, *(Axis(f"y{n}", size, "whole") for n, size in enumerate(sizes))),
        accesses=(
            Access(given.ref, (given.strides[0], 0, 0, 0), span=given.strides[0]),
            Access(target.ref, steps, "write"),
        ),
        grid=(("lead", 1), ("y0", 1), ("y1", 1), ("y2", 4)),
        values=values,
        uses=placed.uses,
    )
