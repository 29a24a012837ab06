"""Other ways to run a convolution on a device, each for some sizes.

Windows of one element are a product of the weights and the array. Few channels on
adapters that run on the CPU: a lane takes neighbours on a line, whose windows overlap,
so that what is loaded is met by every tap that it lies under. Deleting any of them
changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from rlxweb.ir.lowering import Axis, Call, Recipe, Ref
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ir.shape import numel
from rlxweb.limits import Limits
from rlxweb.recipes.conv_calls import LANES, SUMMED
from rlxweb.recipes.conv_calls import text_of as tile_text
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.lane_cells import MAIN
from rlxweb.recipes.sum_tile import SumTile
from rlxweb.recipes.windows import windows_of

MOST_SUMS = 64
"""Of a lane that takes neighbours."""
MOST_TAPS = 8
"""Of a line of a window: the text has each."""
SMALL = 8
"""Channels of a small tile, at four positions each."""
MANY_ROWS = 12
"""Channels from which the lane of the op's own kernel, of 16 by 16, loads less."""


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


def neighbours(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """Tiles of a line, for few channels and short lines of windows."""
    windows = windows_of(inputs[0].shape[2:], inputs[1].shape[2:], attrs)
    taps, stride = windows.kernel[-1], windows.strides[-1]
    rows = inputs[1].shape[0] // attrs["groups"]
    fits = 2 <= taps <= MOST_TAPS and windows.dilations[-1] == 1
    if not fits or stride > min(2, taps) or not 0 < rows < MANY_ROWS:
        return None
    rows = -(-rows // -(-rows // 4))
    width = min(16, MOST_SUMS // (4 * rows) * 4)
    if windows.out[-1] < width // 2:
        return None
    made = registry.get("conv").recipe(inputs, out, attrs)
    if made is None:
        return None
    *before, last = made.calls
    return replace(made, calls=(*before, _by_lines(last, rows, width, taps, stride)))


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


def _by_lines(call: Call, rows: int, width: int, taps: int, stride: int) -> Call:
    tiles = {"m": rows, "o2": width}
    axes = tuple(_whole(a) if a.name == "k2" else a for a in call.axes)
    return replace(
        call,
        axes=axes,
        grid=tuple((name, tiles.get(name, 1)) for name, _ in call.grid),
        workgroup=LANES,
        source=text_of(rows, width, taps, stride),
        uses=(call.uses[0], "conv_lines", "line_finish_none"),
        turns=3.0,
    )


def _whole(axis: Axis) -> Axis:
    return replace(axis, kind="whole")


@lru_cache(maxsize=64)
def text_of(rows: int, width: int, taps: int, stride: int) -> str:
    """The shader of `rows` channels at `width` neighbours of a line."""
    fours = width // 4
    sums = SumTile(rows, fours, "a")
    lines = [MAIN, f"  let at = line_item(item, {rows}u, {width}u);"]
    lines += [
        f"  let w{r} = at.w + min(at.row + {r}u, u.m - 1u) * u.w_m;"
        for r in range(rows)
    ]
    lines += [f"  {line}" for line in sums.zeros()]
    lines.append(f"  let rows = min({rows}u, u.m - at.row);")

    def place(q: int, number: str) -> str:
        channel = f"at.z + min(at.row + {number}, u.m - 1u) * u.z_m"
        return f"{channel}, at.position + {4 * q}u"

    def loads(r: int, number: str) -> list[str]:
        return [f"a{r}_{q} = load_four({place(q, number)});" for q in range(fours)]

    def stores(r: int, number: str) -> list[str]:
        return [f"store_four({place(q, number)}, a{r}_{q});" for q in range(fours)]

    lines.append("  if ((u.at_c | u.at_k0 | u.at_k1) > 0u) {")
    lines += [f"    {line}" for line in sums.loaded("rows", loads)]
    # Behind the last window nothing may be read; what is made of it is not stored.
    lines += ["  }", f"  let last = (u.o2 - 1u) * u.x_o2 + {taps - 1}u;"]
    span = (width - 1) * stride + taps
    lines += [
        f"  let p{j} = at.x + min(at.position * u.x_o2 + {j}u, last);"
        for j in range(span)
    ]
    for name in SUMMED[:3]:
        lines.append(f"  for (var {name} = 0u; {name} < u.{name}; {name}++) {{")
    for letter in "xw":
        steps = " + ".join(f"{name} * u.{letter}_{name}" for name in SUMMED[:3])
        lines.append(f"    let from_{letter} = {steps};")
    lines += [f"    let v{j} = ld0(p{j} + from_x);" for j in range(span)]
    for k in range(taps):
        for q in range(fours):
            four = ", ".join(f"v{(4 * q + i) * stride + k}" for i in range(4))
            lines.append(f"    let f{k}_{q} = V({four});")
        for r in range(rows):
            lines.append(f"    let one{k}_{r} = V(ld1(w{r} + from_w + {k}u));")
            lines += [
                f"    a{r}_{q} = mul_add(one{k}_{r}, f{k}_{q}, a{r}_{q});"
                for q in range(fours)
            ]
    lines.append("  }}}")
    lines += [f"  {line}" for line in sums.stored("rows", stores)]
    lines.append(f"  finish_line(at, {rows}u, {width}u);")
    return "\n".join([*lines, "}"])
