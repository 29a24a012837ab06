"""Power of whole rows under several tapers, combined: the multitaper estimate.

Owns how rows and tapers are cut into tasks that stay in cache. It must not know how
tapers are made.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.segment_power import remove_constant
from rlxweb.host.spectrum import BLOCK_SAMPLES, THREADED_SAMPLES
from rlxweb.recipes.welch_plan import doubled_bins

MOST_ROUNDS: Final = 150
_SETTLED: Final = 1e-10


def taper_power(
    x: NDArray[Any],
    tapers: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    remove_mean: bool = True,
    ratios: NDArray[np.float64] | None = None,
    rounds: int = MOST_ROUNDS,
) -> NDArray[np.float64]:
    """The one-sided power of each row, averaged over the tapers.

    tapers    (K, T), every one of energy 1
    weights   (K,) of their powers; they are divided by their sum
    ratios    (K,) the tapers' shares of energy in their band: then weights are found
              for every frequency by Thomson's iteration instead
    Shapes    x (B, T) → (B, F), F = T // 2 + 1
    Units     x in U → U²; divided by the rate it is a density
    Numerics  float64
    Source    Thomson 1982; Percival & Walden 1993, 7.4
    """
    n_rows, n = x.shape
    bins, count = n // 2 + 1, len(tapers)
    out = np.empty((n_rows, bins))
    double = np.ones(bins)
    double[doubled_bins(n)] = 2.0
    shares = (weights / weights.sum())[:, None]
    rows = max(1, min(n_rows, BLOCK_SAMPLES // (count * n)))
    # A row too long for the cache goes through it taper by taper.
    at_once = count if rows > 1 else max(1, min(count, BLOCK_SAMPLES // n))

    def make_worker() -> Task:
        own = np.empty((rows, n))
        tapered = np.empty((rows, at_once, n))
        spectrum = np.empty((rows, at_once, bins), np.complex128)
        each = np.empty((rows, count, bins))

        def powers(mine: slice) -> NDArray[np.float64]:
            """(r, K, bins) of some rows, scratch."""
            some = own[: len(x[mine])]
            np.copyto(some, x[mine])
            if remove_mean:
                remove_constant(some)
            for first in range(0, count, at_once):
                part = tapers[first : first + at_once]
                under = tapered[: len(some), : len(part)]
                z = spectrum[: len(some), : len(part)]
                np.multiply(some[:, None], part, out=under)
                np.fft.rfft(under, out=z)
                np.multiply(z.real, z.real, out=z.real)
                np.multiply(z.imag, z.imag, out=z.imag)
                into = each[: len(some), first : first + len(part)]
                np.add(z.real, z.imag, out=into)
            return each[: len(some)]

        def work(task: int) -> None:
            mine = slice(task * rows, (task + 1) * rows)
            found = powers(mine)
            if ratios is None:
                np.multiply(found, shares, out=found)
                np.add.reduce(found, axis=1, out=out[mine])
                np.multiply(out[mine], double, out=out[mine])
            else:
                found *= double
                for row, one in enumerate(found, mine.start):
                    out[row] = _adaptive(one, ratios, rounds)

        return work

    threads = 1 if n_rows * count * n < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // rows), make_worker, threads=threads)
    return out


def _adaptive(
    each: NDArray[np.float64], ratios: NDArray[np.float64], rounds: int
) -> NDArray[np.float64]:
    """Thomson's weights: what leaks into a taper at a frequency counts less there.

    each   (K, F) powers under each taper
    """
    leak = (1.0 - ratios)[:, None]
    share = ratios[:, None]
    # The variance as the integral of an estimate with fixed weights, by trapezoids.
    plain = share[:, 0] @ each / share.sum()
    inner = plain.sum() - (plain[0] + plain[-1]) / 2.0
    variance = inner * (np.pi / each.shape[1]) / (2.0 * np.pi)
    power = share[:2, 0] @ each[:2] / share[:2].sum()
    before = np.zeros_like(each)
    for _ in range(rounds):
        with np.errstate(invalid="ignore", divide="ignore"):
            root = power / (share * power + leak * variance)
        root *= np.sqrt(share)
        squared = root * root
        if np.max(np.mean((before - root) ** 2, axis=0)) < _SETTLED:
            break
        power = (squared * each).sum(axis=0) / squared.sum(axis=0)
        before = root
    found: NDArray[np.float64] = power
    return found
