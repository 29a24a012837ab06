"""Matrix products by large blocks, for GPUs: the WGSL of one kernel per block size, and
its plan.

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

from rlxweb.codegen.wgsl_entry_point import MAIN_TEXT
from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
)
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule
from rlxweb.ops.reduce.wgsl.plan import (
    KeptAxes,
    ReducedAxes,
    ReductionPass,
    compute_scalar,
    element_type_include,
    pass_dispatch,
)

SLICE_DEPTH, LANE_SIDE, ROW_PADDING = 8, 8, 4
BLOCK_SIDES = (128, 64)
WARP_SIZE = 32
FILLING_WARPS = 1056
"""Number of warps that fill a large GPU: eight for each of 132 multiprocessors."""
MAX_SPLIT_PARTS = 16
MIN_PART_TERMS = 48
"""Minimum number of terms of one part of a split sum."""
MIN_LONG_SUM_TERMS = 1024
"""Minimum number of terms of a sum that is worth splitting in two when its blocks leave
a third of a large GPU idle.
"""
MIN_FEW_ROWS_TERMS = 128
"""Minimum number of terms from which blocks are faster than one lane per result, even
if mostly empty: their time is that of the sum, whose parts are computed in parallel (an
H100: 32 rows by 384 terms take 14 µs for 80, by 1,536 21 for 307). For few rows and few
columns MIN_LONG_SUM_TERMS applies.
"""


@dataclass(frozen=True, slots=True)
class BlockedMatmulKernel:
    """Description of one kernel of a given block size.

    side     rows and columns of its block
    is_vec4  whether it moves the right operand by vec4s
    column_function  a function of the text that y_four takes four columns from, by the
                     first of them; none: y_four takes the first
    """

    side: int
    is_vec4: bool
    column_function: str = ""

    @property
    def lanes(self) -> int:
        """Number of lanes of a workgroup."""
        return (self.side // LANE_SIDE) ** 2

    @property
    def vec4s_per_lane(self) -> int:
        """Number of vec4s a lane fetches of each operand for a slice."""
        return self.side * SLICE_DEPTH // 4 // self.lanes

    @property
    def left_pitch(self) -> int:
        """Number of vec4 cells from one term to the next in the left slice."""
        return (self.side + ROW_PADDING) // 4

    @property
    def shared_bytes(self) -> int:
        """Bytes of workgroup memory."""
        return 2 * SLICE_DEPTH * (4 * self.left_pitch + self.side) * 4

    def source(self) -> str:
        """Return the shader that follows the element types and the vec4 accessors."""
        left_size = 2 * SLICE_DEPTH * self.left_pitch
        right_size = 2 * SLICE_DEPTH * self.side // 4
        lines = [
            f"var<workgroup> left: array<V, {left_size}>;",
            f"var<workgroup> right: array<V, {right_size}>;",
            MAIN_TEXT + "\n".join(self._lane_declarations()),
        ]
        lines += [*self._slice_loads("first"), *self._slice_stores("0u")]
        lines += ["  workgroupBarrier();", "  var turn = 0u;"]
        lines += [f"  for (var k = first; k < b.last; k += {SLICE_DEPTH}u) {{"]
        # Behind the last slice zeros are fetched, which nobody uses.
        lines += [f"  {line}" for line in self._slice_loads(f"k + {SLICE_DEPTH}u")]
        lines += self._multiply_slice()
        lines += ["    let next = 1u - turn;"]
        lines += [f"  {line}" for line in self._slice_stores("next")]
        lines += ["    workgroupBarrier();", "    turn = next;", "  }"]
        half = self.side // 2
        for r in range(LANE_SIDE):
            output_index = f"b.row + row + {r // 4 * half + r % 4}u, b.column + column"
            lines.append(f"  put(b.z, {output_index}, c{r}0);")
            lines.append(f"  put(b.z, {output_index} + {half}u, c{r}1);")
        return "\n".join([*lines, "}"])

    def _lane_declarations(self) -> list[str]:
        """Declare the block of a workgroup, the corner of a lane, and its sums."""
        side = self.side
        warps_across = side // (8 * LANE_SIDE)  # warps beside each other
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
            f"  let row = (warp / {warps_across}u * 4u + lid / 8u % 4u) * 4u;",
            f"  let column = (warp % {warps_across}u * 8u + lid % 8u) * 4u;",
            # A lane fetches the same columns of every slice.
            f"  let fetched = {self.column_function}(b.column + lid % {side // 4}u * "
            f"4u);",
        ]
        return lines + [
            f"  var c{r}{h} = V();" for r in range(LANE_SIDE) for h in range(2)
        ]

    def _slice_loads(self, k: str) -> list[str]:
        """Load the next slice into registers, as vec4s."""
        lines = [f"  let from_k = {k};"]
        for q in range(self.vec4s_per_lane):
            index = f"(lid + {q * self.lanes}u)"
            row_vec4s = self.side // 4
            lines += [
                f"  let x{q} = x_four(b, b.row + {index} / {SLICE_DEPTH}u * 4u, "
                f"from_k + {index} % {SLICE_DEPTH}u);",
                f"  let y{q} = y_four(b.y, from_k + {index} / {row_vec4s}u, "
                "fetched, b.last);",
            ]
        return lines

    def _slice_stores(self, slice_index: str) -> list[str]:
        """Store the loaded slice in workgroup memory, the left one transposed."""
        lines = []
        for q in range(self.vec4s_per_lane):
            index = f"(lid + {q * self.lanes}u)"
            cell = (
                f"({slice_index} * {SLICE_DEPTH}u + {index} % {SLICE_DEPTH}u) * "
                f"{self.left_pitch}u"
            )
            lines += [
                f"  left[{cell} + {index} / {SLICE_DEPTH}u] = x{q};",
                f"  right[{slice_index} * {SLICE_DEPTH * self.side // 4}u + {index}] "
                f"= y{q};",
            ]
        return lines

    def _multiply_slice(self) -> list[str]:
        """Multiply the slices in workgroup memory into the lane's sums."""
        half_vec4s, row_vec4s = self.side // 8, self.side // 4
        lines = [
            f"    for (var j = 0u; j < {SLICE_DEPTH}u; j++) {{",
            f"      let of_left = (turn * {SLICE_DEPTH}u + j) * {self.left_pitch}u + "
            f"row / 4u;",
            f"      let of_right = (turn * {SLICE_DEPTH}u + j) * {row_vec4s}u + "
            f"column / 4u;",
            "      let a0 = left[of_left];",
            f"      let a1 = left[of_left + {half_vec4s}u];",
            "      let b0 = right[of_right];",
            f"      let b1 = right[of_right + {half_vec4s}u];",
        ]
        for r in range(LANE_SIDE):
            left_value = f"V(a{r // 4}.{'xyzw'[r % 4]})"
            lines += [
                f"      c{r}{h} = mul_add({left_value}, b{h}, c{r}{h});"
                for h in range(2)
            ]
        return [*lines, "    }"]


