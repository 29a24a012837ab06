"""Kernel plans of matrix products with packed quantized weights.

Words are unpacked in registers, four columns at a time, a group's scale and bias read
once for its words. The usual kernel: an invocation makes some rows by four columns. On
GPUs few rows have a workgroup for four columns, whose lanes read neighbouring words,
and many rows go by the blocks of `ops/matmul/wgsl/blocked.py`, which fetch packed
weights. Accesses 0 x, 1 words, 2 out, 3 scales, 4 biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.codegen.accumulator_tile import AccumulatorTile
from rlxweb.codegen.wgsl_entry_point import MAIN_LINES
from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule
from rlxweb.ops.matmul.wgsl.blocked import (
    BLOCK_SIDES,
    WARP_SIZE,
    BlockedMatmulKernel,
    plan_split_sum,
    split_part_count,
    suits_blocks,
)

COLUMNS_PER_VEC4 = 4
TILE_ROW_CHOICES = (1, 2, 4, 8)
"""Possible numbers of result rows of one invocation."""
WORKGROUP_SIZE = 64
MAX_FEW_ROWS = 32
"""Number of rows up to which a GPU is assumed to be faster reading weights again than
sharing them. Not measured on a GPU.
"""


@dataclass(frozen=True, slots=True)
class QuantizedMatmulSpec:
    """Sizes of a product of x [m, k] with n rows of packed words, divided into groups
    that share a scale.
    """

    m: int
    n: int
    k: int
    bits: int
    words_per_row: int
    groups_per_row: int
    has_biases: bool

    @classmethod
    def from_types(
        cls, inputs: Types, out: TensorType, attrs: Mapping[str, Any]
    ) -> QuantizedMatmulSpec:
        """Return the sizes given by operand types and attributes."""
        x, words, scales = inputs[:3]
        n, k = words.shape[0], x.shape[-1]
        m = x.numel // k if k else 0
        bits, has_biases = attrs["bits"], len(inputs) > 3
        return cls(m, n, k, bits, words.shape[1], scales.shape[1], has_biases)

    @property
    def weights_per_word(self) -> int:
        """Number of weights in a word."""
        return 32 // self.bits

    @property
    def used_words(self) -> int:
        """Number of words of a row that hold weights of this product."""
        return -(-self.k // self.weights_per_word)

    @property
    def uniforms(self) -> dict[str, int]:
        """Uniforms of the kernels."""
        return {
            "k": self.k,
            "words": self.words_per_row,
            "used": self.used_words,
            "groups": self.groups_per_row,
            "each": self.words_per_row // self.groups_per_row,
            "line": self.n,
        }

    def accesses(self) -> tuple[OperandAccess, ...]:
        """Return the accesses over the axes m and n."""
        scale_access = OperandAccess(
            BufferRef("in", 2), (0, self.groups_per_row), span=self.groups_per_row
        )
        scale_accesses = (scale_access, replace(scale_access, ref=BufferRef("in", 3)))
        return (
            OperandAccess(BufferRef("in", 0), (self.k, 0), span=self.k),
            OperandAccess(
                BufferRef("in", 1), (0, self.words_per_row), span=self.words_per_row
            ),
            OperandAccess(BufferRef("out"), (self.n, 1), "write"),
            *scale_accesses[: 1 + self.has_biases],
        )

    def scale_lines(self, group: str, vec4s: int = 1) -> list[str]:
        """Declare `scale` and `bias` of a group for vec4s of columns, n0 …."""
        lines = []
        for q in range(vec4s):
            lines.append(f"let scale{q} = {_column_vec4(3, q, f'u.groups + {group}')};")
            zero_point = f"-{1 << (self.bits - 1)}.0 * scale{q}"
            bias = (
                _column_vec4(4, q, f"u.groups + {group}")
                if self.has_biases
                else zero_point
            )
            lines.append(f"let bias{q} = {bias};")
        return lines

    def weight_expression(self, q: int, word: str, j: str) -> str:
        """Return the expression of four weights: code j of a word of each column."""
        mask = (1 << self.bits) - 1
        codes = f"({word} >> vec4<u32>({j} * {self.bits}u)) & vec4<u32>({mask}u)"
        return f"fma(vec4<f32>(vec4<i32>({codes})), scale{q}, bias{q})"

    def accumulate_lines(self, rows: int, word_index: str, vec4s: int = 1) -> list[str]:
        """Accumulate a word of the columns for some rows of x; `scale` must be
        declared.
        """
        remaining = f"min({self.weights_per_word}u, u.k - k)"
        count = (
            remaining if self.k % self.weights_per_word else f"{self.weights_per_word}u"
        )
        words = [f"let word{q} = {_word_vec4(q, word_index)};" for q in range(vec4s)]
        lines = [*words, f"let k = {word_index} * {self.weights_per_word}u;"]
        lines.append(f"for (var j = 0u; j < {count}; j++) {{")
        for q in range(vec4s):
            lines.append(f"  let w{q} = {self.weight_expression(q, f'word{q}', 'j')};")
        for r in range(rows):
            lines.append(f"  let x{r} = vec4<f32>(ld0(m{r} * u.k + k + j));")
            for q in range(vec4s):
                lines.append(f"  c{r}_{q} = fma(x{r}, w{q}, c{r}_{q});")
        return [*lines, "}"]


def _column_vec4(k: int, q: int, place: str) -> str:
    """Return a vec4 loaded by access k at a place in the rows of four columns."""
    loads = (f"ld{k}(n{c} * {place})" for c in range(4 * q, 4 * q + 4))
    return f"vec4({', '.join(loads)})"


def _word_vec4(q: int, word_index: str) -> str:
    return f"vec4<u32>({_column_vec4(1, q, f'u.words + {word_index}')})"


def _tile_declarations(rows: int, vec4s: int = 1) -> list[str]:
    """Declare rows and columns of an item; those beyond the edge repeat the last
    one.
    """
    columns = 4 * vec4s
    return [
        f"  let across = (u.n + {columns - 1}u) / {columns}u;",
        f"  let row = item / across * {rows}u;",
        f"  let column = item % across * {columns}u;",
        *(f"  let m{r} = min(row + {r}u, u.m - 1u);" for r in range(rows)),
        *(f"  let n{c} = min(column + {c}u, u.n - 1u);" for c in range(columns)),
        *(f"  var c{r}_{q} = vec4<f32>();" for r in range(rows) for q in range(vec4s)),
    ]


def _store_lines(rows: int, indent: str, vec4s: int = 1) -> list[str]:
    tile = AccumulatorTile(rows, vec4s, "c")

    def row_lines(r: int, row_number: str) -> list[str]:
        index = f"(row + {row_number}) * u.line + column"
        columns = [
            f"  if (column + {c}u < u.n) "
            f"{{ st2({index} + {c}u, c{r}_{c // 4}.{'xyzw'[c % 4]}); }}"
            for c in range(4 * vec4s)
        ]
        return [f"if (row + {row_number} < u.m) {{", *columns, "}"]

    lines = tile.store_rows(f"min({rows}u, u.m - row)", row_lines)
    return [indent + line for line in lines]


def plan_quantized_matmul(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan | None:
    """Plan the default kernel; None where nothing is summed."""
    if not inputs[0].shape[-1]:
        return None
    spec = QuantizedMatmulSpec.from_types(inputs, out, attrs)
    return KernelPlan(
        (
            _tile_dispatch(
                spec, max(r for r in TILE_ROW_CHOICES if r <= max(1, spec.m)), 1
            ),
        )
    )


def _tile_dispatch(spec: QuantizedMatmulSpec, rows: int, vec4s: int) -> KernelDispatch:
    """Return the dispatch whose invocations compute `rows` rows by `vec4s` vec4s of
    columns.
    """
    body = [
        *_tile_declarations(rows, vec4s),
        "  for (var g = 0u; g < u.groups; g++) {",
        *(f"    {line}" for line in spec.scale_lines("g", vec4s)),
        "    let stop = min((g + 1u) * u.each, u.used);",
        "    for (var at = g * u.each; at < stop; at++) {",
        *(f"      {line}" for line in spec.accumulate_lines(rows, "at", vec4s)),
        "    }",
        "  }",
        *_store_lines(rows, "  ", vec4s),
        "}",
    ]
    return KernelDispatch(
        "quantized_matmul",
        axes=(IterationAxis("m", spec.m), IterationAxis("n", spec.n)),
        accesses=spec.accesses(),
        grid=(("m", rows), ("n", 4 * vec4s)),
        uniforms=spec.uniforms,
        source="\n".join((*MAIN_LINES, *body)),
        iterations=float(spec.groups_per_row + spec.used_words + spec.k),
        epilogue_site="stores",
    )


def plan_few_rows(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Plan a kernel for GPUs: a workgroup for four columns of up to eight rows.

    Its lanes read neighbouring words, and the sums meet in workgroup memory. None for
    many rows, and for sums that would leave lanes idle.
    """
    plan = plan_quantized_matmul(inputs, out, attrs)
    spec = QuantizedMatmulSpec.from_types(inputs, out, attrs)
    if plan is None or spec.m > MAX_FEW_ROWS or spec.used_words < WORKGROUP_SIZE // 2:
        return None
    if limits.max_linear_workgroup_size < WORKGROUP_SIZE:
        return None
    (dispatch,) = plan.dispatches
    rows = dict(dispatch.grid)["m"]
    body = [
        *_tile_declarations(rows),
        f"  for (var at = lid; at < u.used; at += {WORKGROUP_SIZE}u) {{",
        "    let g = at / u.each;",
        *(
            f"    {line}"
            for line in (*spec.scale_lines("g"), *spec.accumulate_lines(rows, "at"))
        ),
        "  }",
        *(f"  c{r}_0 = together(lid, c{r}_0);" for r in range(rows)),
        "  if (lid == 0u) {",
        *_store_lines(rows, "    "),
        "  }",
        "}",
    ]
    workgroup_dispatch = replace(
        dispatch,
        item_unit="workgroup",
        workgroup_size=WORKGROUP_SIZE,
        source="\n".join((*_WORKGROUP_SUM, *MAIN_LINES, *body)),
        shared_bytes=16 * WORKGROUP_SIZE,
        iterations=(spec.used_words + spec.k) / WORKGROUP_SIZE
        + rows * WORKGROUP_SIZE.bit_length()
        + 2,
    )
    return KernelPlan((workgroup_dispatch,))


