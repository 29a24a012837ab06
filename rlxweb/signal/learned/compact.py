"""A network of gates as the program that is run: short transforms, then a sum.

Below some level all butterflies that still count are open: there each block is an exact
transform of every R-th sample, which the best FFT of the machine computes. What is
above is linear in their values, and of each block a bin needs one: a bin is a weighted
sum over the blocks that are left. Which level is cheapest depends on what was pruned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rlxweb.signal.learned.butterflies import (
    Complex,
    Gates,
    bit_reversed,
    needed,
    stages_of,
    weights_at,
)

# A value of a transform for each of its stages, and a term of a bin's sum, as they were
# measured in NumPy.
_A_STAGE: Final = 1.0
_A_TERM: Final = 6.0
_A_SAMPLE: Final = 8.0
_LEAST: Final = 8
"""Shorter transforms cost their calls more than their arithmetic."""
MOST_WEIGHTS: Final = 1 << 22
"""Of all bins and blocks: programs that need more are no savings, and fill memories."""


@dataclass(frozen=True, slots=True, eq=False)
class Compact:
    """X[k] = sum over p of weights[k, p] * F[p][k mod m].

    F[p]     the transform of m samples, every (n / m)-th from phases[p] on
    weights  (bins, phases)
    """

    n: int
    m: int
    phases: tuple[int, ...]
    weights: Complex

    @property
    def cost(self) -> float:
        """Of one segment, in steps of a transform."""
        return _cost(self.m, len(self.phases), len(self.weights))

    @property
    def stride(self) -> int:
        return self.n // self.m


def _cost(m: int, phases: int, bins: int) -> float:
    each = m * (_A_STAGE * np.log2(max(2, m)) + _A_SAMPLE)
    return float(phases * each + _A_TERM * phases * bins)


def compacted(gates: Gates, bins: npt.NDArray[np.int64]) -> Compact:
    """The cheapest program of a network for its bins.

    Errors   ValueError where there is none of at most MOST_WEIGHTS.
    """
    stages = len(gates)
    n = 1 << stages
    counts = needed(gates, bins)
    best = None
    for level in range(stages, -1, -1):
        m = 1 << level
        if level < stages and (n >> level) * len(bins) > MOST_WEIGHTS:
            break
        weights = weights_at(gates, bins, level)
        lives = (weights != 0).any(axis=0)
        if not _are_exact(gates, counts, lives, level):
            continue
        order = bit_reversed(n >> level)
        kept = np.flatnonzero(lives)
        kept = kept[np.argsort(order[kept])]
        phases = tuple(int(p) for p in order[kept])
        made = Compact(n, m, phases, weights[:, kept])
        if best is None or (m >= _LEAST and made.cost < best.cost):
            best = made
        # Further down there are as many blocks or more, and a term for each.
        if _A_TERM * len(phases) * len(bins) >= best.cost:
            break
    if best is None:
        rule = f"weights of {len(bins):,} bins and over {MOST_WEIGHTS:,} in all"
        raise ValueError(f"its gates leave {rule}")
    return best


def _are_exact(
    gates: Gates, counts: Gates, lives: npt.NDArray[np.bool_], level: int
) -> bool:
    """Are all gates open that count, below a level, in the blocks that are left?"""
    closed = (counts & ~gates)[:level]
    if not closed.size:
        return True
    by_block = closed.reshape(level, len(lives), -1).any(axis=(0, 2))
    return not (by_block & lives).any()


def exact(n: int, bins: npt.NDArray[np.int64]) -> Compact:
    """The program of the exact transform: nothing but what the bins need."""
    return compacted(np.ones((stages_of(n), n // 2), np.bool_), bins)
