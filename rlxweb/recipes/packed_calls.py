"""Products with packed weights on a device: how they are read, and by whom.

Words are unpacked in registers, four columns at a time, a group's scale and bias read
once for its words. The usual kernel: an invocation makes some rows by four columns. On
GPUs few rows have a workgroup for four columns, whose lanes read neighbouring words,
and many rows go by the blocks of `matmul_blocks.py`, which fetch packed weights.
Accesses 0 x, 1 words, 2 out, 3 scales, 4 biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import Limits
from rlxweb.recipes.entry import MAIN_LINES
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.matmul_blocks import WARP, Blocks, parts_of, split, suits
from rlxweb.recipes.sum_tile import SumTile

COLUMNS = 4
ROWS = (1, 2, 4, 8)
"""Of the result that an invocation may make."""
LANES = 64
FEW = 32
"""Rows up to which a GPU is taken to be faster reading weights again than sharing them:
no GPU was asked.
"""


@dataclass(frozen=True, slots=True)
class Packed:
    """A product of x [m, k] with n rows of words, of which `each` are a group's."""

    m: int
    n: int
    k: int
    bits: int
    words: int
    groups: int
    biased: bool

    @classmethod
    def of(cls, inputs: Types, out: TensorType, attrs: Mapping[str, Any]) -> Packed:
        x, words, scales = inputs[:3]
        n, k = words.shape[0], x.shape[-1]
        m = x.numel // k if k else 0
        bits, biased = attrs["bits"], len(inputs) > 3
        return cls(m, n, k, bits, words.shape[1], scales.shape[1], biased)

    @property
    def in_word(self) -> int:
        return 32 // self.bits

    @property
    def used(self) -> int:
        """Words of a row that hold weights of this product."""
        return -(-self.k // self.in_word)

    @property
    def values(self) -> dict[str, int]:
        return {
            "k": self.k,
            "words": self.words,
            "used": self.used,
            "groups": self.groups,
            "each": self.words // self.groups,
            "line": self.n,
        }

    def accesses(self) -> tuple[Access, ...]:
        """Over the axes m and n."""
        side = Access(Ref("in", 2), (0, self.groups), span=self.groups)
        sides = (side, replace(side, ref=Ref("in", 3)))
        return (
            Access(Ref("in", 0), (self.k, 0), span=self.k),
            Access(Ref("in", 1), (0, self.words), span=self.words),
            Access(Ref("out"), (self.n, 1), "write"),
            *sides[: 1 + self.biased],
        )

    def scaled(self, at: str, quads: int = 1) -> list[str]:
        """`scale` and `bias` of fours of columns, n0 …, of a group."""
        lines = []
        for q in range(quads):
            lines.append(f"let scale{q} = {_four(3, q, f'u.groups + {at}')};")
            half = f"-{1 << (self.bits - 1)}.0 * scale{q}"
            bias = _four(4, q, f"u.groups + {at}") if self.biased else half
            lines.append(f"let bias{q} = {bias};")
        return lines

    def weights(self, q: int, word: str, j: str) -> str:
        """Four weights: code j of a word of each column."""
        mask = (1 << self.bits) - 1
        codes = f"({word} >> vec4<u32>({j} * {self.bits}u)) & vec4<u32>({mask}u)"
        return f"fma(vec4<f32>(vec4<i32>({codes})), scale{q}, bias{q})"

    def summed(self, rows: int, at: str, quads: int = 1) -> list[str]:
        """All of word `at` of the columns, for some rows of x; `scale` is known."""
        last = f"min({self.in_word}u, u.k - k)"
        count = last if self.k % self.in_word else f"{self.in_word}u"
        words = [f"let word{q} = {_words(q, at)};" for q in range(quads)]
        lines = [*words, f"let k = {at} * {self.in_word}u;"]
        lines.append(f"for (var j = 0u; j < {count}; j++) {{")
        for q in range(quads):
            lines.append(f"  let w{q} = {self.weights(q, f'word{q}', 'j')};")
        for r in range(rows):
            lines.append(f"  let x{r} = vec4<f32>(ld0(m{r} * u.k + k + j));")
            for q in range(quads):
                lines.append(f"  c{r}_{q} = fma(x{r}, w{q}, c{r}_{q});")
        return [*lines, "}"]


def _four(k: int, q: int, place: str) -> str:
    """Access k at a place in the rows of four columns."""
    each = (f"ld{k}(n{c} * {place})" for c in range(4 * q, 4 * q + 4))
    return f"vec4({', '.join(each)})"


def _words(q: int, at: str) -> str:
    return f"vec4<u32>({_four(1, q, f'u.words + {at}')})"


def _places(rows: int, quads: int = 1) -> list[str]:
    """Rows and columns of an item; beyond the edge the last one again."""
    columns = 4 * quads
    return [
        f"  let across = (u.n + {columns - 1}u) / {columns}u;",
        f"  let row = item / across * {rows}u;",
        f"  let column = item % across * {columns}u;",
        *(f"  let m{r} = min(row + {r}u, u.m - 1u);" for r in range(rows)),
        *(f"  let n{c} = min(column + {c}u, u.n - 1u);" for c in range(columns)),
        *(f"  var c{r}_{q} = vec4<f32>();" for r in range(rows) for q in range(quads)),
    ]


def _stores(rows: int, indent: str, quads: int = 1) -> list[str]:
    sums = SumTile(rows, quads, "c")

    def row(r: int, number: str) -> list[str]:
        at = f"(row + {number}) * u.line + column"
        columns = [
            f"  if (column + {c}u < u.n) "
            f"{{ st2({at} + {c}u, c{r}_{c // 4}.{'xyzw'[c % 4]}); }}"
            for c in range(4 * quads)
        ]
        return [f"if (row + {number} < u.m) {{", *columns, "}"]

    lines = sums.stored(f"min({rows}u, u.m - row)", row)
    return [indent + line for line in lines]


def quantized_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Recipe | None:
    """The usual kernel; None where nothing is summed."""
    if not inputs[0].shape[-1]:
        return None
    one = Packed.of(inputs, out, attrs)
    return Recipe((_tiled(one, max(r for r in ROWS if r <= max(1, one.m)), 1),))


def _tiled(one: Packed, rows: int, quads: int) -> Call:
    """An invocation for so many rows and fours of columns."""
    body = [
        *_places(rows, quads),
        "  for (var g = 0u; g < u.groups; g++) {",
        *(f"    {line}" for line in one.scaled("g", quads)),
        "    let stop = min((g + 1u) * u.each, u.used);",
        "    for (var at = g * u.each; at < stop; at++) {",
        *(f"      {line}" for line in one.summed(rows, "at", quads)),
        "    }",
        "  }",
        *_stores(rows, "  ", quads),
        "}",
    ]
    return Call(
        "quantized_matmul",
        axes=(Axis("m", one.m), Axis("n", one.n)),
        accesses=one.accesses(),
        grid=(("m", rows), ("n", 4 * quads)),
        values=one.values,
        source="\n".join((*MAIN_LINES, *body)),
        turns=float(one.groups + one.used + one.k),
        finishes="stores",
    )


def few_rows(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """For GPUs: a workgroup for four columns of up to eight rows.

    Its lanes read neighbouring words, and the sums meet in workgroup memory. None for
    many rows, and for sums that would leave lanes idle.
    """
    made = quantized_recipe(inputs, out, attrs)
    one = Packed.of(inputs, out, attrs)
    if made is None or one.m > FEW or one.used < LANES // 2:
        return None
    if limits.workgroup_lanes < LANES:
        return None
    (call,) = made.calls
    rows = dict(call.grid)["m"]
    body = [
        *_places(rows),
        f"  for (var at = lid; at < u.used; at += {LANES}u) {{",
        "    let g = at / u.each;",
        *(f"    {line}" for line in (*one.scaled("g"), *one.summed(rows, "at"))),
        "  }",
        *(f"  c{r}_0 = together(lid, c{r}_0);" for r in range(rows)),
        "  if (lid == 0u) {",
        *_stores(rows, "    "),
        "  }",
        "}",
    ]
    new = replace(
        call,
        per="workgroup",
        workgroup=LANES,
        source="\n".join((*_TOGETHER, *MAIN_LINES, *body)),
        shared_bytes=16 * LANES,
        turns=(one.used + one.k) / LANES + rows * LANES.bit_length() + 2,
    )
    return Recipe((new,))


_TOGETHER = (
    f"var<workgroup> partial: array<vec4<f32>, {LANES}>;",
    "fn together(lid: u32, v: vec4<f32>) -> vec4<f32> {",
    "  partial[lid] = v;",
    "  workgroupBarrier();",
    f"  for (var half = {LANES // 2}u; half > 0u; half /= 2u) {{",
    "    if (lid < half) { partial[lid] += partial[lid + half]; }",
    "    workgroupBarrier();",
    "  }",
    "  let all = partial[0];",
    "  workgroupBarrier();",
    "  return all;",
    "}",
)


def blocks_of_packed(side: int) -> RecipeFor:
    """For GPUs: many rows by blocks of `side` by `side`, as of any product.

    None where blocks would be few or mostly empty, and for weights over one binding.
    """

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        if not inputs[0].shape[-1]:
            return None
        one, block = Packed.of(inputs, out, attrs), Blocks(side, False)
        warps = -(-one.m // side) * -(-one.n // side) * (block.lanes // WARP)
        if not suits(block, (one.m, one.n, one.k), warps, limits):
            return None
        largest = max(t.nbytes for t in (*inputs, out))
        if largest > limits.max_storage_buffer_binding_size:
            return None
        made = split(block, _as_product(one), out, parts_of(warps, one.k))
        return Recipe((_fetching(one, made.calls[0]), *made.calls[1:]), made.scratch)

    return recipe


def _as_product(one: Packed) -> Call:
    """The call of a product of x with a matrix, whose accesses are of packed words."""
    names = ("b0", "b1", "b2")
    pad = (0, 0, 0)
    steps = {f"{letter}_{name}": 0 for letter in "xyz" for name in names}
    return Call(
        "quantized_blocks",
        axes=(
            *(Axis(name, 1) for name in names),
            Axis("m", one.m),
            Axis("n", one.n),
            Axis("k", one.k, "whole"),
        ),
        accesses=(
            Access(Ref("in", 0), (*pad, one.k, 0, 1)),
            Access(Ref("in", 1), (*pad, 0, one.words, 0)),
            Access(Ref("out"), (*pad, one.n, 1, 0), "write"),
        ),
        grid=(),
        values=steps | {"x_row": one.k, "x_k": 1, "z_row": one.n},
        uses=("matmul_f32",),
    )


def _fetching(one: Packed, call: Call) -> Call:
    """The call of blocks with the text that fetches packed weights."""
    sides = [
        Access(Ref("in", 2 + i), (*(0,) * 5, one.groups, 0), span=one.groups)
        for i in range(1 + one.biased)
    ]
    own = {k: v for k, v in one.values.items() if k not in ("k", "used", "line")}
    fetch = [
        "fn y_four(matrix: u32, k: u32, n: u32, last: u32) -> V {",
        "  if (k >= last || n >= u.n) { return V(); }",
        *(f"  let n{c} = min(n + {c}u, u.n - 1u);" for c in range(COLUMNS)),
        f"  let at = k / {one.in_word}u;",
        "  let g = at / u.each;",
        *(f"  {line}" for line in one.scaled("g")),
        f"  let word = {_words(0, 'at')};",
        f"  return {one.weights(0, 'word', f'(k % {one.in_word}u)')};",
        "}",
        "fn put(matrix: u32, m: u32, n: u32, v: V) {",
        "  if (m >= u.m) { return; }",
        "  let at = matrix + m * u.z_row + n;",
        *(
            f"  if (n + {c}u < u.n) {{ st2(at + {c}u, v.{'xyzw'[c]}); }}"
            for c in range(COLUMNS)
        ),
        "}",
    ]
    x, y, z = call.accesses
    return replace(
        call,
        shader="quantized_blocks",
        accesses=(x, replace(y, span=one.words), replace(z, mode="write"), *sides),
        values={**call.values, **own},
        uses=("matmul_f32", "block"),
        source="\n".join((*fetch, call.source or "")),
    )
