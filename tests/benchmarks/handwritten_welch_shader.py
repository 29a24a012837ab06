"""Welch peaks as one handwritten shader: two segments, n = r², the k strongest bins.

A lane owns a row. Its two segments are the real and the imaginary part of one complex
transform, done as r columns and r rows of straight-line length-r transforms; the
strongest bins are kept in registers by insertion. Where the scratch lies decides what
the driver's compiler takes: function arrays are fastest and slowest to compile.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

ComplexNames = tuple[str, str]
IndexExpression = Callable[[str], str]

BINDINGS = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> window: array<f32>;
@group(0) @binding(2) var<storage, read> turns: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> peaks: array<f32>;
"""


@dataclass(slots=True)
class WgslLines:
    """Builder of straight-line WGSL; values are pairs of names, real and imaginary."""

    name_prefix: str
    statements: list[str] = field(default_factory=list)

    def emit_let(self, expression: str) -> str:
        name = f"{self.name_prefix}{len(self.statements)}"
        self.statements.append(f"let {name} = {expression};")
        return name

    def multiply_complex(
        self, value: ComplexNames, cosine: str, sine: str
    ) -> ComplexNames:
        re, im = value
        return (
            self.emit_let(f"{re} * {cosine} - {im} * {sine}"),
            self.emit_let(f"{re} * {sine} + {im} * {cosine}"),
        )

    def emit_dft(self, values: Sequence[ComplexNames]) -> list[ComplexNames]:
        """Emit the DFT of 2ᵐ values, by halves."""
        n = len(values)
        if n == 1:
            return list(values)
        even, odd = self.emit_dft(values[0::2]), self.emit_dft(values[1::2])
        low, high = [], []
        for index, ((er, ei), other) in enumerate(zip(even, odd, strict=True)):
            tr, ti = self._multiply_by_root(other, index, n)
            low.append((self.emit_let(f"{er} + {tr}"), self.emit_let(f"{ei} + {ti}")))
            high.append((self.emit_let(f"{er} - {tr}"), self.emit_let(f"{ei} - {ti}")))
        return low + high

    def _multiply_by_root(
        self, value: ComplexNames, index: int, n: int
    ) -> ComplexNames:
        if index == 0:
            return value
        if 4 * index == n:
            return value[1], self.emit_let(f"-{value[0]}")
        root = cmath.exp(-2j * cmath.pi * index / n)
        return self.multiply_complex(value, f"({root.real:.9g})", f"({root.imag:.9g})")


def twiddle_factors(r: int) -> np.ndarray:
    """Return the twiddle factors between both halves: exp(-2πi·column·row / r²), column
    by column.
    """
    angle = -2 * np.pi * np.outer(np.arange(r), np.arange(r)) / r**2
    pairs = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return pairs.astype(np.float32).reshape(-1, 2)


def welch_shader(r: int, hop: int, k: int, lanes: int, in_workgroup: bool) -> str:
    """Return the shader for n = r² and rows of n + hop samples; `lanes` rows per
    workgroup.
    """
    n = r * r
    scratch_length, address_space = (
        (n * lanes, "workgroup") if in_workgroup else (n, "function")
    )
    scratch_declarations = (
        f"var<{address_space}> re: array<f32, {scratch_length}>; "
        f"var<{address_space}> im: array<f32, {scratch_length}>;"
    )

    def scratch_index(index: str) -> str:
        return f"({index}) * {lanes}u + lane" if in_workgroup else index

    return f"""{BINDINGS}
{scratch_declarations if in_workgroup else ""}
@compute @workgroup_size({lanes})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {{
    {"" if in_workgroup else scratch_declarations}
    let row = group.x * {lanes}u + lane;
    let base = row * {n + hop}u;
    for (var j = 0u; j < {r}u; j++) {{
        {_columns_wgsl(r, hop, scratch_index)}
    }}
    for (var j = 0u; j < {r}u; j++) {{
        {_rows_wgsl(r, scratch_index)}
    }}
    {_top_k_wgsl(r, n, k, scratch_index)}
}}
"""


def _columns_wgsl(r: int, hop: int, scratch_index: IndexExpression) -> str:
    """Return the code of column j: window both segments, transform, multiply by
    twiddles and store.
    """
    lines = WgslLines("c")
    values = []
    for row in range(r):
        w = lines.emit_let(f"window[{row * r}u + j]")
        values.append(
            (
                lines.emit_let(f"x[base + {row * r}u + j] * {w}"),
                lines.emit_let(f"x[base + {row * r + hop}u + j] * {w}"),
            )
        )
    for row, value in enumerate(lines.emit_dft(values)):
        twiddle = lines.emit_let(f"turns[j * {r}u + {row}u]")
        real, imaginary = lines.multiply_complex(value, f"{twiddle}.x", f"{twiddle}.y")
        index = scratch_index(f"{row * r}u + j")
        lines.statements.append(f"re[{index}] = {real}; im[{index}] = {imaginary};")
    return "\n        ".join(lines.statements)


def _rows_wgsl(r: int, scratch_index: IndexExpression) -> str:
    """Return the code of row j: transform, and store |z|² in the real part."""
    lines = WgslLines("r")
    indices = [scratch_index(f"j * {r}u + {column}u") for column in range(r)]
    values = [(lines.emit_let(f"re[{p}]"), lines.emit_let(f"im[{p}]")) for p in indices]
    for index, (real, imaginary) in zip(indices, lines.emit_dft(values), strict=True):
        lines.statements.append(
            f"re[{index}] = {real} * {real} + {imaginary} * {imaginary};"
        )
    return "\n        ".join(lines.statements)


def _top_k_wgsl(r: int, n: int, k: int, scratch_index: IndexExpression) -> str:
    """Return the code that writes the k strongest of n/2 + 1 bins as (bin, power)
    pairs, ties to the smaller bin.

    Bin b of the transform lies at row b % r, column b / r. The two real segments share
    it with bin n - b: |z(b)|² + |z(n - b)|² is four times their mean power, doubled for
    the one-sided spectrum but at 0 Hz and at half the rate.
    """
    bin_index = scratch_index(f"(b % {r}u) * {r}u + b / {r}u")
    mirror_index = scratch_index(f"(o % {r}u) * {r}u + o / {r}u")
    declarations = " ".join(f"var v{i} = -1.0; var b{i} = 0.0;" for i in range(k))
    # Choices, not branches: lanes of a CPU driver walk every branch together.
    insertion = "\n            ".join(
        f"up = v{i} > v{i - 1}; v = v{i}; m = b{i}; "
        f"v{i} = select(v, v{i - 1}, up); b{i} = select(m, b{i - 1}, up); "
        f"v{i - 1} = select(v{i - 1}, v, up); b{i - 1} = select(b{i - 1}, m, up);"
        for i in range(k - 1, 0, -1)
    )
    stores = " ".join(
        f"peaks[row * {2 * k}u + {2 * i}u] = b{i}; "
        f"peaks[row * {2 * k}u + {2 * i + 1}u] = v{i};"
        for i in range(k)
    )
    return f"""{declarations}
    var up = false; var v = 0.0; var m = 0.0;
    for (var b = 0u; b <= {n // 2}u; b++) {{
        let o = ({n}u - b) % {n}u;
        let weight = select(0.5, 0.25, b == 0u || b == {n // 2}u);
        let p = (re[{bin_index}] + re[{mirror_index}]) * weight;
        if (p > v{k - 1}) {{
            v{k - 1} = p; b{k - 1} = f32(b);
            {insertion}
        }}
    }}
    {stores}"""
