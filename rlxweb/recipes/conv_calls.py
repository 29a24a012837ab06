"""A convolution on a device: a tile of output channels by positions in registers.

One invocation computes `rows` channels at `4 · fours` neighbouring positions of one
group, so that an element of the array is loaded once for all its channels and a weight
once for all its positions. Which positions: they are numbered through all spatial axes,
so that short axes waste no lane. Every axis may be cut: the sum by its channels and the
taps of the window, and a piece carries on from what the one before has stored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref
from rlxweb.ir.op import Attrs
from rlxweb.ir.shape import Shape, numel
from rlxweb.recipes.entry import MAIN_TEXT
from rlxweb.recipes.reduce_calls import scalar_of
from rlxweb.recipes.sum_tile import SumTile
from rlxweb.recipes.windows import Padded, Windows, padded, windows_of

MOST_ROWS, FOURS = 16, 4
"""The largest tile: 16 channels by 16 positions, as products have on such adapters."""
LANES = 8
"""Invocations of a workgroup: one vector of the CPU that some adapters run on."""
ENOUGH = 64
"""Invocations below which a smaller tile keeps more of them busy."""
MOST_FINISHED = 1 << 19
"""As of products: see ops/linalg.py."""
NAMES = ("n", "g", "m", "o0", "o1", "o2", "c", "k0", "k1", "k2")
GRID = NAMES[:6]
SUMMED = NAMES[6:]


class Convolution(NamedTuple):
    """Sizes of a convolution with three spatial axes.

    channels   of the array and of the result, in a group
    """

    batch: int
    groups: int
    channels: tuple[int, int]
    windows: Windows

    @property
    def tile(self) -> tuple[int, int]:
        """Channels and fours of positions of an invocation."""
        m, positions = self.channels[1], numel(self.windows.out)
        rows = -(-m // -(-m // MOST_ROWS)) if m else 1
        lines = self.batch * self.groups * -(-m // max(1, rows))
        fours = FOURS
        while fours > 1 and lines * -(-positions // (4 * fours)) < ENOUGH:
            fours //= 2
        return rows, fours


def convolution(x: Shape, w: Shape, attrs: Attrs) -> Convolution:
    """The sizes of a convolution whose shapes have been checked."""
    groups = attrs["groups"]
    windows = windows_of(x[2:], w[2:], attrs).in_three()
    return Convolution(x[0], groups, (w[1], w[0] // groups), windows)


def conv_recipe(one: Convolution, dtype: DType) -> Recipe:
    """The array in its padding, where there is any, and the sums over it."""
    c, _ = one.channels
    source = padded(one.windows, one.batch * one.groups * c, dtype)
    calls = (*source.calls, _sums(one, source, dtype))
    return Recipe(calls, source.scratch, source.tables)


def _sums(one: Convolution, source: Padded, dtype: DType) -> Call:
    rows, fours = one.tile
    (c, m), w = one.channels, one.windows
    sizes = (one.batch, one.groups, m, *w.out, c, *w.kernel)
    walks = walks_of(one, source.extents)
    axes = tuple(
        Axis(name, size, "serial" if name in SUMMED else "parallel")
        for name, size in zip(NAMES, sizes, strict=True)
    )
    values: dict[str, Any] = {}
    for letter, walk in zip("xwz", walks, strict=True):
        values |= {f"{letter}_{n}": s for n, s in zip(NAMES, walk, strict=True)}
    tiles = {"m": rows, "o2": 4 * fours}
    return Call(
        "conv",
        axes=axes,
        accesses=(
            Access(source.ref, walks[0]),
            Access(Ref("in", 1), walks[1]),
            Access(Ref("out"), walks[2], "update"),
        ),
        # As many items as there are tiles along the last axis alone: never fewer than
        # the tiles of all positions.
        grid=tuple((name, tiles.get(name, 1)) for name in GRID),
        workgroup=LANES,
        values=values,
        uses=(f"matmul_{scalar_of(dtype)}", "conv_places", "conv_finish_none"),
        source=text_of(rows, fours),
        finishes="tile" if numel(sizes[:6]) <= MOST_FINISHED else "",
    )


def walks_of(one: Convolution, extents: Shape) -> tuple[tuple[int, ...], ...]:
    """Steps of the array, the weights and the result along all axes, in order.

    With nothing to sum the operands are empty: no step may point into them.
    """
    (c, m), w = one.channels, one.windows
    some = int(c > 0)
    at = row_major((one.batch, one.groups, c, *extents))
    of_w = row_major((one.groups, m, c, *w.kernel))
    of_z = row_major((one.batch, one.groups, m, *w.out))
    steps = tuple(s * t for s, t in zip(w.strides, at[3:], strict=True))
    taps = tuple(d * t for d, t in zip(w.dilations, at[3:], strict=True))
    x = (at[0], at[1], 0, *steps, at[2], *taps)
    weights = (0, of_w[0], of_w[1], 0, 0, 0, of_w[2], *of_w[3:])
    return (
        tuple(s * some for s in x),
        tuple(s * some for s in weights),
        (*of_z, 0, 0, 0, 0),
    )


@lru_cache(maxsize=64)
def text_of(rows: int, fours: int) -> str:
    """The shader of a tile, after its element types and where its elements lie."""
    sums = SumTile(rows, fours, "a")
    lines = [
        MAIN_TEXT,
        f"  let at = conv_item(item, {rows}u, {4 * fours}u);",
        "  if (at.beyond) { return; }",
        "  let last = vec4<u32>(positions() - 1u);",
    ]
    for q in range(fours):
        four = f"vec4<u32>(at.position + {4 * q}u) + vec4<u32>(0u, 1u, 2u, 3u)"
        lines += [
            f"  let p{q} = min({four}, last);",
            f"  let x{q} = at.x + x_places(p{q});",
            f"  let z{q} = at.z + z_places(p{q});",
        ]
    lines += [
        f"  let m{r} = min(at.row + {r}u, u.m - 1u);\n  let w{r} = at.w + m{r} * u.w_m;"
        for r in range(rows)
    ]
    lines += [f"  {line}" for line in sums.zeros()]
    lines.append(f"  let rows = min({rows}u, u.m - at.row);")

    def place(q: int, number: str) -> str:
        return f"z{q} + min(at.row + {number}, u.m - 1u) * u.z_m"

    def loads(r: int, number: str) -> list[str]:
        return [f"a{r}_{q} = load_z({place(q, number)});" for q in range(fours)]

    def stores(r: int, number: str) -> list[str]:
        return [f"store_z({place(q, number)}, a{r}_{q});" for q in range(fours)]

    lines.append("  if ((u.at_c | u.at_k0 | u.at_k1 | u.at_k2) > 0u) {")
    lines += [f"    {line}" for line in sums.loaded("rows", loads)]
    lines.append("  }")
    for name in SUMMED:
        lines.append(f"  for (var {name} = 0u; {name} < u.{name}; {name}++) {{")
    for letter in "xw":
        steps = " + ".join(f"{name} * u.{letter}_{name}" for name in SUMMED)
        lines.append(f"    let from_{letter} = {steps};")
    lines += [f"    let v{q} = load_x(x{q} + from_x);" for q in range(fours)]
    for r in range(rows):
        lines.append(f"    let one{r} = V(ld1(w{r} + from_w));")
        lines += [
            f"    a{r}_{q} = mul_add(one{r}, v{q}, a{r}_{q});" for q in range(fours)
        ]
    lines.append("  }}}}")
    lines += [f"  {line}" for line in sums.stored("rows", stores)]
    lines += [f"  finish_conv(at, {rows}u, {4 * fours}u);", "}"]
    return "\n".join(lines)
