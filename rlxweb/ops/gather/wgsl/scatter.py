"""Kernel plans of gather and scatter by indices of one or several axes.

The tensor is seen as (outer, rows, inner), the rows being those that indices name. A
piece holds some of the rows and does what concerns them. Values are put in one after
the other along a line, in the order of their indices: the last one wins, and a sum has
the same bits every time. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlxweb.codegen.wgsl_entry_point import MAIN_LINES
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.lowering import (
    WHOLE_AXIS,
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ops.reduce.wgsl.plan import element_type_include

_INPUT, _INDICES, _OUTPUT = BufferRef("in"), BufferRef("in", 1), BufferRef("out")
COMBINE_EXPRESSIONS = {
    "none": "v",
    "add": "ld2(place) + v",
    "mul": "ld2(place) * v",
    "max": "larger_of(ld2(place), v)",
    "min": "smaller_of(ld2(place), v)",
}


@dataclass(frozen=True, slots=True)
class GatherScatterSpec:
    """Description of how indices select the rows of a tensor.

    outer   times that all of it is there, each with indices of its own
    indexed_dims  the axes that an index names, whose product is the rows
    inner   elements of a row
    count   indices of each outer part
    is_elementwise  each element of a row has indices of its own (along one axis)
    index_dtype  their type
    """

    outer: int
    indexed_dims: tuple[int, ...]
    inner: int
    count: int
    is_elementwise: bool
    index_dtype: DType

    @property
    def rows(self) -> int:
        """Number of rows that an index may select."""
        return math.prod(self.indexed_dims)

    @property
    def index_strides(self) -> dict[str, int]:
        """Strides of the indices over (outer, index, inner), as uniforms."""
        index_stride = self.inner if self.is_elementwise else len(self.indexed_dims)
        return {
            "i_outer": self.count * index_stride,
            "i_index": index_stride,
            "i_inner": int(self.is_elementwise),
        }

    @property
    def uniforms(self) -> dict[str, int]:
        """Uniforms with the sizes and strides of the indexed axes, and the strides of
        the indices.
        """
        strides = row_major_strides(self.indexed_dims)
        sizes = {f"n{k}": size for k, size in enumerate(self.indexed_dims)}
        return (
            sizes
            | {f"r{k}": stride for k, stride in enumerate(strides)}
            | self.index_strides
        )

    def row_lookup(self, out_of_range: Sequence[str]) -> list[str]:
        """Compute the row that the index at `at` selects; `out_of_range` are the lines
        for an index outside.
        """
        lines, count = [], len(self.indexed_dims)
        for k in range(count):
            lines.append(f"  let c{k} = ld1(at + {k}u);")
            wrap_negative = f" + select(0u, u.n{k}, c{k} < 0)"
            wrap_negative = "" if self.index_dtype.is_unsigned else wrap_negative
            lines.append(f"  let w{k} = u32(c{k}){wrap_negative};")
        outside = " || ".join(f"w{k} >= u.n{k}" for k in range(count))
        row = " + ".join(f"w{k} * u.r{k}" for k in range(count))
        return [
            *lines,
            f"  if ({outside}) {{",
            "    if (u.at_t == 0u) { fault(1u); }",
            *out_of_range,
            "  }",
            f"  let row = {row} - u.at_t;",
        ]

    def plan_gather(self) -> KernelPlan:
        """Plan the gather of the rows that the indices select, in their order."""
        strides = self.index_strides
        lines = [
            *MAIN_LINES,
            "  let inner = item % u.inner;",
            "  let index = (item / u.inner) % u.index;",
            "  let outer = item / u.inner / u.index;",
            "  let at = outer * u.i_outer + index * u.i_index + inner * u.i_inner;",
            "  let line = outer * u.x_outer + inner;",
            "  let place = outer * u.y_outer + index * u.y_index + inner;",
            *self.row_lookup(
                (
                    "    if (u.at_t == 0u) { st2(place, ld0(line)); }",
                    "    return;",
                )
            ),
            "  if (row < u.t) { st2(place, ld0(line + row * u.y_index)); }",
            "}",
        ]
        dispatch = KernelDispatch(
            shader="gather of elements",
            axes=(
                IterationAxis("outer", self.outer),
                IterationAxis("index", self.count),
                IterationAxis("inner", self.inner),
                IterationAxis("t", self.rows, "serial"),
            ),
            accesses=(
                OperandAccess(_INPUT, (self.rows * self.inner, 0, 1, self.inner)),
                OperandAccess(
                    _INDICES, (*strides.values(), 0), span=len(self.indexed_dims)
                ),
                OperandAccess(
                    _OUTPUT, (self.count * self.inner, self.inner, 1, 0), "update"
                ),
            ),
            grid=(("outer", 1), ("index", 1), ("inner", 1)),
            uniforms=self.uniforms
            | {
                "x_outer": self.rows * self.inner,
                "y_outer": self.count * self.inner,
                "y_index": self.inner,
            },
            source="\n".join(lines),
            reports_faults=True,
            iterations=0.0,
        )
        return KernelPlan((dispatch,))

    def plan_scatter(self, reduction: str, dtype: DType) -> KernelPlan:
        """Plan a copy of the tensor and the scatter of the values into it."""
        total = self.outer * self.rows * self.inner
        if not self.outer * self.count * self.inner:
            return KernelPlan((_copy_dispatch(total),))
        strides = self.index_strides
        lines = [
            *MAIN_LINES,
            "  let inner = item % u.inner;",
            "  let outer = item / u.inner;",
            "  for (var j = 0u; j < u.j; j += 1u) {",
            "  let at = outer * u.i_outer + j * u.i_index + inner * u.i_inner;",
            *self.row_lookup(("    continue;",)),
            "  if (row >= u.t) { continue; }",
            "  let place = outer * u.y_outer + row * u.v_j + inner;",
            "  let v = ld0(outer * u.v_outer + j * u.v_j + inner);",
            f"  st2(place, {COMBINE_EXPRESSIONS[reduction]});",
            "  }",
            "}",
        ]
        is_plain = reduction == "none"
        dispatch = KernelDispatch(
            shader="scatter of elements",
            axes=(
                IterationAxis("outer", self.outer),
                IterationAxis("inner", self.inner),
                IterationAxis("t", self.rows, "serial"),
                IterationAxis("j", self.count, "serial"),
            ),
            accesses=(
                OperandAccess(
                    BufferRef("in", 2), (self.count * self.inner, 1, 0, self.inner)
                ),
                OperandAccess(
                    _INDICES,
                    (strides["i_outer"], strides["i_inner"], 0, strides["i_index"]),
                    span=len(self.indexed_dims),
                ),
                OperandAccess(
                    _OUTPUT, (self.rows * self.inner, 1, self.inner, 0), "update"
                ),
            ),
            grid=(("outer", 1), ("inner", 1), ("t", WHOLE_AXIS)),
            uniforms=self.uniforms
            | {
                "y_outer": self.rows * self.inner,
                "v_outer": self.count * self.inner,
                "v_j": self.inner,
            },
            uses=() if is_plain else (element_type_include(dtype),),
            source="\n".join(lines),
            reports_faults=True,
            iterations=1.0,
        )
        return KernelPlan((_copy_dispatch(total), dispatch))


def _copy_dispatch(count: int) -> KernelDispatch:
    """Return the dispatch that copies the operand before the scatter changes it."""
    return KernelDispatch(
        shader="copy before a scatter",
        axes=(IterationAxis("n", count),),
        accesses=(OperandAccess(_INPUT, (1,)), OperandAccess(_OUTPUT, (1,), "write")),
        grid=(("n", 1),),
        source="\n".join([*MAIN_LINES, "  st1(item, ld0(item));", "}"]),
    )
