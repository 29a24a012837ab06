"""What kernels that work in fours are made of: butterflies, factors, passes.

A driver that runs on a CPU walks through an access to memory lane by lane, and one to
four neighbours costs it little more than one to a single number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlxweb.recipes.butterfly import Emitter, Pair, number
from rlxweb.recipes.fft_rows import FOURTH, powers
from rlxweb.recipes.lane_cells import LaneCells


class Fours(Emitter):
    """Butterflies on four columns at once: WGSL's fma takes no number beside vec4s."""

    def scaled(self, a: str, factor: float, added: str = "") -> str:
        by = number(factor)
        wide = f"vec4<f32>({by})"
        return self.let(f"fma({a}, {wide}, {added})" if added else f"{a} * {by}")

    def turned_by(self, x: Pair, factor: complex) -> Pair:
        re, im = number(factor.real), number(factor.imag)
        wide = f"vec4<f32>({re})", f"vec4<f32>({im})"
        return (
            self.let(f"fma({x[0]}, {wide[0]}, -({x[1]} * {im}))"),
            self.let(f"fma({x[0]}, {wide[1]}, {x[1]} * {re})"),
        )


def read_powers(radix: int) -> list[int]:
    """Powers of a root below the radix that are read; others are one product each."""
    return [k for k in range(1, radix) if k < FOURTH or k % FOURTH == 0]


def turns_table(n: int, radices: Sequence[int]) -> npt.NDArray[np.float64]:
    """For each pass but the last, and each power read: cosines, then sines, of all its
    columns, one behind the other.
    """
    parts: list[npt.NDArray[np.float64]] = []
    before = 1
    for radix in radices[:-1]:
        columns = np.arange(n // before // radix)
        for k in read_powers(radix):
            turn = -2.0 * np.pi * ((columns * k * before) % n) / n
            parts += [np.cos(turn), np.sin(turn)]
        before *= radix
    return np.concatenate(parts) if parts else np.zeros(4)


def turn_starts(n: int, radices: Sequence[int]) -> list[int]:
    """Where the factors of each pass begin in the table."""
    starts, at, before = [], 0, 1
    for radix in radices[:-1]:
        starts.append(at)
        at += 2 * len(read_powers(radix)) * (n // before // radix)
        before *= radix
    return [*starts, at]


First = Callable[[Emitter, str, int, int], Pair]
"""(emitter, four, fours further, stride of the pass) → the four values there"""


@dataclass(frozen=True, slots=True)
class WidePasses:
    """All passes of a transform but the last: four neighbouring columns at a time.

    radices   of all; below the last one all strides are whole fours
    first     what the first pass reads
    load      the function that reads `turns_table`
    """

    n: int
    radices: tuple[int, ...]
    cells: LaneCells
    first: First
    load: str

    def text(self) -> str:
        """One loop after the other."""
        return "\n".join(self._pass(at) for at in range(len(self.radices) - 1))

    def columns(self, e: Emitter, at: int) -> tuple[int, int, str, list[Pair]]:
        """Radix and stride of pass `at`, its first four of turn `j`, the factors."""
        radix = self.radices[at]
        length = self.n // math.prod(self.radices[:at]) // 4
        stride = length // radix
        m = e.let(f"j % {stride}u") if at else "j"
        base = e.let(f"(j / {stride}u) * {length}u + {m}") if at else "j"
        return radix, stride, base, self._turns(e, at, m)

    def _pass(self, at: int) -> str:
        e = Fours("abcdefgh"[at])
        radix, stride, base, turns = self.columns(e, at)
        xs: list[Pair] = []
        for q in range(radix):
            if at == 0:
                xs.append(self.first(e, base, q * stride, stride))
            else:
                four = f"{base} + {q * stride}u"
                pair = self.cells.get(0, four), self.cells.get(1, four)
                xs.append((e.let(pair[0]), e.let(pair[1])))
        for k, y in enumerate(e.dft(xs)):
            y = e.times(y, *turns[k]) if k else y
            for part in (0, 1):
                e.do(self.cells.put(part, f"{base} + {k * stride}u", y[part]))
        count = self.n // radix // 4
        return f"  for (var j = 0u; j < {count}u; j++) {{\n{e.text()}\n  }}"

    def _turns(self, e: Emitter, at: int, m: str) -> list[Pair]:
        radix = self.radices[at]
        columns = self.n // math.prod(self.radices[: at + 1]) // 4
        start = turn_starts(self.n, self.radices)[at] // 4
        read = read_powers(radix)

        def root(k: int) -> Pair:
            here = start + 2 * read.index(k) * columns
            re = e.let(f"{self.load}({m} + {here}u)")
            return re, e.let(f"{self.load}({m} + {here + columns}u)")

        return powers(e, radix, root)
