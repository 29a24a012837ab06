"""From trained gates to a program: what is closed, and what makes up for it.

Gates are closed block by block, the lowest first: where all of a block's are, the half
of the samples that it would have added is never read. After each the weights of what is
left are fitted to the recordings, by least squares and so that no bin loses power, and
the program is tested on recordings that it has not seen. Of all that keep within the
error the cheapest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.host.segment_power import tables
from rlxweb.host.spectrum import frames, welch_power
from rlxweb.learn.examples import Examples
from rlxweb.signal.accuracy import SEGMENTS, spectrum_error
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.butterflies import Complex, Gates, active, needed
from rlxweb.signal.learned.compact import Compact, compacted
from rlxweb.signal.learned.transform import spectra

MOST_FITTED: Final = 32
"""Weights of a bin that are fitted; more of them keep what the gates give."""
_SEGMENTS: Final = 1024
"""That weights are fitted to."""
_RIDGE: Final = 1e-10
_TRIED: Final = 40


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """A pruning that was tested.

    gates, program  what is left
    active          open gates that the bins need
    error           `accuracy.spectrum_error` of rows that were not learned from
    recall          part of their true peaks that were found
    """

    gates: Gates
    program: Compact
    active: int
    error: float
    recall: float


def tried_prunings(
    trained: npt.NDArray[np.float32], examples: Examples, band: Band, k: int
) -> list[Tried]:
    """The exact network first; then prunings, in two orders."""
    bins = np.arange(band.first, band.stop)
    found = [_tested(np.ones(trained.shape, np.bool_), examples, band, k, fit=False)]
    seen: set[bytes] = set()
    for gates in (*_halved(trained), *_closed(trained, bins)):
        open_ = needed(gates, bins) & gates
        if int(open_.sum()) >= found[0].active or open_.tobytes() in seen:
            continue
        seen.add(open_.tobytes())
        with suppress(ValueError):  # its program has too many weights: no savings
            found.append(_tested(gates, examples, band, k))
    return found


def _halved(trained: npt.NDArray[np.float32]) -> Iterator[Gates]:
    """Every 2nd, 4th, 8th … sample alone: what a spectrum that falls steeply needs."""
    gates = np.ones(trained.shape, np.bool_)
    for stage in range(len(gates) - 1, 0, -1):
        gates = gates.copy()
        gates[stage, : 1 << stage] = False
        yield gates


def _closed(
    trained: npt.NDArray[np.float32], bins: npt.NDArray[np.int64]
) -> Iterator[Gates]:
    """More and more of the blocks, the lowest gates first."""
    gates, at = np.ones(trained.shape, np.bool_), 0
    groups = _groups(trained, bins)
    cuts = np.unique(np.geomspace(1, max(1, len(groups)), _TRIED).astype(int))
    for cut in cuts:
        gates = gates.copy()
        for stage, block in groups[at:cut]:
            half = 1 << stage
            gates[stage, block * half : (block + 1) * half] = False
        at = int(cut)
        yield gates


def _groups(
    trained: npt.NDArray[np.float32], bins: npt.NDArray[np.int64]
) -> list[tuple[int, int]]:
    """(stage, block) of all blocks, the lowest gates first, and of equal ones the last
    stages: what hangs on them is most.
    """
    counts = needed(np.ones(trained.shape, np.bool_), bins)
    found: list[tuple[float, int, int]] = []
    for stage, (own, count) in enumerate(zip(trained, counts, strict=True)):
        half = 1 << stage
        gates, counted = own.reshape(-1, half), count.reshape(-1, half)
        means = np.sum(gates * counted, axis=1) / np.maximum(1, counted.sum(axis=1))
        found += [(float(mean), -stage, block) for block, mean in enumerate(means)]
    return [(-stage, block) for _, stage, block in sorted(found)]


def best_within(tried: list[Tried], error: float) -> Tried:
    """The cheapest that keeps within an error; the exact one where no other does."""
    allowed = [one for one in tried[1:] if one.error <= error]
    return min([tried[0], *allowed], key=lambda one: (one.program.cost, one.error))


def front(tried: Sequence[Tried]) -> list[Tried]:
    """Those that no cheaper one is as exact as, the dearest first."""
    found: list[Tried] = []
    for one in sorted(tried, key=lambda one: (one.program.cost, one.error)):
        if not found or one.error < found[-1].error:
            found.append(one)
    return found[::-1]


def _tested(
    gates: Gates, examples: Examples, band: Band, k: int, fit: bool = True
) -> Tried:
    bins = np.arange(band.first, band.stop)
    program = compacted(gates, bins)
    if fit and len(program.phases) <= MOST_FITTED:
        program = fitted(program, examples.learned[:_SEGMENTS], band)
    power = power_of(program, examples, band)
    right = examples.right[:, band.bins]
    error = spectrum_error(power, right)
    return Tried(gates, program, active(gates, bins), error, recall(power, right, k))


def fitted(program: Compact, segments: Any, band: Band) -> Compact:
    """The weights that come nearest to the exact bins of windowed segments (S, n)."""
    right = np.fft.rfft(segments)[:, band.bins]
    alone = [
        spectra(_only(program, p, len(band)), band, segments)
        for p in range(len(program.phases))
    ]
    values = np.stack(alone, axis=-1).transpose(1, 0, 2).copy()  # (bins, S, phases)
    turned = values.conj().transpose(0, 2, 1)
    gram = turned @ values
    with_right = turned @ right.T[..., None]
    diagonal = np.einsum("kpp->kp", gram)
    diagonal += _RIDGE * diagonal.real.mean(axis=1, keepdims=True) + 1e-300
    solved = np.linalg.solve(gram, with_right)
    got = np.square(np.abs(values @ solved)).mean(axis=(1, 2))
    wanted = np.square(np.abs(right)).mean(axis=0)
    # Least squares give up the part that they cannot tell: it is given back.
    lost = np.sqrt(wanted / np.maximum(got, 1e-300))[:, None]
    weights: Complex = np.asarray(solved[..., 0] * lost, np.complex128)
    return replace(program, weights=weights)


def _only(program: Compact, p: int, bins: int) -> Compact:
    ones = np.ones((bins, 1), np.complex128)
    return replace(program, phases=(program.phases[p],), weights=ones)


def worst_of(program: Compact, examples: Examples, band: Band) -> float:
    """The largest error of as many segments as are compared while it runs."""
    spec, found = examples.spec, 0.0
    length = spec.nperseg + (SEGMENTS - 1) * spec.hop
    few = replace(spec, n_segments=SEGMENTS)
    for at in range(0, examples.rows.shape[1] - length + 1, length):
        rows = examples.rows[:, at : at + length]
        right = welch_power(rows, few)[:, band.bins]
        power = power_of(program, replace(examples, spec=few, rows=rows), band)
        pairs = zip(power, right, strict=True)
        found = max(found, *(spectrum_error(a[None], b[None]) for a, b in pairs))
    return found


def power_of(program: Compact, examples: Examples, band: Band) -> Any:
    """Average power of the band of the rows that are tested on (B, bins)."""
    spec = examples.spec
    count = spec.segments_of(examples.rows.shape[1])
    cut = frames(examples.rows, spec.nperseg, spec.hop, count)
    if spec.detrend == "constant":
        cut = cut - cut.mean(axis=-1, keepdims=True)
    found = spectra(program, band, cut * spec.window_array)
    return np.square(np.abs(found)).mean(axis=1) * tables(spec).weights[band.bins]


def recall(found: Any, right: Any, k: int) -> float:
    """Part of the true peaks, the k highest local maxima of each row, that are found at
    the same bin among as many.
    """
    hits = total = 0
    for got, true in zip(found, right, strict=True):
        wanted = _peaks(true, k)
        hits += len(wanted & _peaks(got, len(wanted)))
        total += len(wanted)
    return hits / total if total else 1.0


def _peaks(power: Any, k: int) -> set[int]:
    inner = power[1:-1]
    at = np.flatnonzero((inner > power[:-2]) & (inner >= power[2:])) + 1
    return set(at[np.argsort(-power[at], kind="stable")][:k].tolist())
