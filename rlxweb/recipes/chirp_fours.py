"""Rows of any length in one kernel, four values at a time, for drivers on a CPU.

Bluestein, L. (1970): a transform of length n is a convolution with a chirp, done in a
ring of a length with small factors. The ring lies in cells from the first pass to the
last. A transform in place leaves its bins with their digits reversed; the factors of
the filter lie the same way, and the way back walks the passes from the last to the
first, which undoes it (the transform's matrix is symmetric). So nothing is ever put in
order, and the last pass there and the first one back are done together, in registers.

The way back is a forward transform of values whose parts have changed places: that of
exchanged parts is the inverse, exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from rlxweb.recipes import fft_plan as plan
from rlxweb.recipes.butterfly import Emitter, Pair
from rlxweb.recipes.fft_calls import Rows, Work
from rlxweb.recipes.fours import Fours, WidePasses, turns_table
from rlxweb.recipes.lane_cells import LaneCells, add_call, shared_bytes

_PARTS = "xyzw"


def reversed_digits(radices: Sequence[int]) -> npt.NDArray[np.int64]:
    """The bin that lies in each cell after passes of `radices` in place."""
    cells = np.zeros(1, np.int64)
    room = 1
    for radix in radices:
        cells = np.add.outer(cells, np.arange(radix) * room).ravel()
        room *= radix
    return cells


def filter_table(n: int, radices: Sequence[int]) -> npt.NDArray[np.float64]:
    """The filter as the middle reads it: for each four of blocks, and each value of a
    block, the real parts of all four, then the imaginary ones.
    """
    size, radix = math.prod(radices), radices[-1]
    by_cell = plan.chirp_filter(n, size)[reversed_digits(radices)]
    fours = by_cell.reshape(-1, 4, radix).transpose(0, 2, 1)
    return np.stack([fours.real, fours.imag], axis=2).ravel()


def chirp_table(n: int, size: int) -> npt.NDArray[np.float64]:
    """The chirp, 0 behind its end: real parts of the whole ring, then imaginary."""
    padded = np.zeros(size, np.complex128)
    padded[:n] = plan.chirp(n)
    return plan.block(padded)


@lru_cache(maxsize=256)
def _tables(n: int, radices: tuple[int, ...]) -> tuple[npt.NDArray[np.float64], ...]:
    size = math.prod(radices)
    return chirp_table(n, size), filter_table(n, radices), turns_table(size, radices)


@dataclass(frozen=True, slots=True)
class Ring:
    """The kernel's text: a row of n values through a ring with these passes.

    n, kept  values of a row, and how many of the results are stored
    cells    where the ring lies; bindings are source, chirp, filter, turns, the cells
             where they are in scratch, target
    store    the name of the function that writes the target
    """

    n: int
    kept: int
    radices: tuple[int, ...]
    cells: LaneCells
    source: Rows
    target: Rows
    store: str

    @property
    def size(self) -> int:
        return math.prod(self.radices)

    def text(self) -> str:
        """What is done to row `row`."""
        wide = WidePasses(self.size, self.radices, self.cells, self._first, "ld3")
        back = range(len(self.radices) - 2, -1, -1)
        return "\n".join(
            (
                "  let row_in = row * u.in_pitch;",
                "  let row_out = row * u.out_pitch;",
                wide.text(),
                self._middle(),
                *(self._back(wide, at) for at in back),
            )
        )

    def _chirp(self, e: Emitter, four: str) -> Pair:
        return e.let(f"ld1({four})"), e.let(f"ld1({four} + {self.size // 4}u)")

    def _first(self, e: Emitter, base: str, offset: int, stride: int) -> Pair:
        """Four values of the row times the chirp; 0 behind its end."""
        if 4 * offset >= self.n:
            return "vec4<f32>()", "vec4<f32>()"
        four = e.let(f"{base} + {offset}u")
        # What is read behind the row's end is its last value once more, times 0.
        ends = 4 * (offset + stride) > self.n
        cells = [f"{four} * 4u + {c}u" for c in range(4)]
        if ends:
            cells = [f"min({cell}, {self.n - 1}u)" for cell in cells]
        starts = [e.let(f"row_in + ({cell}) * u.in_step") for cell in cells]
        turn = self._chirp(e, four)
        parts = [
            None
            if there is None
            else e.let(
                "vec4<f32>("
                + ", ".join(f"ld0({at} + u.in_{name})" for at in starts)
                + ")"
            )
            for name, there in (("re", self.source.re), ("im", self.source.im))
        ]
        re, im = parts
        if re is not None and im is not None:
            return e.times((re, im), *turn)
        if re is not None:
            return e.let(f"{re} * {turn[0]}"), e.let(f"{re} * {turn[1]}")
        return e.let(f"-({im} * {turn[1]})"), e.let(f"{im} * {turn[0]}")

    def _middle(self) -> str:
        """Four neighbouring blocks there, times the filter, and back."""
        radix = self.radices[-1]
        fours = radix // 4
        e = Fours("z")
        base = e.let(f"j * {radix}u")
        planes = [
            [
                [
                    e.let(self.cells.get(array, f"{base} + {b * fours + g}u"))
                    for g in range(fours)
                ]
                for b in range(4)
            ]
            for array in (0, 1)
        ]
        xs = list(zip(*(self._across(e, one) for one in planes), strict=True))
        factor = e.let(f"j * {2 * radix}u")
        turned = []
        for k, y in enumerate(e.dft(xs)):
            at = f"{factor} + {2 * k}u"
            re, im = e.times(y, e.let(f"ld2({at})"), e.let(f"ld2({at} + 1u)"))
            turned.append((im, re))
        back = e.dft(turned)
        for array in (0, 1):
            for b, part in enumerate(_PARTS):
                for g in range(fours):
                    of = ", ".join(f"{back[4 * g + c][array]}.{part}" for c in range(4))
                    at = f"{base} + {b * fours + g}u"
                    e.do(self.cells.put(array, at, f"vec4<f32>({of})"))
        blocks = self.size // radix // 4
        return f"  for (var j = 0u; j < {blocks}u; j++) {{\n{e.text()}\n  }}"

    @staticmethod
    def _across(e: Emitter, blocks: list[list[str]]) -> list[str]:
        """The values of four blocks: each of them of all four side by side."""
        return [
            e.let("vec4<f32>(" + ", ".join(f"{b[g]}.{part}" for b in blocks) + ")")
            for g in range(len(blocks[0]))
            for part in _PARTS
        ]

    def _back(self, wide: WidePasses, at: int) -> str:
        """Pass `at` on the way back."""
        e = Fours("ABCDEFGH"[at])
        radix, stride, base, turns = wide.columns(e, at)
        xs: list[Pair] = []
        for k in range(radix):
            four = f"{base} + {k * stride}u"
            pair = self.cells.get(0, four), self.cells.get(1, four)
            x = e.let(pair[0]), e.let(pair[1])
            xs.append(e.times(x, *turns[k]) if k else x)
        ys = e.dft(xs)
        for q, y in enumerate(ys):
            if at:
                for part in (0, 1):
                    e.do(self.cells.put(part, f"{base} + {q * stride}u", y[part]))
            else:
                self._store(e, f"{base} + {q * stride}u", q, stride, y)
        count = self.size // radix // 4
        return f"  for (var j = 0u; j < {count}u; j++) {{\n{e.text()}\n  }}"

    def _store(self, e: Emitter, four: str, q: int, stride: int, y: Pair) -> None:
        """Four results, times the chirp; none behind those that are kept."""
        if 4 * q * stride >= self.kept:
            return
        here = e.let(four)
        out = e.times((y[1], y[0]), *self._chirp(e, here))
        ends = 4 * (q + 1) * stride > self.kept
        for c, part in enumerate(_PARTS):
            at = e.let(f"{here} * 4u + {c}u")
            start = e.let(f"row_out + {at} * u.out_step")
            lines = " ".join(
                f"{self.store}({start} + u.out_{name}, {value}.{part} * u.scale);"
                for name, value, there in zip(
                    ("re", "im"), out, (self.target.re, self.target.im), strict=True
                )
                if there is not None
            )
            e.do(f"if ({at} < {self.kept}u) {{ {lines} }}" if ends else lines)


def chirp_rows(
    shared_limit: int,
    work: Work,
    n: int,
    radices: tuple[int, ...],
    source: Rows,
    target: Rows,
    keep: int,
    scale: float,
) -> None:
    """Forward transform of rows of length n, in a ring with the passes `radices`.

    See `Smooth` of `fft_calls` for the other arguments.
    """
    size = math.prod(radices)
    in_scratch = shared_bytes(size, 2) > shared_limit
    cells = LaneCells(size, in_scratch, 2, access=4, width=4)
    chirp, ring, turns = _tables(n, radices)
    accesses = [source.access()]
    for name, table in (
        (f"chirp {n} in {size}", chirp),
        (f"filter {n} in {size}", ring),
        (f"turns {size}", turns),
    ):
        known = work.table(name, partial(np.asarray, table), len(table))
        accesses.append(replace(known, wide=True))
    if in_scratch:
        accesses.append(replace(work.spare(cells.numel), wide=True))
    accesses.append(target.access("write"))
    store = f"st{len(accesses) - 1}"
    made = Ring(n, keep, radices, cells, source, target, store)
    loops = 2 * sum(size // radix // 4 for radix in radices)
    add_call(
        work,
        f"fft_chirp_{n}",
        tuple(accesses),
        {**source.values("in"), **target.values("out"), "scale": float(scale)},
        cells,
        loops,
        cells.module(made.text()),
    )
