"""Multitaper power of whole rows: the powers under several tapers, combined.

Owns how rows and tapers are cut into tasks that stay in cache. It must not know how
tapers are made.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ops.welch.cpu.segment_fft_workspace import remove_constant
from rlxweb.ops.welch.cpu.spectrum import BLOCK_SAMPLES, THREADED_SAMPLES
from rlxweb.ops.welch.parameters import doubled_bin_slice

MAX_ROUNDS: Final = 150
_CONVERGENCE_TOLERANCE: Final = 1e-10


def multitaper_power(
    x: NDArray[Any],
    tapers: NDArray[np.float64],
    ratios: NDArray[np.float64],
    *,
    remove_mean: bool = True,
    adaptive: bool = False,
    rounds: int = MAX_ROUNDS,
) -> NDArray[np.float64]:
    """Return the one-sided power of each row, averaged over the tapers.

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
    taper_count = len(tapers)
    out = np.empty((n_rows, n // 2 + 1))
    doubling = np.ones(n // 2 + 1)
    doubling[doubled_bin_slice(n)] = 2.0
    shares = (ratios / ratios.sum())[:, None]
    block_rows = max(1, min(n_rows, BLOCK_SAMPLES // (taper_count * n)))

    def make_worker() -> Task:
        workspace = _TaperedPower(tapers, block_rows, remove_mean)

        def run_task(task: int) -> None:
            row_slice = slice(task * block_rows, (task + 1) * block_rows)
            powers = workspace.compute(x[row_slice])
            powers *= doubling
            if not adaptive:
                np.add.reduce(
                    np.multiply(powers, shares, out=powers), 1, out=out[row_slice]
                )
                return
            for row, row_powers in enumerate(powers, row_slice.start):
                out[row] = _adaptive_power(row_powers, ratios, rounds)

        return run_task

    threads = 1 if n_rows * taper_count * n < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // block_rows), make_worker, threads=threads)
    return out


class _TaperedPower:
    """Workspace of one thread for a few rows under all tapers."""

    def __init__(
        self, tapers: NDArray[np.float64], rows: int, remove_mean: bool
    ) -> None:
        count, n = tapers.shape
        # A row too long for the cache goes through it a few tapers at a time.
        self._block_tapers = (
            count if rows > 1 else max(1, min(count, BLOCK_SAMPLES // n))
        )
        self._tapers, self._remove_mean = tapers, remove_mean
        self._rows = np.empty((rows, n))
        self._tapered = np.empty((rows, self._block_tapers, n))
        self._spectrum = np.empty((rows, self._block_tapers, n // 2 + 1), np.complex128)
        self._powers = np.empty((rows, count, n // 2 + 1))

    def compute(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Return |X|² (r, K, F) of rows (r, T) in scratch memory; the next call
        overwrites it.
        """
        centered, powers = self._rows[: len(x)], self._powers[: len(x)]
        np.copyto(centered, x)
        if self._remove_mean:
            remove_constant(centered)
        for first in range(0, len(self._tapers), self._block_tapers):
            block_tapers = self._tapers[first : first + self._block_tapers]
            tapered = self._tapered[: len(x), : len(block_tapers)]
            z = self._spectrum[: len(x), : len(block_tapers)]
            np.fft.rfft(
                np.multiply(centered[:, None], block_tapers, out=tapered), out=z
            )
            np.multiply(z.real, z.real, out=z.real)
            np.multiply(z.imag, z.imag, out=z.imag)
            np.add(z.real, z.imag, out=powers[:, first : first + len(block_tapers)])
        return powers


def _adaptive_power(
    powers: NDArray[np.float64], ratios: NDArray[np.float64], rounds: int
) -> NDArray[np.float64]:
    """Combine the tapers by Thomson's weights, which reduce a taper's share where it
    leaks.

    powers  (K, F) powers under each taper
    """
    leakage = (1.0 - ratios)[:, None]
    share = ratios[:, None]
    # The variance as the integral of an estimate with fixed weights, by trapezoids.
    mean_power = share[:, 0] @ powers / share.sum()
    integral = mean_power.sum() - (mean_power[0] + mean_power[-1]) / 2.0
    variance = integral * (np.pi / powers.shape[1]) / (2.0 * np.pi)
    power = share[:2, 0] @ powers[:2] / share[:2].sum()
    previous_root = np.zeros_like(powers)
    for _ in range(rounds):
        with np.errstate(invalid="ignore", divide="ignore"):
            root = power / (share * power + leakage * variance)
        root *= np.sqrt(share)
        squared = root * root
        if (
            np.max(np.mean((previous_root - root) ** 2, axis=0))
            < _CONVERGENCE_TOLERANCE
        ):
            break
        power = (squared * powers).sum(axis=0) / squared.sum(axis=0)
        previous_root = root
    result: NDArray[np.float64] = power
    return result
