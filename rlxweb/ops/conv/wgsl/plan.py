"""Kernel plan of a convolution: a tile of output channels by positions in registers.

One invocation computes `rows` channels at `4 · fours` neighbouring positions of one
group, so that an element of the array is loaded once for all its channels and a weight
once for all its positions. Which positions: they are numbered through all spatial axes,
so that short axes waste no lane. Every axis may be cut: the sum by its channels and the
taps of the window, and a piece carries on from what the one before has stored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from rlxweb.codegen.accumulator_tile import AccumulatorTile
from rlxweb.codegen.wgsl_entry_point import MAIN_TEXT
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.op import Attrs
from rlxweb.ir.shape_arithmetic import Shape, numel
from rlxweb.ops.conv.windows import (
    PaddedInput,
    SlidingWindows,
    plan_padding,
    sliding_windows,
)
from rlxweb.ops.reduce.wgsl.plan import compute_scalar

MAX_TILE_ROWS, MAX_TILE_VEC4S = 16, 4
"""The largest tile: 16 channels by 16 positions, as products have on such adapters."""
WORKGROUP_SIZE = 8
"""Invocations of a workgroup: one vector of the CPU that some adapters run on."""
MIN_INVOCATIONS = 64
"""Number of invocations below which a smaller tile keeps more of them busy."""
MAX_EPILOGUE_OUTPUTS = 1 << 19
"""Number of outputs up to which an epilogue is fused, as for matrix products: see
ops/matmul/op.py.
"""
AXIS_NAMES = ("n", "g", "m", "o0", "o1", "o2", "c", "k0", "k1", "k2")
GRID_AXES = AXIS_NAMES[:6]
SUMMED_AXES = AXIS_NAMES[6:]


class ConvolutionShape(NamedTuple):
    """Sizes of a convolution with three spatial axes.

    channels   of the array and of the result, in a group
    """

    batch: int
    groups: int
    channels: tuple[int, int]
    windows: SlidingWindows

    @property
    def is_pointwise(self) -> bool:
        """True if each window is one element, and all elements have one."""
        w = self.windows
        return w.is_inside and w.extents == w.spatial_shape == w.out_shape

    @property
    def is_depthwise(self) -> bool:
        """True if groups are single channels of which few are made: too few products
        to be worth laying windows side by side.
        """
        c, m = self.channels
        return c == 1 and m * 8 <= self.groups

    @property
    def tile(self) -> tuple[int, int]:
        """Channels and vec4s of positions that one invocation computes."""
        m, positions = self.channels[1], numel(self.windows.out_shape)
        rows = -(-m // -(-m // MAX_TILE_ROWS)) if m else 1
        row_tiles = self.batch * self.groups * -(-m // max(1, rows))
        vec4s = MAX_TILE_VEC4S
        while vec4s > 1 and row_tiles * -(-positions // (4 * vec4s)) < MIN_INVOCATIONS:
            vec4s //= 2
        return rows, vec4s


def convolution_shape(x: Shape, w: Shape, attrs: Attrs) -> ConvolutionShape:
    """Return the sizes of a convolution whose operand shapes have been checked."""
    groups = attrs["groups"]
    windows = sliding_windows(x[2:], w[2:], attrs).expand_to_three_axes()
    return ConvolutionShape(x[0], groups, (w[1], w[0] // groups), windows)


def plan_conv(conv: ConvolutionShape, dtype: DType) -> KernelPlan:
    """Plan a convolution: pad the array if needed, then sum over it."""
    c, _ = conv.channels
    padded_input = plan_padding(conv.windows, conv.batch * conv.groups * c, dtype)
    dispatches = (*padded_input.dispatches, _conv_dispatch(conv, padded_input, dtype))
    return KernelPlan(dispatches, padded_input.scratch, padded_input.tables)


def _conv_dispatch(
    conv: ConvolutionShape, padded_input: PaddedInput, dtype: DType
) -> KernelDispatch:
    rows, vec4s = conv.tile
    (c, m), w = conv.channels, conv.windows
    sizes = (conv.batch, conv.groups, m, *w.out_shape, c, *w.kernel)
    strides = conv_strides(conv, padded_input.extents)
    axes = tuple(
        IterationAxis(name, size, "serial" if name in SUMMED_AXES else "parallel")
        for name, size in zip(AXIS_NAMES, sizes, strict=True)
    )
    uniforms: dict[str, Any] = {}
    for letter, operand_strides in zip("xwz", strides, strict=True):
        uniforms |= {
            f"{letter}_{n}": s for n, s in zip(AXIS_NAMES, operand_strides, strict=True)
        }
    tiles = {"m": rows, "o2": 4 * vec4s}
    return KernelDispatch(
        "conv",
        axes=axes,
        accesses=(
            OperandAccess(padded_input.ref, strides[0]),
            OperandAccess(BufferRef("in", 1), strides[1]),
            OperandAccess(BufferRef("out"), strides[2], "update"),
        ),
        # As many items as there are tiles along the last axis alone: never fewer than
        # the tiles of all positions.
        grid=tuple((name, tiles.get(name, 1)) for name in GRID_AXES),
        workgroup_size=WORKGROUP_SIZE,
        uniforms=uniforms,
        # matmul_f32, matmul_i32 or matmul_u32
        uses=(f"matmul_{compute_scalar(dtype)}", "conv_places", "conv_finish_none"),
        source=conv_tile_source(rows, vec4s),
        epilogue_site="tile" if numel(sizes[:6]) <= MAX_EPILOGUE_OUTPUTS else "",
    )


def conv_strides(conv: ConvolutionShape, extents: Shape) -> tuple[tuple[int, ...], ...]:
    """Return the strides of the array, the weights and the result along all axes, in
    order.

    With nothing to sum the operands are empty: no step may point into them.
    """
    (c, m), w = conv.channels, conv.windows
    has_channels = int(c > 0)
    input_strides = row_major_strides((conv.batch, conv.groups, c, *extents))
    weight_strides = row_major_strides((conv.groups, m, c, *w.kernel))
    output_strides = row_major_strides((conv.batch, conv.groups, m, *w.out_shape))
    window_strides = tuple(
        s * t for s, t in zip(w.strides, input_strides[3:], strict=True)
    )
    tap_strides = tuple(
        d * t for d, t in zip(w.dilations, input_strides[3:], strict=True)
    )
    x = (
        input_strides[0],
        input_strides[1],
        0,
        *window_strides,
        input_strides[2],
        *tap_strides,
    )
    weights = (
        0,
        weight_strides[0],
        weight_strides[1],
        0,
        0,
        0,
        weight_strides[2],
        *weight_strides[3:],
    )
    return (
        tuple(s * has_channels for s in x),
        tuple(s * has_channels for s in weights),
        (*output_strides, 0, 0, 0, 0),
    )


@lru_cache(maxsize=64)
def conv_tile_source(rows: int, vec4s: int) -> str:
    """Return the WGSL of a tile that follows the element types and accessors."""
    tile = AccumulatorTile(rows, vec4s, "a")
    lines = [
        MAIN_TEXT,
        f"  let at = conv_item(item, {rows}u, {4 * vec4s}u);",
        "  if (at.beyond) { return; }",
        "  let last = vec4<u32>(positions() - 1u);",
    ]
    for q in range(vec4s):
        positions = f"vec4<u32>(at.position + {4 * q}u) + vec4<u32>(0u, 1u, 2u, 3u)"
        lines += [
            f"  let p{q} = min({positions}, last);",
            f"  let x{q} = at.x + x_places(p{q});",
            f"  let z{q} = at.z + z_places(p{q});",
        ]
    lines += [
        f"  let m{r} = min(at.row + {r}u, u.m - 1u);\n  let w{r} = at.w + m{r} * u.w_m;"
        for r in range(rows)
    ]
    lines += [f"  {line}" for line in tile.declarations()]
    lines.append(f"  let rows = min({rows}u, u.m - at.row);")

    def output_index(q: int, row_number: str) -> str:
        return f"z{q} + min(at.row + {row_number}, u.m - 1u) * u.z_m"

    def load_lines(r: int, row_number: str) -> list[str]:
        return [
            f"a{r}_{q} = load_z({output_index(q, row_number)});" for q in range(vec4s)
        ]

    def store_lines(r: int, row_number: str) -> list[str]:
        return [
            f"store_z({output_index(q, row_number)}, a{r}_{q});" for q in range(vec4s)
        ]

    lines.append("  if ((u.at_c | u.at_k0 | u.at_k1 | u.at_k2) > 0u) {")
    lines += [f"    {line}" for line in tile.load_rows("rows", load_lines)]
    lines.append("  }")
    for name in SUMMED_AXES:
        lines.append(f"  for (var {name} = 0u; {name} < u.{name}; {name}++) {{")
    for letter in "xw":
        steps = " + ".join(f"{name} * u.{letter}_{name}" for name in SUMMED_AXES)
        lines.append(f"    let from_{letter} = {steps};")
    lines += [f"    let v{q} = load_x(x{q} + from_x);" for q in range(vec4s)]
    for r in range(rows):
        lines.append(f"    let one{r} = V(ld1(w{r} + from_w));")
        lines += [
            f"    a{r}_{q} = mul_add(one{r}, v{q}, a{r}_{q});" for q in range(vec4s)
        ]
    lines.append("  }}}}")
    lines += [f"  {line}" for line in tile.store_rows("rows", store_lines)]
    lines += [f"  finish_conv(at, {rows}u, {4 * vec4s}u);", "}"]
    return "\n".join(lines)
