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
    ratios: NDArray[np.float64],
    *,
    remove_mean: bool = True,
    adaptive: bool = False,
    rounds: int = MOST_ROUNDS,
) -> NDArray[np.float64]:
    """The one-sided power of each row, averaged over the tapers.

    tapers    (K, T), every one of energy 1
    ratios    (K,) the tapers' shares of energy in their band: the weights of their
              powers
    adaptive  weights are found for every frequency by Thomson's iteration instead
    Shapes    x (B, T) → (B, F), F = T // 2 + 1
    Units     x in U → U²; divided by the rate it is a density
    Numerics  float64
    Source    Thomson 1982; Percival & Walden 1993, 7.4
    """
    n_rows, n = x.shape
    count = len(tapers)
    out = np.empty((n_rows, n // 2 + 1))
    double = np.ones(n // 2 + 1)
    double[doubled_bins(n)] = 2.0
    shares = (ratios / ratios.sum())[:, None]
    rows = max(1, min(n_rows, BLOCK_SAMPLES // (count * n)))

    def make_worker() -> Task:
        scratch = _TaperedPower(tapers, rows, remove_mean)

        def work(task: int) -> None:
            mine = slice(task * rows, (task + 1) * rows)
            each = scratch.of(x[mine])
            each *= double
            if not adaptive:
                np.add.reduce(np.multiply(each, shares, out=each), 1, out=out[mine])
                return
            for row, one in enumerate(each, mine.start):
                out[row] = _adaptive(one, ratios, rounds)

        return work

    threads = 1 if n_rows * count * n < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // rows), make_worker, threads=threads)
    return out


class _TaperedPower:
    """One thread's scratch for a few rows under all tapers."""

    def __init__(
        self, tapers: NDArray[np.float64], rows: int, remove_mean: bool
    ) -> None:
        count, n = tapers.shape
        # A row too long for the cache goes through it a few tapers at a time.
        self._step = count if rows > 1 else max(1, min(count, BLOCK_SAMPLES // n))
        self._tapers, self._remove_mean = tapers, remove_mean
        self._own = np.empty((rows, n))
        self._tapered = np.empty((rows, self._step, n))
        self._spectrum = np.empty((rows, self._step, n // 2 + 1), np.complex128)
        self._each = np.empty((rows, count, n // 2 + 1))

    def of(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """|X|² (r, K, F) of rows (r, T), scratch: the next call overwrites it."""
        own, each = self._own[: len(x)], self._each[: len(x)]
        np.copyto(own, x)
        if self._remove_mean:
            remove_constant(own)
        for first in range(0, len(self._tapers), self._step):
            part = self._tapers[first : first + self._step]
            under = self._tapered[: len(x), : len(part)]
            z = self._spectrum[: len(x), : len(part)]
            np.fft.rfft(np.multiply(own[:, None], part, out=under), out=z)
            np.multiply(z.real, z.real, out=z.real)
            np.multiply(z.imag, z.imag, out=z.imag)
            np.add(z.real, z.imag, out=each[:, first : first + len(part)])
        return each


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
