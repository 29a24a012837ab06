"""From trained gates to a program: what is closed, and which weights make up for it.

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

from rlxweb.host.spectrum import welch_power
from rlxweb.signal.accuracy import SEGMENTS, spectrum_error
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.examples import Examples
from rlxweb.signal.learned.network import (
    Gates,
    Program,
    active,
    exact,
    needed,
    open_gates,
    program_of,
)
from rlxweb.signal.learned.transform import power_in_numpy

F32 = npt.NDArray[np.float32]

_MOST_FITTED: Final = 32
"""Most weights of a bin that are fitted; of more, those of the gates stay."""
_FITTED_SEGMENTS: Final = 1024
_RIDGE: Final = 1e-10
_CUTS: Final = 40


@dataclass(frozen=True, slots=True, eq=False)
class Pruning:
    """A pruned network that was tested.

    gates, program  what is left
    active          number of open gates that the bins need
    error           `accuracy.spectrum_error` of rows that it was not trained on
    recall          the part of their true peaks that it finds
    """

    gates: Gates
    program: Program
    active: int
    error: float
    recall: float


def tried_prunings(
    trained: F32, examples: Examples, band: Band, k: int
) -> tuple[Pruning, ...]:
    """Return the exact network, then prunings by two orders, all of them tested."""
    n = examples.spec.nperseg
    tried = [_tested(open_gates(n), exact(n, band), examples, k)]
    seen: set[bytes] = set()
    for gates in (*_decimations(n), *_cuts(trained, band)):
        is_open = needed(gates, band) & gates
        if int(is_open.sum()) >= tried[0].active or is_open.tobytes() in seen:
            continue
        seen.add(is_open.tobytes())
        with suppress(ValueError):  # its program would have too many weights
            program = program_of(gates, band)
            if len(program.phases) <= _MOST_FITTED:
                program = fitted(program, examples.learned[:_FITTED_SEGMENTS])
            tried.append(_tested(gates, program, examples, k))
    return tuple(tried)


def _decimations(n: int) -> Iterator[Gates]:
    """Yield gates that read every 2nd, 4th, 8th … sample alone.

    That is enough for spectra that fall steeply.
    """
    gates = open_gates(n)
    for stage in range(len(gates) - 1, 0, -1):
        gates = gates.copy()
        gates[stage, : 1 << stage] = False
        yield gates


def _cuts(trained: F32, band: Band) -> Iterator[Gates]:
    """Yield gates with ever more blocks closed, the lowest mean gate first.

    Of equal means those of the last stages, on which most depends, go first.
    """
    gates = np.ones(trained.shape, np.bool_)
    matters = needed(gates, band)
    blocks: list[tuple[float, int, int]] = []
    for stage, (row, counted) in enumerate(zip(trained, matters, strict=True)):
        half = 1 << stage
        row, counted = row.reshape(-1, half), counted.reshape(-1, half)
        means = np.sum(row * counted, axis=1) / np.maximum(1, counted.sum(axis=1))
        blocks += [(float(mean), -stage, block) for block, mean in enumerate(means)]
    blocks.sort()
    done = 0
    for cut in np.unique(np.geomspace(1, len(blocks), _CUTS).astype(int)):
        gates = gates.copy()
        for _, minus_stage, block in blocks[done:cut]:
            half = 1 << -minus_stage
            gates[-minus_stage, block * half : (block + 1) * half] = False
        done = int(cut)
        yield gates


def _tested(gates: Gates, program: Program, examples: Examples, k: int) -> Pruning:
    band = program.band
    power = power_in_numpy(examples.rows, examples.spec, program, band)
    right = examples.right[:, band.bins]
    error, found = spectrum_error(power, right), recall(power, right, k)
    return Pruning(gates, program, active(gates, band), error, found)


def fitted(program: Program, segments: npt.NDArray[np.float64]) -> Program:
    """Return the program with the weights that fit windowed segments (S, n) best."""
    right = np.fft.rfft(segments)[:, program.band.bins]
    terms = program.terms(segments)
    adjoint = terms.conj().transpose(0, 2, 1)
    gram = adjoint @ terms
    with_right = adjoint @ right.T[..., None]
    diagonal = np.einsum("kpp->kp", gram)
    diagonal += _RIDGE * diagonal.real.mean(axis=1, keepdims=True) + 1e-300
    solved = np.linalg.solve(gram, with_right)
    power = np.square(np.abs(terms @ solved)).mean(axis=(1, 2))
    wanted = np.square(np.abs(right)).mean(axis=0)
    # Least squares lose the power of what they cannot predict: it is restored.
    gain = np.sqrt(wanted / np.maximum(power, 1e-300))[:, None]
    weights = np.asarray(solved[..., 0] * gain, np.complex128)
    return replace(program, weights=weights)


def best_within(tried: Sequence[Pruning], error: float) -> Pruning:
    """The cheapest within an error; the exact network where no other is."""
    allowed = [tried[0], *(one for one in tried[1:] if one.error <= error)]
    return min(allowed, key=_cost_and_error)


def front(tried: Sequence[Pruning]) -> list[Pruning]:
    """Return the Pareto front of cost and error, the most expensive pruning first."""
    best: list[Pruning] = []
    for one in sorted(tried, key=_cost_and_error):
        if not best or one.error < best[-1].error:
            best.append(one)
    return best[::-1]


def _cost_and_error(pruning: Pruning) -> tuple[float, float]:
    return pruning.program.cost, pruning.error


def worst_of(program: Program, examples: Examples) -> float:
    """The largest error of as many segments as are compared while it runs."""
    spec = replace(examples.spec, n_segments=SEGMENTS)
    length, band = spec.nperseg + (SEGMENTS - 1) * spec.hop, program.band
    worst = 0.0
    for at in range(0, examples.rows.shape[1] - length + 1, length):
        rows = examples.rows[:, at : at + length]
        right = welch_power(rows, spec)[:, band.bins]
        power = power_in_numpy(rows, spec, program, band)
        pairs = zip(power, right, strict=True)
        worst = max(worst, *(spectrum_error(a[None], b[None]) for a, b in pairs))
    return worst


def recall(found: Any, right: Any, k: int) -> float:
    """Return the part of the true peaks that are peaks of the computed power too.

    Peaks are the k highest local maxima of a row; they count at the same bin alone.
    """
    hits = total = 0
    for row, true in zip(found, right, strict=True):
        wanted = _peaks(true, k)
        hits += len(wanted & _peaks(row, len(wanted)))
        total += len(wanted)
    return hits / total if total else 1.0


def _peaks(power: Any, k: int) -> set[int]:
    inner = power[1:-1]
    at = np.flatnonzero((inner > power[:-2]) & (inner >= power[2:])) + 1
    return set(at[np.argsort(-power[at], kind="stable")][:k].tolist())