_WORKGROUP_SUM = (
    f"var<workgroup> partial: array<vec4<f32>, {WORKGROUP_SIZE}>;",
    "fn together(lid: u32, v: vec4<f32>) -> vec4<f32> {",
    "  partial[lid] = v;",
    "  workgroupBarrier();",
    f"  for (var half = {WORKGROUP_SIZE // 2}u; half > 0u; half /= 2u) {{",
    "    if (lid < half) { partial[lid] += partial[lid + half]; }",
    "    workgroupBarrier();",
    "  }",
    "  let all = partial[0];",
    "  workgroupBarrier();",
    "  return all;",
    "}",
)


def blocked_quantized_matmul_rule(side: int) -> WgslPlanRule:
    """Return the plan rule for GPUs of many rows by blocks of `side` by `side`, as for
    any product.

    None where blocks would be few or mostly empty, and for weights over one binding.
    """

    def build_plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        if not inputs[0].shape[-1]:
            return None
        spec = QuantizedMatmulSpec.from_types(inputs, out, attrs)
        kernel = BlockedMatmulKernel(side, False)
        warps = -(-spec.m // side) * -(-spec.n // side) * (kernel.lanes // WARP_SIZE)
        if not suits_blocks(kernel, (spec.m, spec.n, spec.k), warps, limits):
            return None
        max_operand_nbytes = max(operand.nbytes for operand in (*inputs, out))
        if max_operand_nbytes > limits.max_storage_buffer_binding_size:
            return None
        plan = plan_split_sum(
            kernel, _matmul_dispatch(spec), out, split_part_count(warps, spec.k)
        )
        return KernelPlan(
            (_with_packed_loads(spec, plan.dispatches[0]), *plan.dispatches[1:]),
            plan.scratch,
        )

    return build_plan


def _matmul_dispatch(spec: QuantizedMatmulSpec) -> KernelDispatch:
    """Return the dispatch of a product of x with a matrix, whose accesses are to packed
    words.
    """
    names = ("b0", "b1", "b2")
    pad = (0, 0, 0)
    strides = {f"{letter}_{name}": 0 for letter in "xyz" for name in names}
    return KernelDispatch(
        "quantized_blocks",
        axes=(
            *(IterationAxis(name, 1) for name in names),
            IterationAxis("m", spec.m),
            IterationAxis("n", spec.n),
            IterationAxis("k", spec.k, "whole"),
        ),
        accesses=(
            OperandAccess(BufferRef("in", 0), (*pad, spec.k, 0, 1)),
            OperandAccess(BufferRef("in", 1), (*pad, 0, spec.words_per_row, 0)),
            OperandAccess(BufferRef("out"), (*pad, spec.n, 1, 0), "write"),
        ),
        grid=(),
        uniforms=strides | {"x_row": spec.k, "x_k": 1, "z_row": spec.n},
        uses=("matmul_f32",),
    )


def _with_packed_loads(
    spec: QuantizedMatmulSpec, dispatch: KernelDispatch
) -> KernelDispatch:
    """Return the dispatch of a blocked product with the text that loads packed
    weights.
    """
    scale_accesses = [
        OperandAccess(
            BufferRef("in", 2 + i),
            (*(0,) * 5, spec.groups_per_row, 0),
            span=spec.groups_per_row,
        )
        for i in range(1 + spec.has_biases)
    ]
    packed_uniforms = {
        k: v for k, v in spec.uniforms.items() if k not in ("k", "used", "line")
    }
    load_functions = [
        "fn y_four(matrix: u32, k: u32, n: u32, last: u32) -> V {",
        "  if (k >= last || n >= u.n) { return V(); }",
        *(f"  let n{c} = min(n + {c}u, u.n - 1u);" for c in range(COLUMNS_PER_VEC4)),
        f"  let at = k / {spec.weights_per_word}u;",
        "  let g = at / u.each;",
        *(f"  {line}" for line in spec.scale_lines("g")),
        f"  let word = {_word_vec4(0, 'at')};",
        f"  return "
        f"{spec.weight_expression(0, 'word', f'(k % {spec.weights_per_word}u)')};",
        "}",
        "fn put(matrix: u32, m: u32, n: u32, v: V) {",
        "  if (m >= u.m) { return; }",
        "  let at = matrix + m * u.z_row + n;",
        *(
            f"  if (n + {c}u < u.n) {{ st2(at + {c}u, v.{'xyzw'[c]}); }}"
            for c in range(COLUMNS_PER_VEC4)
        ),
        "}",
    ]
    x, y, z = dispatch.accesses
    return replace(
        dispatch,
        shader="quantized_blocks",
        accesses=(
            x,
            replace(y, span=spec.words_per_row),
            replace(z, mode="write"),
            *scale_accesses,
        ),
        uniforms={**dispatch.uniforms, **packed_uniforms},
        uses=("matmul_f32", "block"),
        source="\n".join((*load_functions, dispatch.source or "")),
    )


KERNELS = (
    KernelVariant(
        "quantized_matmul, workgroup four columns", "quantized_matmul", plan_few_rows
    ),
    *(
        KernelVariant(
            f"quantized_matmul, blocks of {side}",
            "quantized_matmul",
            blocked_quantized_matmul_rule(side),
        )
        for side in BLOCK_SIDES
    ),
)
