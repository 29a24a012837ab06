"""Padding without tables where images fit a binding: four neighbours a lane.

The recipe of a padding op, and of ops that pad for themselves, puts the array into its
middle by a table for each axis, and every axis may be cut; here an image is never cut.
Deleting it changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Axis, Call, Recipe
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.limits import Limits
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.reduce_calls import scalar_of, type_include
from rlxweb.recipes.remap_calls import Table, run_of

_MOST_AXES = 3
"""Of an image."""


def own(op: str) -> RecipeFor:
    """The op's own recipe, as a variant has it."""

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        return registry.get(op).recipe(inputs, out, attrs)

    return recipe


def padded_at_once(rule: RecipeFor) -> RecipeFor:
    """That recipe, if it begins with padding, with another call for it."""

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        made = rule(inputs, out, attrs, limits)
        if made is None or not made.calls or made.calls[0].shader != "remap":
            return made
        first, *rest = made.calls
        call = _at_once(first, made.tables, inputs[0].dtype)
        if call is None:
            return made
        read = [a.ref for other in rest for a in other.accesses]
        tables = 1 + max((r.index for r in read if r.kind == "table"), default=-1)
        return replace(made, calls=(call, *rest), tables=made.tables[:tables])

    return recipe


class _Line(NamedTuple):
    """An axis of the images, and what of the array is in it.

    size     of the axis there, x and y: from one element to the next
    before   in front of the `kept` elements, which are those from `start` on
    """

    size: int
    x: int
    y: int
    before: int
    start: int
    kept: int


_ALONE = _Line(1, 0, 0, 0, 0, 1)


def _at_once(call: Call, tables: tuple[Table, ...], dtype: DType) -> Call | None:
    """The same by images; None where the array is not one box in the middle."""
    if dtype is DType.BOOL or len(call.accesses) < 3:
        return None
    mapped = [axis.name[1:] for axis in call.axes if axis.name[0] == "t"]
    numbers = [access.ref.index for access in call.accesses[2:]]
    table_of = dict(zip(mapped, numbers, strict=True))
    lines = []
    for axis in call.axes[: len(call.axes) - len(mapped)]:
        at = axis.name[1:]
        part: tuple[int, int, int] | None = (0, 0, axis.size)
        if at in table_of:
            part = run_of(tables[table_of[at]])
        if part is None:
            return None
        x, y = (int(call.values[f"{letter}{at}"]) for letter in "xy")
        lines.append(_Line(axis.size, x, y, *part))
    lead = _ALONE if "0" in mapped else lines.pop(0)
    return _images(call, lead, lines, dtype) if len(lines) <= _MOST_AXES else None


def _images(call: Call, lead: _Line, lines: list[_Line], dtype: DType) -> Call:
    given, target = call.accesses[:2]
    lines = [_ALONE] * (_MOST_AXES - len(lines)) + lines
    values: dict[str, Any] = {"bits": _bits(call.values["fill"], dtype)}
    for axis, one in enumerate(lines):
        values |= {f"x_{axis}": one.x, f"before{axis}": one.before}
        values[f"kept{axis}"] = one.kept
    values["x_lead"] = lead.x
    start = sum(one.start * one.x for one in lines)
    span = 1 + sum((one.kept - 1) * one.x for one in lines)
    whole = (Axis(f"y{n}", one.size, "whole") for n, one in enumerate(lines))
    return Call(
        "pad_planes",
        axes=(Axis("lead", lead.size), *whole),
        accesses=(
            Access(given.ref, (lead.x, 0, 0, 0), offset=start, span=span),
            Access(target.ref, (lead.y, *(one.y for one in lines)), "write"),
        ),
        grid=(("lead", 1), ("y0", 1), ("y1", 1), ("y2", 4)),
        values=values,
        uses=(type_include(dtype),),
    )


def _bits(fill: float, dtype: DType) -> int:
    """The word of the fill, as its type is computed in."""
    if scalar_of(dtype) != "f32":
        return int(fill)
    return int(np.float32(fill).view(np.uint32))
