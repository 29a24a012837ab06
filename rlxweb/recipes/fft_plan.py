"""The numbers a fast Fourier transform is made of: radices, roots of unity, chirps.

Pure arithmetic, computed in float64 on the host because shader trigonometry is only
good to 2^-11. Used by the declared transforms (`rlxweb.ops`) and by the faster variants
beside it. Knows no shader and no device.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_PRIME = 61
"""The largest prime factor that a direct butterfly beats Bluestein's detour for."""

F64 = npt.NDArray[np.float64]


@lru_cache(maxsize=1024)
def prime_factors(n: int) -> tuple[int, ...]:
    """Ascending prime factors of n >= 1; () for 1."""
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1 if p == 2 else 2
    return (*found, n) if n > 1 else tuple(found)


def is_smooth(n: int) -> bool:
    """True when butterflies alone can transform rows of length n."""
    return max(prime_factors(n), default=1) <= MAX_PRIME


@lru_cache(maxsize=1024)
def radices(n: int, most: int) -> tuple[int, ...]:
    """Factors of n in the fewest, evenest passes, descending; each at most `most`.

    A prime above `most` is a pass of its own. (1,) for n = 1.
    """
    primes = prime_factors(n)[::-1]
    for count in range(1, len(primes) + 1):
        bins = [1] * count
        for p in primes:
            at = min(range(count), key=lambda i: bins[i])
            if bins[at] * p > most and bins[at] > 1:
                break
            bins[at] *= p
        else:
            return tuple(sorted(bins, reverse=True))
    return (1,)


@lru_cache(maxsize=1024)
def good_length(least: int) -> int:
    """The smallest 2^a 3^b 5^c that is >= `least`."""
    best = 1 << max(0, least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            size = three
            while size < least:
                size *= 2
            best = min(best, size)
            three *= 3
        five *= 5
    return best


def ring_length(least: int) -> int:
    """The length of Bluestein's convolution: good, and of whole fours of fours."""
    return 16 * good_length(-(-least // 16)) if least > 64 else good_length(least)


def bluestein_flops(n: int) -> float:
    """Of one complex row of length n by Bluestein: 5 N log2 N of two longer ones."""
    size = ring_length(2 * n - 1)
    return 10.0 * size * math.log2(max(2, size))


def roots(n: int, count: int | None = None) -> F64:
    """exp(-2πi t/n) for t below `count` (default n) as [cos …, sin …]."""
    turn = np.arange(n if count is None else count) * (-2.0 * math.pi / n)
    return np.concatenate([np.cos(turn), np.sin(turn)])


def complex_roots(n: int) -> npt.NDArray[np.complex128]:
    """exp(-2πi t/n) for t below n."""
    half = roots(n).reshape(2, -1)
    return np.asarray(half[0] + 1j * half[1])


def chirp(n: int) -> npt.NDArray[np.complex128]:
    """Bluestein's exp(-πi t²/n), with t² reduced modulo 2n in whole numbers."""
    t = np.arange(n, dtype=np.int64)
    return np.asarray(np.exp((t * t % (2 * n)) * (-1j * math.pi / n)))


def chirp_filter(n: int, padded: int) -> npt.NDArray[np.complex128]:
    """Transform of the wrapped conjugate chirp, divided by `padded`.

    Multiplying by it between a forward and an unscaled inverse transform of length
    `padded` convolves with the chirp.
    """
    ring = np.zeros(padded, np.complex128)
    ring[:n] = np.conj(chirp(n))
    ring[padded - n + 1 :] = np.conj(chirp(n)[:0:-1])
    return np.asarray(np.fft.fft(ring) / padded)


def block(values: npt.NDArray[Any]) -> F64:
    """Complex values as [re …, im …]."""
    return np.concatenate([values.real, values.imag], axis=-1)


def norm_scale(n: int, inverse: bool, norm: str) -> float:
    """What NumPy multiplies a transform of length n by; "none" scales nothing."""
    if norm == "ortho":
        return 1.0 / math.sqrt(n)
    scaled = norm == ("backward" if inverse else "forward")
    return 1.0 / n if scaled else 1.0
