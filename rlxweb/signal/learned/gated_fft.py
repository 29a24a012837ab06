"""A fast Fourier transform as a network of gated butterflies, and its program.

Cooley and Tukey's decimation in time: the samples in bit-reversed order, then log2(n)
stages. At stage s blocks of 2**s values meet in pairs, a and c, and value q of them
becomes a + g w c above and c + g (a - w c - c) below, with w = exp(-pi i q / 2**s). A
gate g of 1 is the exact butterfly, a gate of 0 passes both values on. With all gates
open it is the exact transform.

What runs is not the network. Below some level all butterflies that matter are open:
there each block is an exact transform of every R-th sample, computed by the machine's
best FFT. Everything above is linear in the values of these short transforms, and a bin
needs one value of each: a bin is a weighted sum over the blocks. Which level is
cheapest depends on what was pruned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.signal.frequency_bins import BinRange

Gates = npt.NDArray[np.bool_]
"""Gate array (stages, n / 2): at stage s the gate of value q of pair b is [s, b * 2**s
+ q].
"""
ComplexArray = npt.NDArray[np.complex128]

# Costs in NumPy, as measured: a value of a short transform for each of its stages, a
# sample of its input, a term of a bin's sum. A stored file is refused where the program
# rebuilt from its gates differs, so a change of these needs a new format.
_STAGE_COST: Final = 1.0
_SAMPLE_COST: Final = 8.0
_TERM_COST: Final = 6.0
_MIN_TRANSFORM_SIZE: Final = 8
"""Minimum size of a short transform; in shorter ones the call overhead outweighs the
arithmetic.
"""
MAX_WEIGHTS: Final = 1 << 22
"""Maximum of bins times blocks; larger programs save no time and need too much memory.
"""


def stage_count(n: int) -> int:
    """Return log2 n. Raises ValueError unless n is a power of two and at least 4."""
    if n < 4 or n & (n - 1):
        raise ValueError(f"{n} is not a power of two that is at least 4")
    return n.bit_length() - 1


def all_open_gates(n: int) -> Gates:
    """Return the gates of the exact transform of n samples, all open."""
    return np.ones((stage_count(n), n // 2), np.bool_)


def bit_reversal_order(n: int) -> npt.NDArray[np.int64]:
    """Return the bit-reversed order in which the first stage takes n samples; n is a
    power of two.
    """
    order = np.zeros(1, np.int64)
    while len(order) < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def twiddles(stage: int) -> ComplexArray:
    """Return the twiddle factor w of each value of a block."""
    half = 1 << stage
    return np.asarray(np.exp(-1j * np.pi * np.arange(half) / half), np.complex128)


def apply_butterflies(gates: Sequence[Any], re: Any, im: Any) -> tuple[Any, Any]:
    """Apply the gated butterflies to rows (B, n) in bit-reversed order; return real and
    imaginary parts (B, n).

    gates   one array (n / 2,) for each stage, 0 to 1; all arrays are NumPy's or traced
    """
    n = re.shape[1]
    for stage, gate in enumerate(gates):
        half = 1 << stage
        w = twiddles(stage).astype(np.result_type(re.dtype, np.complex64))
        shape = (-1, n // (2 * half), 2, half)
        re, im = np.reshape(re, shape), np.reshape(im, shape)
        a_re, a_im, c_re, c_im = re[:, :, 0], im[:, :, 0], re[:, :, 1], im[:, :, 1]
        g = np.reshape(gate, (n // (2 * half), half))
        t_re, t_im = c_re * w.real - c_im * w.imag, c_re * w.imag + c_im * w.real
        re = np.stack([a_re + g * t_re, c_re + g * (a_re - t_re - c_re)], axis=2)
        im = np.stack([a_im + g * t_im, c_im + g * (a_im - t_im - c_im)], axis=2)
    return np.reshape(re, (-1, n)), np.reshape(im, (-1, n))


def needed_butterflies(gates: Gates, band: BinRange) -> Gates:
    """Return a mask of the butterflies that the band depends on, whether their gate is
    open or closed.
    """
    stages, half_n = gates.shape
    needed_gates = np.zeros_like(gates)
    is_needed = np.zeros(2 * half_n, np.bool_)
    is_needed[band.bins] = True
    for stage in range(stages - 1, -1, -1):
        half = 1 << stage
        above, below = is_needed.reshape(-1, 2, half).transpose(1, 0, 2)
        gate = gates[stage].reshape(-1, half)
        pair_needed = above | below
        needed_gates[stage] = pair_needed.reshape(-1)
        # A closed gate passes a on above, c below.
        a_needed = np.where(gate, pair_needed, above)
        c_needed = np.where(gate, pair_needed, below)
        is_needed = np.stack([a_needed, c_needed], axis=1).reshape(-1)
    return needed_gates


def count_active_gates(gates: Gates, band: BinRange) -> int:
    """Count the open gates that the band depends on."""
    return int((needed_butterflies(gates, band) & gates).sum())


def block_weights(gates: Gates, band: BinRange, level: int) -> ComplexArray:
    """Return the weight of each block after `level` stages in each bin of the band.

    Shapes   (bins, n / 2**level); of a block only value bin mod 2**level counts
    """
    bins = np.arange(band.first, band.stop)
    weights = np.ones((len(bins), 1), np.complex128)
    for stage in range(len(gates) - 1, level - 1, -1):
        half = 1 << stage
        value = bins % half
        w = twiddles(stage)[value][:, None]
        is_above = (bins % (2 * half) < half)[:, None]
        blocks = weights.shape[1]
        gate = gates[stage].reshape(blocks, half)[:, value].T.astype(np.float64)
        a_factor = np.where(is_above, 1.0, gate)
        c_factor = np.where(is_above, gate * w, 1.0 - gate - gate * w)
        pairs = np.stack([weights * a_factor, weights * c_factor], axis=-1)
        weights = pairs.reshape(len(bins), -1)
    return weights


@dataclass(frozen=True, slots=True, eq=False)
class PrunedFftProgram:
    """Program of a pruned FFT: X[k] = sum over p of weights[k, p] * F[p][k mod m], for
    the bins k of a band.

    F[p]     the transform of the m samples phases[p], phases[p] + n / m, …
    weights  (bins, phases)
    """

    n: int
    m: int
    band: BinRange
    phases: tuple[int, ...]
    weights: ComplexArray

    @property
    def stride(self) -> int:
        """Distance between consecutive samples of a short transform."""
        return self.n // self.m

    @property
    def cost(self) -> float:
        """Arithmetic cost of one segment, in units of one value of one stage."""
        return _program_cost(self.m, len(self.phases), len(self.weights))

    @property
    def relative_cost(self) -> float:
        """Arithmetic cost relative to that of the full transform."""
        return self.cost / full_fft_cost(self.n)

    def bin_sources(
        self, band: BinRange
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], ComplexArray]:
        """Return the short-transform value, conjugation flag and weights that each bin
        of a sub-band needs.

        Returns   the value of a short transform that the bin needs, whether that is
                  conjugated (of real samples the second half mirrors the first), and
                  the weights (bins, phases)
        """
        value = np.arange(band.first, band.stop) % self.m
        is_mirrored = value > self.m // 2
        weights = self.weights[band.first - self.band.first :][: len(band)]
        return np.where(is_mirrored, self.m - value, value), is_mirrored, weights

    def bin_terms(self, segments: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values (bins, S, phases) whose weighted sums are the bins.

        segments   (S, n), windowed
        """
        value_index, is_mirrored, _ = self.bin_sources(self.band)
        phase_values = []
        for phase in self.phases:
            values = np.fft.rfft(segments[:, phase :: self.stride], axis=1)[
                :, value_index
            ]
            phase_values.append(np.conjugate(values, out=values, where=is_mirrored).T)
        return np.stack(phase_values, axis=-1)


