"""Welch peaks as one hand-made shader: two segments, n = r², the k strongest bins.

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

Value = tuple[str, str]
Place = Callable[[str], str]

HEAD = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> window: array<f32>;
@group(0) @binding(2) var<storage, read> turns: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> peaks: array<f32>;
"""


@dataclass(slots=True)
class Lines:
    """Straight-line WGSL; values are pairs of names, real and imaginary."""

    prefix: str
    text: list[str] = field(default_factory=list)

    def name(self, expression: str) -> str:
        made = f"{self.prefix}{len(self.text)}"
        self.text.append(f"let {made} = {expression};")
        return made

    def turned(self, value: Value, cosine: str, sine: str) -> Value:
        re, im = value
        return (
            self.name(f"{re} * {cosine} - {im} * {sine}"),
            self.name(f"{re} * {sine} + {im} * {cosine}"),
        )

    def transform(self, values: Sequence[Value]) -> list[Value]:
        """The DFT of 2ᵐ values, by halves."""
        n = len(values)
        if n == 1:
            return list(values)
        even, odd = self.transform(values[0::2]), self.transform(values[1::2])
        low, high = [], []
        for at, ((er, ei), other) in enumerate(zip(even, odd, strict=True)):
            tr, ti = self._by_root(other, at, n)
            low.append((self.name(f"{er} + {tr}"), self.name(f"{ei} + {ti}")))
            high.append((self.name(f"{er} - {tr}"), self.name(f"{ei} - {ti}")))
        return low + high

    def _by_root(self, value: Value, at: int, n: int) -> Value:
        if at == 0:
            return value
        if 4 * at == n:
            return value[1], self.name(f"-{value[0]}")
        root = cmath.exp(-2j * cmath.pi * at / n)
        return self.turned(value, f"({root.real:.9g})", f"({root.imag:.9g})")


def turns(r: int) -> np.ndarray:
    """The turns between the two halves: exp(-2πi·column·row / r²), column by column."""
    angle = -2 * np.pi * np.outer(np.arange(r), np.arange(r)) / r**2
    both = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return both.astype(np.float32).reshape(-1, 2)


def source(r: int, hop: int, k: int, lanes: int, in_workgroup: bool) -> str:
    """The shader for n = r² and rows of n + hop samples; `lanes` rows a workgroup."""
    n = r * r
    size, kind = (n * lanes, "workgroup") if in_workgroup else (n, "function")
    declared = (
        f"var<{kind}> re: array<f32, {size}>; var<{kind}> im: array<f32, {size}>;"
    )

    def cell(index: str) -> str:
        return f"({index}) * {lanes}u + lane" if in_workgroup else index

    return f"""{HEAD}
{declared if in_workgroup else ""}
@compute @workgroup_size({lanes})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {{
    {"" if in_workgroup else declared}
    let row = group.x * {lanes}u + lane;
    let base = row * {n + hop}u;
    for (var j = 0u; j < {r}u; j++) {{
        {_columns(r, hop, cell)}
    }}
    for (var j = 0u; j < {r}u; j++) {{
        {_rows(r, cell)}
    }}
    {_strongest(r, n, k, cell)}
}}
"""


def _columns(r: int, hop: int, cell: Place) -> str:
    """Column j: window both segments, transform, turn, and put back."""
    lines = Lines("c")
    values = []
    for at in range(r):
        w = lines.name(f"window[{at * r}u + j]")
        values.append(
            (
                lines.name(f"x[base + {at * r}u + j] * {w}"),
                lines.name(f"x[base + {at * r + hop}u + j] * {w}"),
            )
        )
    for at, value in enumerate(lines.transform(values)):
        turn = lines.name(f"turns[j * {r}u + {at}u]")
        real, imaginary = lines.turned(value, f"{turn}.x", f"{turn}.y")
        place = cell(f"{at * r}u + j")
        lines.text.append(f"re[{place}] = {real}; im[{place}] = {imaginary};")
    return "\n        ".join(lines.text)


def _rows(r: int, cell: Place) -> str:
    """Row j: transform, and leave |z|² in the real part."""
    lines = Lines("r")
    places = [cell(f"j * {r}u + {at}u") for at in range(r)]
    values = [(lines.name(f"re[{p}]"), lines.name(f"im[{p}]")) for p in places]
    for place, (real, imaginary) in zip(places, lines.transform(values), strict=True):
        lines.text.append(f"re[{place}] = {real} * {real} + {imaginary} * {imaginary};")
    return "\n        ".join(lines.text)


def _strongest(r: int, n: int, k: int, cell: Place) -> str:
    """The k strongest of n/2 + 1 bins as (bin, power) pairs, ties to the smaller bin.

    Bin b of the transform lies at row b % r, column b / r. The two real segments share
    it with bin n - b: |z(b)|² + |z(n - b)|² is four times their mean power, doubled for
    the one-sided spectrum but at 0 Hz and at half the rate.
    """
    here = cell(f"(b % {r}u) * {r}u + b / {r}u")
    mirror = cell(f"(o % {r}u) * {r}u + o / {r}u")
    kept = " ".join(f"var v{i} = -1.0; var b{i} = 0.0;" for i in range(k))
    # Choices, not branches: lanes of a CPU driver walk every branch together.
    move = "\n            ".join(
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
    return f"""{kept}
    var up = false; var v = 0.0; var m = 0.0;
    for (var b = 0u; b <= {n // 2}u; b++) {{
        let o = ({n}u - b) % {n}u;
        let weight = select(0.5, 0.25, b == 0u || b == {n // 2}u);
        let p = (re[{here}] + re[{mirror}]) * weight;
        if (p > v{k - 1}) {{
            v{k - 1} = p; b{k - 1} = f32(b);
            {move}
        }}
    }}
    {stores}"""
