"""Power of whole rows under several tapers, combined: the multitaper estimate.

Owns how rows are cut into tasks; a task is one row, taper by taper, so that no more
than a row's spectra are held at once. It must not know how tapers are made.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.segment_power import remove_constant
from rlxweb.host.spectrum import THREADED_SAMPLES
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
    bins = n // 2 + 1
    out = np.empty((n_rows, bins))
    double = np.ones(bins)
    double[doubled_bins(n)] = 2.0

    def make_worker() -> Task:
        own = np.empty(n)
        tapered = np.empty(n)
        spectrum = np.empty(bins, np.complex128)
        each = np.empty((len(tapers), bins))

        def work(row: int) -> None:
            np.copyto(own, x[row])
            if remove_mean:
                remove_constant(own)
            for taper, power in zip(tapers, each, strict=True):
                np.fft.rfft(np.multiply(own, taper, out=tapered), out=spectrum)
                parts = spectrum.view(np.float64)
                np.multiply(parts, parts, out=parts)
                np.add(parts[0::2], parts[1::2], out=power)
            if ratios is None:
                np.dot(weights / weights.sum(), each, out=out[row])
                np.multiply(out[row], double, out=out[row])
            else:
                each[...] *= double
                out[row] = _adaptive(each, ratios, rounds)

        return work

    threads = 1 if n_rows * len(tapers) * n < THREADED_SAMPLES else None
    run_tasks(n_rows, make_worker, threads=threads)
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
    return power
