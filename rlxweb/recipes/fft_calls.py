"""Shader calls that transform rows: geometry shared by every way to do an FFT.

`Rows` says where complex rows lie in an operand (block, interleaved, real), `Work`
collects calls, scratch and tables. The three recipes (complex, real, inverse real) and
Bluestein's detour are written once over `Smooth`, the part that differs: Stockham
passes through global memory here, single-dispatch kernels in `fft_variants.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.shape import Shape, numel
from rlxweb.recipes import fft_plan as plan

IN, OUT = Ref("in"), Ref("out")


@dataclass(frozen=True, slots=True)
class Rows:
    """Complex value k of row r: re at r * pitch + k * step + re, im likewise.

    A part that is None is not there: read as 0, never written.
    """

    ref: Ref
    pitch: int
    step: int = 1
    re: int | None = 0
    im: int | None = None

    def swapped(self) -> Rows:
        """Parts exchanged: a forward transform of swapped rows is the inverse one."""
        return replace(self, re=self.im, im=self.re)

    @property
    def parts(self) -> int:
        """Bit 0: there is a real part; bit 1: there is an imaginary part."""
        return (self.re is not None) + 2 * (self.im is not None)

    def access(self, mode: Any = "read") -> Access:
        return Access(self.ref, (self.pitch, 0), mode, span=self.pitch)

    def values(self, side: str) -> dict[str, int]:
        """The uniforms by which a shader finds the parts."""
        return {
            f"{side}_pitch": self.pitch,
            f"{side}_step": self.step,
            f"{side}_re": self.re or 0,
            f"{side}_im": self.im or 0,
        }


def block_rows(ref: Ref, n: int) -> Rows:
    """Rows of n complex values in block layout."""
    return Rows(ref, 2 * n, 1, 0, n)


@dataclass(slots=True)
class Work:
    """A recipe in the making over `rows` rows."""

    rows: int
    calls: list[Call] = field(default_factory=list)
    scratch: list[Scratch] = field(default_factory=list)
    tables: list[npt.NDArray[Any]] = field(default_factory=list)
    _known: dict[str, Ref] = field(default_factory=dict)

    def room(self, n: int, name: str = "") -> Rows:
        """Scratch for rows of n complex values; one buffer for each name given."""
        key = f"scratch {n} {name}"
        if not name or key not in self._known:
            self.scratch.append(Scratch(self.rows * 2 * n))
            self._known[key] = Ref("scratch", len(self.scratch) - 1)
        return block_rows(self._known[key], n)

    def table(
        self, name: str, values: Callable[[], npt.ArrayLike], width: int
    ) -> Access:
        """A host table of `width` numbers, made once a name, read as a whole."""
        if name not in self._known:
            self.tables.append(np.ascontiguousarray(values(), np.float32))
            self._known[name] = Ref("table", len(self.tables) - 1)
        return Access(self._known[name], (0, 0), span=width)

    def roots(self, n: int) -> Access:
        """The table of the n roots of unity."""
        return self.table(f"roots {n}", lambda: plan.roots(n), 2 * n)

    def spare(self, numel: int) -> Access:
        """Scratch of `numel` elements that every piece of a call uses anew."""
        self.scratch.append(Scratch(numel))
        ref = Ref("scratch", len(self.scratch) - 1)
        return Access(ref, (0, 0), "update", span=numel)

    def call(
        self,
        shader: str,
        cells: int,
        accesses: tuple[Access, ...],
        values: Mapping[str, int | float],
        most_rows: int = 0,
        **more: Any,
    ) -> None:
        """Calls over rows × cells, one invocation a cell unless `grid` says else.

        `most_rows` bounds the rows of one call; 0 is all of them.
        """
        more.setdefault("grid", (("rows", 1), ("cells", 1)))
        step = most_rows or max(1, self.rows)
        for start in range(0, max(1, self.rows), step):
            rows = min(step, self.rows - start)
            self.calls.append(
                Call(
                    shader,
                    (Axis("rows", rows), Axis("cells", cells, "whole")),
                    tuple(
                        replace(a, offset=a.offset + start * a.strides[0])
                        for a in accesses
                    ),
                    values=values,
                    **more,
                )
            )

    def recipe(self) -> Recipe:
        return Recipe(tuple(self.calls), tuple(self.scratch), tuple(self.tables))


Smooth = Callable[[Work, int, Rows, Rows, int, float], None]
"""(work, n, source, target, keep, scale): forward transform of rows whose length has
small factors; only the first `keep` values are written, times `scale`."""


def stockham(
    work: Work, n: int, source: Rows, target: Rows, keep: int, scale: float
) -> None:
    """Self-sorting passes of `fft_pass.wgsl`, back and forth between two scratches."""
    done, factors = 1, plan.radices(n, 4)
    table = work.roots(n)
    for at, radix in enumerate(factors):
        last = at == len(factors) - 1
        into = target if last else work.room(n, "ab"[at % 2])
        work.call(
            "fft_pass",
            n,
            (source.access(), table, into.access("write")),
            {
                **source.values("in"),
                **into.values("out"),
                "done": done,
                "keep": keep if last else n,
                "scale": float(scale if last else 1.0),
            },
            constants={
                "RADIX": radix,
                "IN_PARTS": source.parts,
                "OUT_PARTS": into.parts,
            },
        )
        source, done = into, done * radix


def modulate(
    work: Work,
    source: Rows,
    target: Rows,
    factor: Access,
    sizes: tuple[int, int],
    scale: float = 1.0,
) -> None:
    """target[k] = source[k] * factor[k] for k < count, 0 from there to cells."""
    cells, count = sizes
    work.call(
        "fft_modulate",
        cells,
        (source.access(), factor, target.access("write")),
        {
            **source.values("in"),
            **target.values("out"),
            "count": count,
            "half": factor.span // 2,
            "scale": float(scale),
        },
        constants={"IN_PARTS": source.parts, "OUT_PARTS": target.parts},
    )


def any_length(smooth: Smooth) -> Smooth:
    """Forward transforms of rows of any length, by those of lengths of small factors.

    A prime factor above MAX_PRIME goes by Bluestein: a convolution with a chirp, which
    is two transforms of a smooth length.
    """

    def transform(
        work: Work, n: int, source: Rows, target: Rows, keep: int, scale: float
    ) -> None:
        if plan.is_smooth(n):
            smooth(work, n, source, target, keep, scale)
        else:
            bluestein(smooth, work, n, source, target, keep, scale)

    return transform


def bluestein(
    smooth: Smooth,
    work: Work,
    n: int,
    source: Rows,
    target: Rows,
    keep: int,
    scale: float,
) -> None:
    """The convolution with a chirp, step by step; see `Smooth` for the arguments."""
    size = plan.ring_length(2 * n - 1)
    chirp = work.table(f"chirp {n}", lambda: plan.block(plan.chirp(n)), 2 * n)
    ring = work.table(
        f"filter {n}", lambda: plan.block(plan.chirp_filter(n, size)), 2 * size
    )
    padded, spectrum = work.room(size, "padded"), work.room(size, "spectrum")
    modulate(work, source, padded, chirp, (size, n))
    smooth(work, size, padded, spectrum, size, 1.0)
    modulate(work, spectrum, padded, ring, (size, size))
    smooth(work, size, padded.swapped(), spectrum.swapped(), n, 1.0)
    modulate(work, spectrum, target, chirp, (keep, keep), scale)


DECLARED = any_length(stockham)
"""Rows of any length by the declared shaders."""


def complex_recipe(
    rows: int, n: int, inverse: bool, norm: str, transform: Smooth = DECLARED
) -> Recipe:
    """Block rows [rows, 2n] → [rows, 2n]."""
    work = Work(rows)
    source, target = block_rows(IN, n), block_rows(OUT, n)
    if inverse:
        source, target = source.swapped(), target.swapped()
    scale = plan.norm_scale(n, inverse, norm)
    transform(work, n, source, target, n, scale)
    return work.recipe()


def real_recipe(rows: int, n: int, norm: str, transform: Smooth = DECLARED) -> Recipe:
    """Real rows [rows, n] → block [rows, 2F], F = n // 2 + 1.

    An even row is a complex row of half the length, its spectrum split afterwards.
    """
    work = Work(rows)
    bins, scale = n // 2 + 1, plan.norm_scale(n, False, norm)
    target = block_rows(OUT, bins)
    if n % 2:
        transform(work, n, Rows(IN, n), target, bins, scale)
        return work.recipe()
    half = n // 2
    packed = work.room(half)
    transform(work, half, Rows(IN, n, 2, 0, 1), packed, half, scale)
    work.call(
        "fft_real_split",
        bins,
        (packed.access(), _half_turn(work, n), target.access("write")),
        {"half": half},
    )
    return work.recipe()


def inverse_real_recipe(
    rows: int, n: int, norm: str, transform: Smooth = DECLARED
) -> Recipe:
    """Block rows [rows, 2F] → real rows [rows, n]; imaginary ends are ignored."""
    work = Work(rows)
    bins, scale = n // 2 + 1, plan.norm_scale(n, True, norm)
    source = block_rows(IN, bins)
    if n % 2:
        full = work.room(n)
        work.call("fft_mirror", n, (source.access(), full.access("write")), {"n": n})
        target = Rows(OUT, n).swapped()
        transform(work, n, full.swapped(), target, n, scale)
        return work.recipe()
    half = n // 2
    packed = work.room(half)
    access = (source.access(), _half_turn(work, n), packed.access("write"))
    work.call("fft_real_join", half, access, {"half": half})
    target = Rows(OUT, n, 2, 0, 1).swapped()
    transform(work, half, packed.swapped(), target, half, scale)
    return work.recipe()


def _half_turn(work: Work, n: int) -> Access:
    bins = n // 2 + 1
    return work.table(f"half turn {n}", lambda: plan.roots(n, bins), 2 * bins)


def length_of(op: str, width: int, attrs: Mapping[str, Any]) -> int:
    """Length of the transform that fft, rfft or irfft makes of rows of `width`."""
    return int(attrs["n"] if op == "irfft" else width // 2 if op == "fft" else width)


def recipe_of(
    op: str,
    shape: Shape,
    attrs: Mapping[str, Any],
    transform: Smooth = DECLARED,
) -> Recipe:
    """The recipe of fft, rfft or irfft along the last axis."""
    rows, n = numel(shape[:-1]), length_of(op, shape[-1], attrs)
    if op == "fft":
        return complex_recipe(rows, n, attrs["inverse"], attrs["norm"], transform)
    real = real_recipe if op == "rfft" else inverse_real_recipe
    return real(rows, n, attrs["norm"], transform)


def smooth_lengths(n: int, real: bool) -> tuple[int, ...]:
    """The lengths that `Smooth` is asked for by a transform of length n."""
    inner = n // 2 if real and n % 2 == 0 else n
    return (inner,) if plan.is_smooth(inner) else (plan.ring_length(2 * inner - 1),)
