"""Timing that can be compared: all peers of a cell interleaved in one process.

Owns warm-up, repetition and the statistics. A round calls every peer once, in a new
order each time, so that what else the machine does falls on all alike. One unmeasured
call goes before each sample: these are warm figures, not what the peer before left in
the caches; the first call of all is reported apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Peer = Callable[[], object]

WARM_UPS = 2
# Shorter calls are repeated until a sample lasts this long; clocks are no finer.
SAMPLE_S = 2e-3


@dataclass(frozen=True, slots=True)
class Timing:
    """One peer of one cell.

    ms        median of the samples, per call
    spread    interquartile range / median
    samples   how many there were, each of `calls` calls
    first_ms  the first call of this process: compiling and warming up counted in
    """

    ms: float
    spread: float
    samples: int
    calls: int
    first_ms: float


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to spend on a cell."""

    rounds: int = 9
    sample_s: float = SAMPLE_S
    # A cell of slow peers stops here, but never below `least` rounds.
    budget_s: float = 45.0
    least: int = 7


QUICK = Effort(rounds=3, sample_s=5e-4, budget_s=3.0, least=3)


def interleaved(peers: Mapping[str, Peer], effort: Effort) -> dict[str, Timing]:
    """Time every peer. Its first call is reported apart, and one more is warm-up."""
    first = {name: _seconds(peer, 1) for name, peer in peers.items()}
    calls = {}
    for name, peer in peers.items():
        took = min(_seconds(peer, 1) for _ in range(WARM_UPS - 1))
        calls[name] = max(1, int(effort.sample_s / max(took, 1e-9)))
    samples: dict[str, list[float]] = {name: [] for name in peers}
    names, begun = list(peers), time.perf_counter()
    shuffle = np.random.default_rng(0).permutation
    for round_ in range(effort.rounds):
        for name in shuffle(names):
            peers[name]()
            samples[name].append(_seconds(peers[name], calls[name]) / calls[name])
        late = time.perf_counter() - begun > effort.budget_s
        if late and round_ + 1 >= effort.least:
            break
    return {
        name: _timing(np.array(taken), calls[name], first[name])
        for name, taken in samples.items()
    }


def _seconds(peer: Peer, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        peer()
    return time.perf_counter() - start


def _timing(seconds: np.ndarray, calls: int, first: float) -> Timing:
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return Timing(
        ms=float(middle * 1e3),
        spread=float((high - low) / middle),
        samples=len(seconds),
        calls=calls,
        first_ms=float(first * 1e3),
    )
