"""Slepian's tapers (DPSS): the sequences with most of their energy in a band.

Computed in a space of polynomials: tapers are smooth, so few Chebyshev polynomials hold
them to the last digit, however long they are. NumPy has no eigenvectors of tridiagonal
matrices, and a Python loop over a recording would take seconds.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import UsageError

Floats = NDArray[np.float64]

MOST_VALUES: Final = 1 << 28
"""Of polynomials that are held while tapers are made: 2 GiB."""
_TAIL = 1e-15


class Tapers(NamedTuple):
    """values (K, n); ratios (K,), the share of each taper's energy in the band."""

    values: Floats
    ratios: Floats


def dpss(n: int, nw: float, k: int, *, periodic: bool = True) -> Tapers:
    """The k first tapers of n samples and half bandwidth nw / n, strongest first.

    periodic  as scipy's sym=False: those of n + 1 samples without the last
    Shapes    values (k, n), each of energy 1 (before its last sample is left out)
    Numerics  float64; signs as scipy.signal.windows.dpss: even ones have a positive
              sum, odd ones begin positive
    Errors    UsageError for nw outside 0 … n / 2, k outside 1 … n, and for so wide a
              band over so many samples that the polynomials pass MOST_VALUES
    Source    Slepian 1978, the commuting difference operator; Boyd 2004 for its
              solution by polynomials
    """
    doing, size = "dpss", n + 1 if periodic and n > 1 else n
    if n < 1 or not 1 <= k <= n:
        raise UsageError(doing, f"{k} tapers of {n} samples", "1 to as many as samples")
    if not 0 < nw < size / 2:
        raise UsageError(
            doing, f"nw is {nw:g}", f"it lies between 0 and half the length, {n / 2:g}"
        )
    made = _made(size, float(nw), k)
    return Tapers(made.values[:, :n], made.ratios)


@lru_cache(maxsize=8)
def _made(n: int, nw: float, k: int) -> Tapers:
    if n == 1:
        return _frozen(np.ones((1, 1)), np.ones(1))
    degree = int(2.6 * nw) + k + 32
    while True:
        degree = n if 2 * degree > n else degree
        if n * degree > MOST_VALUES:
            raise UsageError(
                "dpss",
                f"tapers of {n} samples and nw {nw:g} need {degree} polynomials",
                f"{n} · {degree} values pass {MOST_VALUES}",
                "use a narrower band, or cut the signal into epochs",
            )
        values, tail = _in_polynomials(n, nw, k, degree)
        if tail <= _TAIL or degree == n:
            break
        degree *= 2
    return _frozen(values, _ratios(values, nw))


def _frozen(values: Floats, ratios: Floats) -> Tapers:
    values.setflags(write=False)
    ratios.setflags(write=False)
    return Tapers(values, ratios)


def _in_polynomials(n: int, nw: float, k: int, degree: int) -> tuple[Floats, float]:
    """Tapers (k, n) in so many polynomials, and how much is in the last of these."""
    tapers, values, tail = [], [], 0.0
    for odd in (0, 1):
        count = (degree + 1 - odd) // 2
        wanted = min(count, (k + 1 - odd) // 2)
        if not wanted:
            continue
        basis = _basis(n, count, odd)
        found, weights = np.linalg.eigh(_operator(n, nw, basis))
        order = np.argsort(found)[::-1][:wanted]
        tapers.append((basis @ weights[:, order]).T)
        values.append(found[order])
        if count > 2 and degree < n:
            tail = max(tail, float(np.abs(weights[-2:, order]).max()))
    every = np.concatenate(tapers)
    order = np.argsort(np.concatenate(values))[::-1][:k]
    parity = np.concatenate([np.full(len(t), odd) for odd, t in enumerate(tapers)])
    chosen = np.ascontiguousarray(every[order])
    for one, odd in zip(chosen, parity[order], strict=True):
        first = one[np.argmax(one * one > max(1e-7, 1.0 / n))]
        if (first if odd else one.sum()) < 0:
            np.negative(one, out=one)
    return chosen, tail


def _basis(n: int, count: int, odd: int) -> Floats:
    """(n, count) an orthonormal basis of even or odd sequences.

    Polynomials, or all sequences there are where count is half of n. Made on the upper
    half and mirrored, so that rounding cannot mix even and odd.
    """
    at = np.arange(n // 2 if not odd or n % 2 == 0 else n // 2 + 1, n)
    twice = np.full(len(at), np.sqrt(2.0))
    if n % 2 and not odd:
        twice[0] = 1.0  # the middle is its own mirror image
    if count >= len(at):
        upper = np.diag(1.0 / twice)
    else:
        x = (2.0 * at - (n - 1)) / (n - 1)
        orders = 2 * np.arange(count) + odd
        columns = np.cos(np.arccos(x)[:, None] * orders)
        upper = np.linalg.qr(columns * twice[:, None]).Q / twice[:, None]
    basis = np.zeros((n, upper.shape[1]))
    basis[at] = upper
    basis[n - 1 - at] = -upper if odd else upper
    return basis


def _operator(n: int, nw: float, basis: Floats) -> Floats:
    """Slepian's operator in the basis, less a constant that changes no eigenvector.

    As a form: -Σ i (n - i) / 2 · Δu Δv - (1 - cos 2πW) Σ x² u v, which keeps the digits
    that its tridiagonal matrix loses, with entries of n² / 4.
    """
    at = np.arange(1, n, dtype=np.float64)
    steps = np.diff(basis, axis=0)
    steps *= np.sqrt(at * (n - at) / 2.0)[:, None]
    form = -(steps.T @ steps)
    x = np.arange(n) - (n - 1) / 2.0
    swing = 2.0 * math.sin(math.pi * nw / n) ** 2
    held = basis * (x * math.sqrt(swing))[:, None]
    form -= held.T @ held
    found: Floats = form
    return found


def _ratios(tapers: Floats, nw: float) -> Floats:
    """The share of each taper's energy within ±nw / n."""
    n = tapers.shape[1]
    w = nw / n
    size = 1 << (2 * n - 1).bit_length()
    lags = np.arange(n)
    kernel = 4.0 * w * np.sinc(2.0 * w * lags)
    kernel[0] = 2.0 * w
    ratios = np.empty(len(tapers))
    for at, one in enumerate(tapers):
        spectrum = np.fft.rfft(one, size)
        power = spectrum.real**2 + spectrum.imag**2
        ratios[at] = np.fft.irfft(power, size)[:n] @ kernel
    return ratios
