"""Races between the ways to run an op, as a calibration keeps them.

Plain data, and which race tells most about a job. Knows no device and no recipe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlxweb.ir.op import Types


@dataclass(frozen=True, slots=True)
class Race:
    """One op at one size.

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
        """In words: "softmax 4,096 × 1,024: in registers, 1.8 × as fast as softmax"."""
        head = f"{self.op} {self.size[0]:,} × {self.size[1]:,}"
        if not self.ways:
            return f"{head}: nobody came in"
        (first, best), *others = self.ways
        said = [f"{ns / best:.2g} × as fast as {name}" for name, ns in others]
        return f"{head}: {'; '.join([first, *said])}"


def size_of(inputs: Types) -> tuple[int, int]:
    """Rows and width of a job, by which races are told apart."""
    first = inputs[0]
    width = first.shape[-1] if first.shape else 1
    return (first.numel // width if width else 0), width


def nearest(races: Sequence[Race], op: str, inputs: Types) -> Race | None:
    """The race of an op whose size is nearest, in octaves of both numbers."""
    mine = [race for race in races if race.op == op]
    if not mine or not inputs:
        return None
    rows, width = size_of(inputs)

    def far(race: Race) -> float:
        return _octaves(race.size[0], rows) + _octaves(race.size[1], width)

    return min(mine, key=far)


def _octaves(a: int, b: int) -> float:
    return abs(math.log2(max(a, 1) / max(b, 1)))
