"""Arithmetic of fast Fourier transforms: radices, roots of unity, chirps.

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
"""Largest prime factor for which a direct butterfly is faster than Bluestein's
algorithm.
"""

F64 = npt.NDArray[np.float64]


@lru_cache(maxsize=1024)
def prime_factors(n: int) -> tuple[int, ...]:
    """Return the prime factors of n >= 1 in ascending order; () for 1."""
    factors, p = [], 2
    while p * p <= n:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1 if p == 2 else 2
    return (*factors, n) if n > 1 else tuple(factors)


def is_smooth(n: int) -> bool:
    """Return whether butterflies alone can transform rows of length n."""
    return max(prime_factors(n), default=1) <= MAX_PRIME


@lru_cache(maxsize=1024)
def radices(n: int, max_radix: int) -> tuple[int, ...]:
    """Return the radices of the fewest and evenest passes, descending, each at most
    `max_radix`.

    A prime above `max_radix` is a pass of its own. (1,) for n = 1.
    """
    primes = prime_factors(n)[::-1]
    for count in range(1, len(primes) + 1):
        factors = [1] * count
        for p in primes:
            smallest = min(range(count), key=lambda i: factors[i])
            if factors[smallest] * p > max_radix and factors[smallest] > 1:
                break
            factors[smallest] *= p
        else:
            return tuple(sorted(factors, reverse=True))
    return (1,)


@lru_cache(maxsize=1024)
def next_fast_length(minimum: int) -> int:
    """Return the smallest 2^a 3^b 5^c that is >= `minimum`."""
    best = 1 << max(0, minimum - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            size = three
            while size < minimum:
                size *= 2
            best = min(best, size)
            three *= 3
        five *= 5
    return best


def bluestein_length(minimum: int) -> int:
    """Return the length of Bluestein's convolution: a fast length, and a multiple of 16
    if above 64.
    """
    return (
        16 * next_fast_length(-(-minimum // 16))
        if minimum > 64
        else next_fast_length(minimum)
    )


def bluestein_flops(n: int) -> float:
    """Return the flops of one complex row of length n by Bluestein: 5 N log2 N for each
    of two longer transforms.
    """
    size = bluestein_length(2 * n - 1)
    return 10.0 * size * math.log2(max(2, size))


def roots_of_unity(n: int, count: int | None = None) -> F64:
    """Return exp(-2πi t/n) for t below `count` (default n) as [cos …, sin …]."""
    angles = np.arange(n if count is None else count) * (-2.0 * math.pi / n)
    return np.concatenate([np.cos(angles), np.sin(angles)])


def complex_roots_of_unity(n: int) -> npt.NDArray[np.complex128]:
    """Return exp(-2πi t/n) for t below n."""
    parts = roots_of_unity(n).reshape(2, -1)
    return np.asarray(parts[0] + 1j * parts[1])


def chirp(n: int) -> npt.NDArray[np.complex128]:
    """Return Bluestein's chirp exp(-πi t²/n), with t² reduced modulo 2n in integers."""
    t = np.arange(n, dtype=np.int64)
    return np.asarray(np.exp((t * t % (2 * n)) * (-1j * math.pi / n)))


def chirp_filter(n: int, padded_length: int) -> npt.NDArray[np.complex128]:
    """Return the transform of the wrapped conjugate chirp, divided by `padded_length`.

    Multiplying by it between a forward and an unscaled inverse transform of length
    `padded_length` convolves with the chirp.
    """
    wrapped_chirp = np.zeros(padded_length, np.complex128)
    wrapped_chirp[:n] = np.conj(chirp(n))
    wrapped_chirp[padded_length - n + 1 :] = np.conj(chirp(n)[:0:-1])
    return np.asarray(np.fft.fft(wrapped_chirp) / padded_length)


def to_block_layout(values: npt.NDArray[Any]) -> F64:
    """Return complex values as [re …, im …]."""
    return np.concatenate([values.real, values.imag], axis=-1)


def norm_scale(n: int, inverse: bool, norm: str) -> float:
    """Return the factor by which NumPy multiplies a transform of length n; 1 for
    "none".
    """
    if norm == "ortho":
        return 1.0 / math.sqrt(n)
    is_scaled = norm == ("backward" if inverse else "forward")
    return 1.0 / n if is_scaled else 1.0