def split_part_count(warps: int, k: int) -> int:
    """Return the number of workgroups that share the sum of a block, a power of two."""
    if FILLING_WARPS <= warps < 1.6 * FILLING_WARPS and k >= MIN_LONG_SUM_TERMS:
        return 2
    max_parts = min(MAX_SPLIT_PARTS, FILLING_WARPS // warps, k // MIN_PART_TERMS)
    return 1 << max(0, max_parts.bit_length() - 1)


def blocked_matmul_rule(side: int) -> WgslPlanRule:
    """Return the plan rule of a product by blocks of `side` by `side`.

    None where blocks would be mostly empty for a short sum, where batch axes make it
    several dispatches, and where the rows of one block are over one binding.
    """

    def build_plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        plan = registry.get("matmul").kernel_plan(inputs, out, attrs)
        if plan is None or len(plan.dispatches) != 1:
            return None
        (dispatch,) = plan.dispatches
        sizes = {axis.name: axis.size for axis in dispatch.axes}
        batch = sizes["b0"] * sizes["b1"] * sizes["b2"]
        m, n, k = sizes["m"], sizes["n"], sizes["k"]
        kernel = BlockedMatmulKernel(side, n % 4 == 0 and dispatch.uniforms["y_n"] == 1)
        warps = batch * -(-m // side) * -(-n // side) * (kernel.lanes // WARP_SIZE)
        if not (
            suits_blocks(kernel, (m, n, k), warps, limits)
            or is_long_sum(kernel, (m, n, k), warps)
        ):
            return None
        max_operand_nbytes = max(operand.nbytes for operand in (*inputs, out))
        max_binding_nbytes = limits.max_storage_buffer_binding_size
        block_row_nbytes = side * max(k, n) * inputs[0].dtype.nbytes
        if (
            block_row_nbytes
            > max_binding_nbytes - limits.min_storage_buffer_offset_alignment
        ):
            return None
        fits_binding = max_operand_nbytes <= max_binding_nbytes
        return plan_split_sum(
            kernel, dispatch, out, split_part_count(warps, k) if fits_binding else 1
        )

    return build_plan


def suits_blocks(
    kernel: BlockedMatmulKernel, sizes: tuple[int, int, int], warps: int, limits: Limits
) -> bool:
    """Return whether blocks of that size suit a product of m, n, k."""
    m, n, k = sizes
    max_lanes = limits.max_linear_workgroup_size
    # Small blocks are for what large ones, their sums cut in two, would not fill.
    is_large_enough = (
        kernel.side == BLOCK_SIDES[-1] or warps * 2 >= FILLING_WARPS - WARP_SIZE
    )
    is_mostly_full = min(m, n) * 2 > kernel.side and k >= 2 * SLICE_DEPTH
    return is_large_enough and is_mostly_full and kernel.lanes <= max_lanes


def is_long_sum(
    kernel: BlockedMatmulKernel, sizes: tuple[int, int, int], warps: int
) -> bool:
    """Return whether the product has few rows or columns, long sums, and too few of
    them for a large GPU.
    """
    m, n, k = sizes
    min_terms = (
        MIN_FEW_ROWS_TERMS if max(m, n) * 2 > kernel.side else MIN_LONG_SUM_TERMS
    )
    return kernel.side == BLOCK_SIDES[-1] and k >= min_terms and warps < FILLING_WARPS


def loop_iterations(k: int) -> float:
    """Return the loop iterations of a lane for a sum of k terms."""
    return (1 + 1 / SLICE_DEPTH) * (k + SLICE_DEPTH)


def plan_split_sum(
    kernel: BlockedMatmulKernel, dispatch: KernelDispatch, out: TensorType, parts: int
) -> KernelPlan:
    """Plan a product's own dispatch by blocks, in `parts` of its sum, and the sum of
    the parts.
    """
    k = next(axis.size for axis in dispatch.axes if axis.name == "k")
    total = out.numel
    part_length = -(-k // (parts * SLICE_DEPTH)) * SLICE_DEPTH
    parts = -(-k // part_length)
    target = BufferRef("out") if parts == 1 else BufferRef("scratch")
    block_dispatch = _block_dispatch(
        kernel, dispatch, (parts, part_length, total), target
    )
    if parts == 1:
        return KernelPlan((block_dispatch,))
    sum_pass = ReductionPass(
        target, BufferRef("out"), (KeptAxes(total, 1, 1),), (ReducedAxes(parts, total),)
    )
    sum_dispatch = pass_dispatch("sum", sum_pass, element_type_include(out.dtype))
    return KernelPlan(
        (block_dispatch, sum_dispatch),
        (ScratchBuffer(parts * total, compute_scalar(out.dtype)),),
    )


def _block_dispatch(
    kernel: BlockedMatmulKernel,
    dispatch: KernelDispatch,
    sum_split: tuple[int, int, int],
    target: BufferRef,
) -> KernelDispatch:
    """Return the product's own dispatch by blocks; `sum_split`: parts, terms of a part,
    outputs of a part.
    """
    parts, part_length, total = sum_split
    # The parts of a sum begin and end where they do in the whole of it.
    axes = tuple(replace(a, kind="whole") if parts > 1 else a for a in dispatch.axes)
    x, y, z = dispatch.accesses
    k = next(axis.size for axis in axes if axis.name == "k")
    scalar_include = dispatch.uses[0]
    return KernelDispatch(
        "matmul_blocks",
        axes=(IterationAxis("part", parts, "whole"), *axes),
        accesses=(
            OperandAccess(x.ref, (0, *x.strides)),
            OperandAccess(y.ref, (0, *y.strides), is_vec4=kernel.is_vec4),
            OperandAccess(
                target, (total, *z.strides), "update", is_vec4=kernel.is_vec4
            ),
        ),
        grid=(
            ("part", 1),
            *((name, 1) for name in ("b0", "b1", "b2")),
            ("m", kernel.side),
            ("n", kernel.side),
        ),
        item_unit="workgroup",
        workgroup_size=kernel.lanes,
        uniforms={**dispatch.uniforms, "length": part_length, "z_part": total},
        uses=(
            scalar_include,
            "block",
            "rows_wide" if kernel.is_vec4 else "rows_single",
        ),
        source=kernel.source(),
        shared_bytes=kernel.shared_bytes,
        iterations=loop_iterations(part_length) / max(1, k),
        epilogue_site="stores",
        is_in_bounds=True,
    )


KERNELS = tuple(
    KernelVariant(f"matmul, blocks of {side}", "matmul", blocked_matmul_rule(side))
    for side in BLOCK_SIDES
)
