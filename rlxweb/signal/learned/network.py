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

from rlxweb.signal.band_peaks import Band

Gates = npt.NDArray[np.bool_]
"""(stages, n / 2): at stage s the gate of value q of pair b is [s, b * 2**s + q]."""
Complex = npt.NDArray[np.complex128]

# Costs in NumPy, as measured: a value of a short transform for each of its stages, a
# sample of its input, a term of a bin's sum. A stored file is refused where the program
# rebuilt from its gates differs, so a change of these needs a new format.
_STAGE_COST: Final = 1.0
_SAMPLE_COST: Final = 8.0
_TERM_COST: Final = 6.0
_SHORTEST: Final = 8
"""Shorter transforms cost their calls more than their arithmetic."""
MOST_WEIGHTS: Final = 1 << 22
"""Bins times blocks; larger programs save nothing and fill the memory."""


def stages_of(n: int) -> int:
    """log2 n. Errors  ValueError unless n is a power of two and at least 4."""
    if n < 4 or n & (n - 1):
        raise ValueError(f"{n} is no power of two from 4 on")
    return n.bit_length() - 1


def open_gates(n: int) -> Gates:
    """The gates of the exact transform of n samples."""
    return np.ones((stages_of(n), n // 2), np.bool_)


def bit_reversed(n: int) -> npt.NDArray[np.int64]:
    """The order in which the first stage takes n samples; n is a power of two."""
    order = np.zeros(1, np.int64)
    while len(order) < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def twiddles(stage: int) -> Complex:
    """The factor w of each value of a block."""
    half = 1 << stage
    return np.asarray(np.exp(-1j * np.pi * np.arange(half) / half), np.complex128)


def butterflies(gates: Sequence[Any], re: Any, im: Any) -> tuple[Any, Any]:
    """Real and imaginary parts (B, n) of rows (B, n), which are in bit-reversed order.

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


def needed(gates: Gates, band: Band) -> Gates:
    """The butterflies that the band depends on, whether their gate is open or not."""
    stages, half_n = gates.shape
    made = np.zeros_like(gates)
    wanted = np.zeros(2 * half_n, np.bool_)
    wanted[band.bins] = True
    for stage in range(stages - 1, -1, -1):
        half = 1 << stage
        above, below = wanted.reshape(-1, 2, half).transpose(1, 0, 2)
        gate = gates[stage].reshape(-1, half)
        either = above | below
        made[stage] = either.reshape(-1)
        # A closed gate passes a on above, c below.
        of_a = np.where(gate, either, above)
        of_c = np.where(gate, either, below)
        wanted = np.stack([of_a, of_c], axis=1).reshape(-1)
    return made


def active(gates: Gates, band: Band) -> int:
    """Number of open gates that the band depends on."""
    return int((needed(gates, band) & gates).sum())


def block_weights(gates: Gates, band: Band, level: int) -> Complex:
    """The weight of each block after `level` stages in each bin of the band.

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
        of_a = np.where(is_above, 1.0, gate)
        of_c = np.where(is_above, gate * w, 1.0 - gate - gate * w)
        pairs = np.stack([weights * of_a, weights * of_c], axis=-1)
        weights = pairs.reshape(len(bins), -1)
    return weights


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """X[k] = sum over p of weights[k, p] * F[p][k mod m], for the bins k of a band.

    F[p]     the transform of the m samples phases[p], phases[p] + n / m, …
    weights  (bins, phases)
    """

    n: int
    m: int
    band: Band
    phases: tuple[int, ...]
    weights: Complex

    @property
    def stride(self) -> int:
        """Distance of the samples of a short transform."""
        return self.n // self.m

    @property
    def cost(self) -> float:
        """Arithmetic of one segment; the unit is a value of one stage."""
        return _cost(self.m, len(self.phases), len(self.weights))

    @property
    def share(self) -> float:
        """Its arithmetic relative to that of the whole transform."""
        return self.cost / whole_cost(self.n)

    def sources(
        self, band: Band
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], Complex]:
        """Return what each bin of a part of its band is computed from.

        Returns   the value of a short transform that the bin needs, whether that is
                  conjugated (of real samples the second half mirrors the first), and
                  the weights (bins, phases)
        """
        value = np.arange(band.first, band.stop) % self.m
        is_mirrored = value > self.m // 2
        weights = self.weights[band.first - self.band.first :][: len(band)]
        return np.where(is_mirrored, self.m - value, value), is_mirrored, weights

    def terms(self, segments: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values (bins, S, phases) that the weights sum up to the bins.

        segments   (S, n), windowed
        """
        at, is_mirrored, _ = self.sources(self.band)
        every = []
        for phase in self.phases:
            values = np.fft.rfft(segments[:, phase :: self.stride], axis=1)[:, at]
            every.append(np.conjugate(values, out=values, where=is_mirrored).T)
        return np.stack(every, axis=-1)


def _cost(m: int, phases: int, bins: int) -> float:
    each = m * (_STAGE_COST * np.log2(max(2, m)) + _SAMPLE_COST)
    return float(phases * each + _TERM_COST * phases * bins)


def whole_cost(n: int) -> float:
    """`Program.cost` of the whole transform: one of n samples, and all its bins."""
    return _cost(n, 1, n // 2 + 1)


def program_of(gates: Gates, band: Band) -> Program:
    """The cheapest program of a network for a band.

    Errors   ValueError where it would need more than MOST_WEIGHTS.
    """
    stages = len(gates)
    n = 1 << stages
    matters = needed(gates, band)
    best = None
    for level in range(stages, -1, -1):
        m = 1 << level
        if level < stages and (n >> level) * len(band) > MOST_WEIGHTS:
            break
        weights = block_weights(gates, band, level)
        is_used = (weights != 0).any(axis=0)
        if not _are_exact(gates, matters, is_used, level):
            continue
        order = bit_reversed(n >> level)
        blocks = np.flatnonzero(is_used)
        blocks = blocks[np.argsort(order[blocks])]
        phases = tuple(int(p) for p in order[blocks])
        program = Program(n, m, band, phases, weights[:, blocks])
        if best is None or (m >= _SHORTEST and program.cost < best.cost):
            best = program
        # At lower levels there are as many blocks or more, and a term for each.
        if _TERM_COST * len(phases) * len(band) >= best.cost:
            break
    if best is None:
        rule = f"weights of {len(band):,} bins and over {MOST_WEIGHTS:,} in all"
        raise ValueError(f"its gates leave {rule}")
    return best


def _are_exact(
    gates: Gates, matters: Gates, is_used: npt.NDArray[np.bool_], level: int
) -> bool:
    """Tell whether all gates that matter are open below a level, in the blocks used."""
    closed = (matters & ~gates)[:level]
    if not closed.size:
        return True
    by_block = closed.reshape(level, len(is_used), -1).any(axis=(0, 2))
    return not (by_block & is_used).any()


def exact(n: int, band: Band) -> Program:
    """The program of the exact transform: no butterfly but what the band needs."""
    return program_of(open_gates(n), band)
