"""What kernels that work in fours are made of: cells, twiddle factors, butterflies.

A driver that runs on a CPU walks through an access to memory lane by lane, and one to
four neighbours costs it little more than one to a single number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlxweb.limits import MAX_TURNS
from rlxweb.recipes.butterfly import Emitter, Pair, number
from rlxweb.recipes.fft_rows import FOURTH
from rlxweb.recipes.fft_variants import LANES, MAIN, SLOTS

_NAMES = ("re", "im", "sum")


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


@dataclass(frozen=True, slots=True)
class FourCells:
    """Where rows lie between passes, four neighbouring cells a vec4, lane by lane.

    arrays   of n cells a row: real parts, imaginary parts, and sums if they are apart
    access   of the scratch buffer that holds them; 0: workgroup memory does
    """

    n: int
    arrays: int
    access: int

    @property
    def shared_bytes(self) -> int:
        """What they take of workgroup memory."""
        return 4 * self.arrays * self.n * LANES

    @property
    def numel(self) -> int:
        """Elements of the scratch buffer."""
        return self.arrays * self.n * SLOTS

    def tile(self, rows: int, turns: int) -> int:
        """Rows a lane walks; `turns` are its loop turns for one of them."""
        if not self.access:
            return 1
        return max(1, min(math.ceil(rows / SLOTS), MAX_TURNS // (turns + 1)))

    def most_rows(self, rows: int, turns: int) -> int:
        """Rows of one call: the scratch holds so many lanes. 0 is no bound."""
        return SLOTS * self.tile(rows, turns) if self.access else 0

    def _at(self, array: int, four: str) -> str:
        return f"spot + {array * self.n // 4 * LANES}u + ({four}) * {LANES}u"

    def get(self, array: int, four: str) -> str:
        """Cells 4 · four and the three behind it."""
        if self.access:
            return f"ld{self.access}({self._at(array, four)})"
        return f"{_NAMES[array]}[({four}) * {LANES}u + lid]"

    def put(self, array: int, four: str, value: str) -> str:
        """The counterpart of `get`."""
        if self.access:
            return f"st{self.access}({self._at(array, four)}, {value});"
        return f"{self.get(array, four)} = {value};"

    def module(self, body: str) -> str:
        """The whole kernel around what is done to row `row`."""
        if self.access:
            each = self.arrays * self.n // 4 * LANES
            return (
                f"{MAIN}"
                f"  let spot = (item / {LANES}u) * {each}u + item % {LANES}u;\n"
                "  for (var row = item; row < u.rows; row += u.items) {\n"
                f"{body}\n  }}\n}}\n"
            )
        lists = "".join(
            f"var<workgroup> {name}: array<vec4<f32>, {self.n // 4 * LANES}>;\n"
            for name in _NAMES[: self.arrays]
        )
        return f"{lists}{MAIN}  let row = item;\n{body}\n}}\n"


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
