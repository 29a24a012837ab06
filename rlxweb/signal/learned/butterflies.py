"""A fast Fourier transform as a network: butterflies with a gate each.

Cooley and Tukey's decimation in time: the samples in bit-reversed order, then log2(n)
stages. At stage s blocks of 2**s values meet in pairs, a and c, and value q of them
becomes a + g w c above and c + g (a - w c - c) below, with w = exp(-pi i q / 2**s). A
gate g of 1 is the exact butterfly, one of 0 hands both values on as they are. All ones:
the transform. Numbers only; it knows no samples.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Gates = npt.NDArray[np.bool_]
"""(stages, n / 2): of stage s that of value q of pair b is [s, b * 2**s + q]."""
Complex = npt.NDArray[np.complex128]


def stages_of(n: int) -> int:
    """log2 n. Errors  ValueError for what is no power of two from 4 on."""
    if n < 4 or n & (n - 1):
        raise ValueError(f"{n} is no power of two from 4 on")
    return n.bit_length() - 1


def bit_reversed(n: int) -> npt.NDArray[np.int64]:
    """The order in which the first stage takes n samples; n is a power of two."""
    order = np.zeros(1, np.int64)
    while len(order) < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def twiddles(stage: int) -> Complex:
    """The factor w of each value of a block."""
    half = 1 << stage
    made: Complex = np.exp(-1j * np.pi * np.arange(half) / half)
    return made


def weights_at(gates: Gates, bins: npt.NDArray[np.int64], level: int) -> Complex:
    """What each block after `level` stages weighs in each of the bins.

    Shapes   gates (stages, n / 2) → (bins, n / 2**level); of block b only value
             bin mod 2**level counts
    """
    stages = len(gates)
    made = np.ones((len(bins), 1), np.complex128)
    for stage in range(stages - 1, level - 1, -1):
        half = 1 << stage
        value = bins % half
        w = twiddles(stage)[value][:, None]
        is_above = (bins % (2 * half) < half)[:, None]
        blocks = made.shape[1]
        own = gates[stage].reshape(blocks, half)[:, value].T.astype(np.float64)
        of_a = np.where(is_above, 1.0, own)
        of_c = np.where(is_above, own * w, 1.0 - own - own * w)
        made = np.stack([made * of_a, made * of_c], axis=-1).reshape(len(bins), -1)
    return made


def needed(gates: Gates, bins: npt.NDArray[np.int64]) -> Gates:
    """The butterflies that the bins depend on, whether their gate is open or not."""
    stages, half_n = gates.shape
    made = np.zeros_like(gates)
    wanted = np.zeros(2 * half_n, np.bool_)
    wanted[bins] = True
    for stage in range(stages - 1, -1, -1):
        half = 1 << stage
        above, below = wanted.reshape(-1, 2, half).transpose(1, 0, 2)
        own = gates[stage].reshape(-1, half)
        either = above | below
        made[stage] = either.reshape(-1)
        # A closed gate hands on a above, c below.
        of_a = np.where(own, either, above)
        of_c = np.where(own, either, below)
        wanted = np.stack([of_a, of_c], axis=1).reshape(-1)
    return made


def active(gates: Gates, bins: npt.NDArray[np.int64]) -> int:
    """Open gates that the bins depend on."""
    return int((needed(gates, bins) & gates).sum())


def run(gates: Gates, samples: npt.NDArray[np.float64]) -> Complex:
    """All bins of rows (B, n) through the network, value by value as it is drawn."""
    n = samples.shape[1]
    now = samples[:, bit_reversed(n)].astype(np.complex128)
    for stage, own in enumerate(gates):
        half = 1 << stage
        pairs = now.reshape(len(now), -1, 2, half)
        a, c = pairs[:, :, 0], pairs[:, :, 1]
        g = own.reshape(-1, half)
        turned = twiddles(stage) * c
        both = [a + g * turned, c + g * (a - turned - c)]
        now = np.stack(both, axis=2).reshape(len(now), n)
    return now
