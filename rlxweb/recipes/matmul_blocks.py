"""Matrix products by large blocks, for GPUs: the text of one kernel per block size.

A workgroup computes `side` by `side` of the output, a lane 8 by 8 in registers. Slices
of DEPTH terms pass through workgroup memory, two of each operand, so that the next is
fetched while one is used; the left one lies transposed, its rows PAD cells longer than
the block, which keeps its stores free of bank conflicts. A lane fetches four rows of it
at one term, for it must store whole vec4s: WGSL lets a store to one component write the
others back. The right operand is read four neighbours at a time where rows allow it.
Where there are too few blocks for a GPU the sum is split over several workgroups and
added up by another pass; where an operand is over one binding, pieces of the sum run in
turn and carry on from the output. f16 is storage only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.limits import Limits
from rlxweb.recipes.entry import MAIN_TEXT
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.reduce_calls import (
    Kept,
    Pass,
    Reduced,
    pass_call,
    scalar_of,
    type_include,
)

DEPTH, EACH, PAD = 8, 8, 4
SIDES = (128, 64)
WARP = 32
ENOUGH = 1056
"""Warps that fill a large GPU: eight for each of 132 multiprocessors."""
MOST_PARTS = 16
LEAST_DEPTH = 48
"""Terms of a part of a split sum."""
LONG = 1024
"""Terms of a sum that is worth cutting in two where its blocks leave a third of a large
GPU without work.
"""
FEW_ROWS_DEPTH = 128
"""Terms from which blocks are faster than a lane a result, be they mostly empty: their
time is that of the sum, whose parts are computed side by side (an H100: 32 rows by 384
terms take 14 µs for 80, by 1,536 21 for 307). Few rows and few columns: from LONG on.
"""


@dataclass(frozen=True, slots=True)
class Blocks:
    """One kernel.

    side     rows and columns of its block
    wide     whether it moves the right operand by vec4s
    columns  a function of the text that y_four takes four columns from, by the first of
             them; none: y_four takes the first
    """

    side: int
    wide: bool
    columns: str = ""

    @property
    def lanes(self) -> int:
        return (self.side // EACH) ** 2

    @property
    def loads(self) -> int:
        """Groups of four a lane fetches of each operand for a slice."""
        return self.side * DEPTH // 4 // self.lanes

    @property
    def pitch(self) -> int:
        """Cells of four from one term to the next in the left slice."""
        return (self.side + PAD) // 4

    @property
    def shared_bytes(self) -> int:
        return 2 * DEPTH * (4 * self.pitch + self.side) * 4

    def text(self) -> str:
        """The shader, after its element types and what reads and writes by fours."""
        left, right = 2 * DEPTH * self.pitch, 2 * DEPTH * self.side // 4
        lines = [
            f"var<workgroup> left: array<V, {left}>;",
            f"var<workgroup> right: array<V, {right}>;",
            MAIN_TEXT + "\n".join(self._places()),
        ]
        lines += [*self._fetches("first"), *self._keeps("0u")]
        lines += ["  workgroupBarrier();", "  var turn = 0u;"]
        lines += [f"  for (var k = first; k < b.last; k += {DEPTH}u) {{"]
        # Behind the last slice zeros are fetched, which nobody uses.
        lines += [f"  {line}" for line in self._fetches(f"k + {DEPTH}u")]
        lines += self._products()
        lines += ["    let next = 1u - turn;"]
        lines += [f"  {line}" for line in self._keeps("next")]
        lines += ["    workgroupBarrier();", "    turn = next;", "  }"]
        half = self.side // 2
        for r in range(EACH):
            at = f"b.row + row + {r // 4 * half + r % 4}u, b.column + column"
            lines.append(f"  put(b.z, {at}, c{r}0);")
            lines.append(f"  put(b.z, {at} + {half}u, c{r}1);")
        return "\n".join([*lines, "}"])

    def _places(self) -> list[str]:
        """The block of a workgroup, the corner of a lane, its sums."""
        side = self.side
        across = side // (8 * EACH)  # warps beside each other
        lines = [
            f"  let across = (u.n + {side - 1}u) / {side}u;",
            f"  let down = (u.m + {side - 1}u) / {side}u;",
            "  let line = item / across;",
            "  var rest = line / down;",
            "  let i2 = rest % u.b2; rest = rest / u.b2;",
            "  let i1 = rest % u.b1; rest = rest / u.b1;",
            "  let i0 = rest % u.b0;",
            "  let part = rest / u.b0;",
            "  let first = part * u.length;",
            "  var b: Block;",
            "  b.x = i0 * u.x_b0 + i1 * u.x_b1 + i2 * u.x_b2;",
            "  b.y = i0 * u.y_b0 + i1 * u.y_b1 + i2 * u.y_b2;",
            "  b.z = part * u.z_part + i0 * u.z_b0 + i1 * u.z_b1 + i2 * u.z_b2;",
            f"  b.row = line % down * {side}u;",
            f"  b.column = item % across * {side}u;",
            "  b.last = min(first + u.length, u.k);",
            # Eight lanes beside each other and four below: a warp touches 128
            # neighbouring bytes of the right slice and 64 of the left.
            "  let warp = lid / 32u;",
            f"  let row = (warp / {across}u * 4u + lid / 8u % 4u) * 4u;",
            f"  let column = (warp % {across}u * 8u + lid % 8u) * 4u;",
            # A lane fetches the same columns of every slice.
            f"  let fetched = {self.columns}(b.column + lid % {side // 4}u * 4u);",
        ]
        return lines + [f"  var c{r}{h} = V();" for r in range(EACH) for h in range(2)]

    def _fetches(self, k: str) -> list[str]:
        """The next slice into registers, groups of four."""
        lines = [f"  let from_k = {k};"]
        for q in range(self.loads):
            at = f"(lid + {q * self.lanes}u)"
            beside = self.side // 4
            lines += [
                f"  let x{q} = x_four(b, b.row + {at} / {DEPTH}u * 4u, "
                f"from_k + {at} % {DEPTH}u);",
                f"  let y{q} = y_four(b.y, from_k + {at} / {beside}u, "
                "fetched, b.last);",
            ]
        return lines

    def _keeps(self, turn: str) -> list[str]:
        """The fetched slice into workgroup memory, the left one transposed."""
        lines = []
        for q in range(self.loads):
            at = f"(lid + {q * self.lanes}u)"
            cell = f"({turn} * {DEPTH}u + {at} % {DEPTH}u) * {self.pitch}u"
            lines += [
                f"  left[{cell} + {at} / {DEPTH}u] = x{q};",
                f"  right[{turn} * {DEPTH * self.side // 4}u + {at}] = y{q};",
            ]
        return lines

    def _products(self) -> list[str]:
        half, beside = self.side // 8, self.side // 4
        lines = [
            f"    for (var j = 0u; j < {DEPTH}u; j++) {{",
            f"      let of_left = (turn * {DEPTH}u + j) * {self.pitch}u + row / 4u;",
            f"      let of_right = (turn * {DEPTH}u + j) * {beside}u + column / 4u;",
            "      let a0 = left[of_left];",
            f"      let a1 = left[of_left + {half}u];",
            "      let b0 = right[of_right];",
            f"      let b1 = right[of_right + {half}u];",
        ]
        for r in range(EACH):
            one = f"V(a{r // 4}.{'xyzw'[r % 4]})"
            lines += [
                f"      c{r}{h} = mul_add({one}, b{h}, c{r}{h});" for h in range(2)
            ]
        return [*lines, "    }"]


def parts_of(warps: int, k: int) -> int:
    """How many workgroups share the sum of a block; a power of two."""
    if ENOUGH <= warps < 1.6 * ENOUGH and k >= LONG:
        return 2
    room = min(MOST_PARTS, ENOUGH // warps, k // LEAST_DEPTH)
    return 1 << max(0, room.bit_length() - 1)


def matmul_blocks(side: int) -> RecipeFor:
    """The recipe of a product by blocks of `side` by `side`.

    None where blocks would be mostly empty for a short sum, where batch axes make it
    several calls, and where the rows of one block are over one binding.
    """

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        made = registry.get("matmul").recipe(inputs, out, attrs)
        if made is None or len(made.calls) != 1:
            return None
        (call,) = made.calls
        size = {axis.name: axis.size for axis in call.axes}
        batch = size["b0"] * size["b1"] * size["b2"]
        m, n, k = size["m"], size["n"], size["k"]
        one = Blocks(side, n % 4 == 0 and call.values["y_n"] == 1)
        warps = batch * -(-m // side) * -(-n // side) * (one.lanes // WARP)
        if not (suits(one, (m, n, k), warps, limits) or is_long(one, (m, n, k), warps)):
            return None
        largest = max(t.nbytes for t in (*inputs, out))
        most = limits.max_storage_buffer_binding_size
        rows = side * max(k, n) * inputs[0].dtype.nbytes
        if rows > most - limits.min_storage_buffer_offset_alignment:
            return None
        uncut = largest <= most
        return split(one, call, out, parts_of(warps, k) if uncut else 1)

    return recipe


def suits(one: Blocks, sizes: tuple[int, int, int], warps: int, limits: Limits) -> bool:
    """Whether blocks of that size are the right ones for a product of m, n, k."""
    m, n, k = sizes
    room = limits.workgroup_lanes
    # Small blocks are for what large ones, their sums cut in two, would not fill.
    large = one.side == SIDES[-1] or warps * 2 >= ENOUGH - WARP
    full = min(m, n) * 2 > one.side and k >= 2 * DEPTH
    return large and full and one.lanes <= room


def is_long(one: Blocks, sizes: tuple[int, int, int], warps: int) -> bool:
    """Few rows or columns, long sums, and too little of them for a large GPU."""
    m, n, k = sizes
    least = FEW_ROWS_DEPTH if max(m, n) * 2 > one.side else LONG
    return one.side == SIDES[-1] and k >= least and warps < ENOUGH


def turns_of(k: int) -> float:
    """Loop turns of a lane for a sum of k terms."""
    return (1 + 1 / DEPTH) * (k + DEPTH)


def split(one: Blocks, call: Call, out: TensorType, parts: int) -> Recipe:
    """A product's own call by blocks, in `parts` of its sum, and the sum of them."""
    k = next(axis.size for axis in call.axes if axis.name == "k")
    total = out.numel
    length = -(-k // (parts * DEPTH)) * DEPTH
    parts = -(-k // length)
    target = Ref("out") if parts == 1 else Ref("scratch")
    mine = _block_call(one, call, (parts, length, total), target)
    if parts == 1:
        return Recipe((mine,))
    walk = Pass(target, Ref("out"), (Kept(total, 1, 1),), (Reduced(parts, total),))
    summed = pass_call("sum", walk, type_include(out.dtype))
    return Recipe((mine, summed), (Scratch(parts * total, scalar_of(out.dtype)),))


def _block_call(
    one: Blocks, call: Call, split: tuple[int, int, int], target: Ref
) -> Call:
    """The product's own call, by blocks; `split`: parts, their terms, their outputs."""
    parts, length, total = split
    # The parts of a sum begin and end where they do in the whole of it.
    axes = tuple(replace(a, kind="whole") if parts > 1 else a for a in call.axes)
    x, y, z = call.accesses
    k = next(axis.size for axis in axes if axis.name == "k")
    types = call.uses[0]
    return Call(
        "matmul_blocks",
        axes=(Axis("part", parts, "whole"), *axes),
        accesses=(
            Access(x.ref, (0, *x.strides)),
            Access(y.ref, (0, *y.strides), wide=one.wide),
            Access(target, (total, *z.strides), "update", wide=one.wide),
        ),
        grid=(
            ("part", 1),
            *((name, 1) for name in ("b0", "b1", "b2")),
            ("m", one.side),
            ("n", one.side),
        ),
        per="workgroup",
        workgroup=one.lanes,
        values={**call.values, "length": length, "z_part": total},
        uses=(types, "block", "rows_wide" if one.wide else "rows_single"),
        source=one.text(),
        shared_bytes=one.shared_bytes,
        turns=turns_of(length) / max(1, k),
        finishes="stores",
        in_bounds=True,
    )
