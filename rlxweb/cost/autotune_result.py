"""Autotuning results: measured kernel variants of an op, as a calibration stores them.

Plain data, and which race tells most about a job. Knows no device and no recipe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlxweb.ir.op import Types


@dataclass(frozen=True, slots=True)
class AutotuneResult:
    """Measured variants of one op at one size.

    size    rows and their width: those of the first input
    ways    who ran right, with ns a run, the fastest first; the op's own kernel goes by
            the op's name
    wrong   who did not, and are left out: name and reason
    table   what rows there were, as `table_of` says: races of others do not count
    """

    op: str
    size: tuple[int, int]
    ways: tuple[tuple[str, float], ...]
    wrong: tuple[tuple[str, str], ...] = ()
    table: str = ""

    def __str__(self) -> str:
        """Describe the result in words: "softmax 4,096 × 1,024: in registers, 1.8 × as
        fast as softmax".
        """
        head = f"{self.op} {self.size[0]:,} × {self.size[1]:,}"
        if not self.ways:
            return f"{head}: no variant succeeded"
        (fastest, fastest_ns), *others = self.ways
        parts = [f"{ns / fastest_ns:.2g} × as fast as {name}" for name, ns in others]
        return f"{head}: {'; '.join([fastest, *parts])}"


def rows_and_width(inputs: Types) -> tuple[int, int]:
    """Return the rows and the width of an op's first input, which key its autotuning
    results.
    """
    first = inputs[0]
    width = first.shape[-1] if first.shape else 1
    return (first.numel // width if width else 0), width


def nearest_result(
    results: Sequence[AutotuneResult], op: str, inputs: Types
) -> AutotuneResult | None:
    """Return the autotuning result of an op whose size is nearest, in octaves of both
    numbers.
    """
    op_results = [result for result in results if result.op == op]
    if not op_results or not inputs:
        return None
    rows, width = rows_and_width(inputs)

    def distance(result: AutotuneResult) -> float:
        return _octave_distance(result.size[0], rows) + _octave_distance(
            result.size[1], width
        )

    return min(op_results, key=distance)


def _octave_distance(a: int, b: int) -> float:
    return abs(math.log2(max(a, 1) / max(b, 1)))
