"""Pruning of trained gates into programs: which gates are closed, and the weights that
compensate for it.

Gates are closed block by block, the lowest first: where all gates of a block are
closed, the half of the samples that it would have added is never read. After each cut
the weights that remain are fitted to the recordings, by least squares and so that no
bin loses power, and the program is tested on recordings that it was not trained on. Of
all within the error the cheapest is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned.gated_fft import (
    Gates,
    PrunedFftProgram,
    all_open_gates,
    cheapest_program,
    count_active_gates,
    exact_program,
    needed_butterflies,
)
from rlxweb.signal.learned.training_examples import TrainingExamples
from rlxweb.signal.learned.transform import band_power_by_numpy
from rlxweb.signal.spectrum_accuracy import CHECKED_SEGMENTS, spectrum_error

Float32Array = npt.NDArray[np.float32]

_MAX_FITTED_WEIGHTS: Final = 32
"""Maximum number of weights of a bin that are fitted; with more, the weights of the
gates stay.
"""
_FITTED_SEGMENTS: Final = 1024
_RIDGE: Final = 1e-10
_CUT_COUNT: Final = 40


@dataclass(frozen=True, slots=True, eq=False)
class Pruning:
    """A pruned network with its program and test results.

    gates, program  what is left
    count_active_gates  number of open gates that the bins need
    error           `accuracy.spectrum_error` of rows that it was not trained on
    peak_recall     the part of their true peaks that it finds
    """

    gates: Gates
    program: PrunedFftProgram
    active: int
    error: float
    recall: float


def evaluate_prunings(
    trained: Float32Array, examples: TrainingExamples, band: BinRange, k: int
) -> tuple[Pruning, ...]:
    """Build and test prunings by two orders of closing gates; return the exact network
    first, then the prunings.
    """
    n = examples.spec.nperseg
    prunings = [
        _evaluate_pruning(all_open_gates(n), exact_program(n, band), examples, k)
    ]
    seen: set[bytes] = set()
    for gates in (*_decimation_gates(n), *_block_cut_gates(trained, band)):
        is_open = needed_butterflies(gates, band) & gates
        if int(is_open.sum()) >= prunings[0].active or is_open.tobytes() in seen:
            continue
        seen.add(is_open.tobytes())
        with suppress(ValueError):  # its program would have too many weights
            program = cheapest_program(gates, band)
            if len(program.phases) <= _MAX_FITTED_WEIGHTS:
                program = fit_weights(
                    program, examples.training_segments[:_FITTED_SEGMENTS]
                )
            prunings.append(_evaluate_pruning(gates, program, examples, k))
    return tuple(prunings)


def _decimation_gates(n: int) -> Iterator[Gates]:
    """Yield gates that read only every 2nd, 4th, 8th … sample.

    That is enough for spectra that fall steeply.
    """
    gates = all_open_gates(n)
    for stage in range(len(gates) - 1, 0, -1):
        gates = gates.copy()
        gates[stage, : 1 << stage] = False
        yield gates


def _block_cut_gates(trained: Float32Array, band: BinRange) -> Iterator[Gates]:
    """Yield gates with more and more blocks closed, the blocks of the lowest mean gate
    first.

    Of equal means those of the last stages, on which most depends, go first.
    """
    gates = np.ones(trained.shape, np.bool_)
    needed_gates = needed_butterflies(gates, band)
    blocks: list[tuple[float, int, int]] = []
    for stage, (row, is_needed) in enumerate(zip(trained, needed_gates, strict=True)):
        half = 1 << stage
        row, is_needed = row.reshape(-1, half), is_needed.reshape(-1, half)
        means = np.sum(row * is_needed, axis=1) / np.maximum(1, is_needed.sum(axis=1))
        blocks += [(float(mean), -stage, block) for block, mean in enumerate(means)]
    blocks.sort()
    n_closed = 0
    for cut in np.unique(np.geomspace(1, len(blocks), _CUT_COUNT).astype(int)):
        gates = gates.copy()
        for _, minus_stage, block in blocks[n_closed:cut]:
            half = 1 << -minus_stage
            gates[-minus_stage, block * half : (block + 1) * half] = False
        n_closed = int(cut)
        yield gates


def _evaluate_pruning(
    gates: Gates, program: PrunedFftProgram, examples: TrainingExamples, k: int
) -> Pruning:
    """Test a program on held-out rows and return the result as a Pruning."""
    band = program.band
    power = band_power_by_numpy(examples.test_rows, examples.spec, program, band)
    exact_power = examples.test_power[:, band.bins]
    error = spectrum_error(power, exact_power)
    recall = peak_recall(power, exact_power, k)
    return Pruning(gates, program, count_active_gates(gates, band), error, recall)


def fit_weights(
    program: PrunedFftProgram, segments: npt.NDArray[np.float64]
) -> PrunedFftProgram:
    """Return the program with least-squares weights fitted to windowed segments (S,
    n).
    """
    exact_bins = np.fft.rfft(segments)[:, program.band.bins]
    terms = program.bin_terms(segments)
    adjoint = terms.conj().transpose(0, 2, 1)
    gram = adjoint @ terms
    correlation = adjoint @ exact_bins.T[..., None]
    diagonal = np.einsum("kpp->kp", gram)
    diagonal += _RIDGE * diagonal.real.mean(axis=1, keepdims=True) + 1e-300
    solution = np.linalg.solve(gram, correlation)
    power = np.square(np.abs(terms @ solution)).mean(axis=(1, 2))
    exact_power = np.square(np.abs(exact_bins)).mean(axis=0)
    # Least squares lose the power of what they cannot predict: it is restored.
    gain = np.sqrt(exact_power / np.maximum(power, 1e-300))[:, None]
    weights = np.asarray(solution[..., 0] * gain, np.complex128)
    return replace(program, weights=weights)


def cheapest_within_error(prunings: Sequence[Pruning], error: float) -> Pruning:
    """Return the cheapest pruning within an error, or the exact network if there is
    none.
    """
    allowed = [
        prunings[0],
        *(pruning for pruning in prunings[1:] if pruning.error <= error),
    ]
    return min(allowed, key=_cost_and_error)


def pareto_front(prunings: Sequence[Pruning]) -> list[Pruning]:
    """Return the Pareto front of cost and error, the most expensive pruning first."""
    pareto_prunings: list[Pruning] = []
    for pruning in sorted(prunings, key=_cost_and_error):
        if not pareto_prunings or pruning.error < pareto_prunings[-1].error:
            pareto_prunings.append(pruning)
    return pareto_prunings[::-1]


def _cost_and_error(pruning: Pruning) -> tuple[float, float]:
    """Sort key of a pruning: its cost, then its error."""
    return pruning.program.cost, pruning.error


def worst_segment_error(program: PrunedFftProgram, examples: TrainingExamples) -> float:
    """Return the largest error over groups of segments as large as the run-time check
    compares.
    """
    spec = replace(examples.spec, n_segments=CHECKED_SEGMENTS)
    length, band = spec.nperseg + (CHECKED_SEGMENTS - 1) * spec.hop, program.band
    worst = 0.0
    for start in range(0, examples.test_rows.shape[1] - length + 1, length):
        rows = examples.test_rows[:, start : start + length]
        exact_power = welch_power(rows, spec)[:, band.bins]
        power = band_power_by_numpy(rows, spec, program, band)
        pairs = zip(power, exact_power, strict=True)
        worst = max(worst, *(spectrum_error(a[None], b[None]) for a, b in pairs))
    return worst


def peak_recall(computed_power: Any, exact_power: Any, k: int) -> float:
    """Return the fraction of the true peaks that are also peaks of the computed power.

    Peaks are the k highest local maxima of a row; they count at the same bin alone.
    """
    hits = total = 0
    for row, exact_row in zip(computed_power, exact_power, strict=True):
        exact_peaks = _strongest_local_maxima(exact_row, k)
        hits += len(exact_peaks & _strongest_local_maxima(row, len(exact_peaks)))
        total += len(exact_peaks)
    return hits / total if total else 1.0


def _strongest_local_maxima(power: Any, k: int) -> set[int]:
    """Return the bins of the k highest local maxima of one row."""
    inner = power[1:-1]
    peak_bins = np.flatnonzero((inner > power[:-2]) & (inner >= power[2:])) + 1
    return set(peak_bins[np.argsort(-power[peak_bins], kind="stable")][:k].tolist())
