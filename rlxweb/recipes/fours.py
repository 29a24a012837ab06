"""What kernels that work in fours are made of: butterflies and twiddle factors.

A driver that runs on a CPU walks through an access to memory lane by lane, and one to
four neighbours costs it little more than one to a single number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlxweb.recipes.butterfly import Emitter, Pair, number
from rlxweb.recipes.fft_rows import FOURTH


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