def _program_cost(m: int, n_phases: int, n_bins: int) -> float:
    """Return the arithmetic cost of n_phases transforms of m samples, summed up to
    n_bins bins.
    """
    cost_per_phase = m * (_STAGE_COST * np.log2(max(2, m)) + _SAMPLE_COST)
    return float(n_phases * cost_per_phase + _TERM_COST * n_phases * n_bins)


def full_fft_cost(n: int) -> float:
    """Return the cost of the full transform: one transform of n samples and all its
    bins, in the unit of `PrunedFftProgram.cost`.
    """
    return _program_cost(n, 1, n // 2 + 1)


def cheapest_program(gates: Gates, band: BinRange) -> PrunedFftProgram:
    """Return the cheapest program of a gated network for a band.

    Errors   ValueError where it would need more than MOST_WEIGHTS.
    """
    stages = len(gates)
    n = 1 << stages
    needed_gates = needed_butterflies(gates, band)
    best = None
    for level in range(stages, -1, -1):
        m = 1 << level
        if level < stages and (n >> level) * len(band) > MAX_WEIGHTS:
            break
        weights = block_weights(gates, band, level)
        is_used = (weights != 0).any(axis=0)
        if not _are_used_blocks_exact(gates, needed_gates, is_used, level):
            continue
        order = bit_reversal_order(n >> level)
        blocks = np.flatnonzero(is_used)
        blocks = blocks[np.argsort(order[blocks])]
        phases = tuple(int(p) for p in order[blocks])
        program = PrunedFftProgram(n, m, band, phases, weights[:, blocks])
        if best is None or (m >= _MIN_TRANSFORM_SIZE and program.cost < best.cost):
            best = program
        # At lower levels there are as many blocks or more, and a term for each.
        if _TERM_COST * len(phases) * len(band) >= best.cost:
            break
    if best is None:
        raise ValueError(
            f"the gates need more than {MAX_WEIGHTS:,} weights for {len(band):,} bins"
        )
    return best


def _are_used_blocks_exact(
    gates: Gates, needed_gates: Gates, is_used: npt.NDArray[np.bool_], level: int
) -> bool:
    """Tell whether all needed gates below a level are open in the blocks that are
    used.
    """
    closed_gates = (needed_gates & ~gates)[:level]
    if not closed_gates.size:
        return True
    by_block = closed_gates.reshape(level, len(is_used), -1).any(axis=(0, 2))
    return not (by_block & is_used).any()


def exact_program(n: int, band: BinRange) -> PrunedFftProgram:
    """Return the program of the exact transform, with only the butterflies that the
    band needs.
    """
    return cheapest_program(all_open_gates(n), band)
