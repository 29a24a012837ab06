"""Slepian tapers (DPSS): the sequences with most of their energy in a band.

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

from rlxweb.core.errors import UsageError

Floats = NDArray[np.float64]

MAX_BASIS_VALUES: Final = 1 << 28
"""Largest number of polynomial values held while tapers are computed: 2 GiB."""
_TAIL_TOLERANCE = 1e-15


class Tapers(NamedTuple):
    """Tapers `values` (K, n), and `ratios` (K,), the share of each taper's energy in
    the band.
    """

    values: Floats
    ratios: Floats


def dpss(n: int, nw: float, k: int, *, periodic: bool = True) -> Tapers:
    """Return the k first tapers of n samples and half bandwidth nw / n, strongest
    first.

    periodic  as scipy's sym=False: those of n + 1 samples without the last
    Shapes    values (k, n), each of energy 1 (before its last sample is left out)
    Numerics  float64; signs as scipy.signal.windows.dpss: even ones have a positive
              sum, odd ones begin positive
    Errors    UsageError for nw outside 0 … n / 2, k outside 1 … n, and for so wide a
              band over so many samples that the polynomials pass MOST_VALUES
    Source    Slepian 1978, the commuting difference operator; Boyd 2004 for its
              solution by polynomials
    """
    context, size = "dpss", n + 1 if periodic and n > 1 else n
    if n < 1 or not 1 <= k <= n:
        raise UsageError(
            context,
            f"got {k} tapers of {n} samples",
            "the number of tapers must be at least 1 and at most the number of samples",
        )
    if not 0 < nw < size / 2:
        raise UsageError(
            context,
            f"nw is {nw:g}",
            f"must be above 0 and below {size / 2:g}",
        )
    tapers = _compute_tapers(size, float(nw), k)
    return Tapers(tapers.values[:, :n], tapers.ratios)


@lru_cache(maxsize=8)
def _compute_tapers(n: int, nw: float, k: int) -> Tapers:
    """Compute tapers, raising the degree of the polynomials until they represent
    them.
    """
    if n == 1:
        return _read_only_tapers(np.ones((1, 1)), np.ones(1))
    degree = int(2.6 * nw) + k + 32
    while True:
        degree = n if 2 * degree > n else degree
        if n * degree > MAX_BASIS_VALUES:
            raise UsageError(
                "dpss",
                f"tapers of {n:,} samples with nw {nw:g} need a basis of "
                f"{n * degree:,} values",
                f"the basis must have at most {MAX_BASIS_VALUES:,} values",
                "use a smaller bandwidth, or cut the signal into epochs",
            )
        values, tail = _solve_in_basis(n, nw, k, degree)
        if tail <= _TAIL_TOLERANCE or degree == n:
            break
        degree *= 2
    return _read_only_tapers(values, _energy_ratios(values, nw))


def _read_only_tapers(values: Floats, ratios: Floats) -> Tapers:
    """Return the tapers with their arrays made read-only."""
    values.setflags(write=False)
    ratios.setflags(write=False)
    return Tapers(values, ratios)


def _solve_in_basis(n: int, nw: float, k: int, degree: int) -> tuple[Floats, float]:
    """Return tapers (k, n) in `degree` polynomials, and the largest weight in the last
    of these.
    """
    tapers, values, tail = [], [], 0.0
    for odd in (0, 1):
        count = (degree + 1 - odd) // 2
        n_tapers = min(count, (k + 1 - odd) // 2)
        if not n_tapers:
            continue
        basis = _polynomial_basis(n, count, odd)
        eigenvalues, weights = np.linalg.eigh(_slepian_operator(n, nw, basis))
        order = np.argsort(eigenvalues)[::-1][:n_tapers]
        tapers.append((basis @ weights[:, order]).T)
        values.append(eigenvalues[order])
        if count > 2 and degree < n:
            tail = max(tail, float(np.abs(weights[-2:, order]).max()))
    all_tapers = np.concatenate(tapers)
    order = np.argsort(np.concatenate(values))[::-1][:k]
    parity = np.concatenate([np.full(len(t), odd) for odd, t in enumerate(tapers)])
    chosen = np.ascontiguousarray(all_tapers[order])
    for taper, odd in zip(chosen, parity[order], strict=True):
        first = taper[np.argmax(taper * taper > max(1e-7, 1.0 / n))]
        if (first if odd else taper.sum()) < 0:
            np.negative(taper, out=taper)
    return chosen, tail


def _polynomial_basis(n: int, count: int, odd: int) -> Floats:
    """Return an orthonormal basis (n, count) of even or odd sequences.

    Polynomials, or all sequences there are where count is half of n. Made on the upper
    half and mirrored, so that rounding cannot mix even and odd.
    """
    upper_indices = np.arange(n // 2 if not odd or n % 2 == 0 else n // 2 + 1, n)
    mirror_weights = np.full(len(upper_indices), np.sqrt(2.0))
    if n % 2 and not odd:
        mirror_weights[0] = 1.0  # the middle is its own mirror image
    if count >= len(upper_indices):
        upper = np.diag(1.0 / mirror_weights)
    else:
        x = (2.0 * upper_indices - (n - 1)) / (n - 1)
        orders = 2 * np.arange(count) + odd
        columns = np.cos(np.arccos(x)[:, None] * orders)
        upper = (
            np.linalg.qr(columns * mirror_weights[:, None]).Q / mirror_weights[:, None]
        )
    basis = np.zeros((n, upper.shape[1]))
    basis[upper_indices] = upper
    basis[n - 1 - upper_indices] = -upper if odd else upper
    return basis


def _slepian_operator(n: int, nw: float, basis: Floats) -> Floats:
    """Return Slepian's operator in the basis, less a constant that changes no
    eigenvector.

    As a form: -Σ i (n - i) / 2 · Δu Δv - (1 - cos 2πW) Σ x² u v, which keeps the digits
    that its tridiagonal matrix loses, with entries of n² / 4.
    """
    i = np.arange(1, n, dtype=np.float64)
    steps = np.diff(basis, axis=0)
    steps *= np.sqrt(i * (n - i) / 2.0)[:, None]
    form = -(steps.T @ steps)
    x = np.arange(n) - (n - 1) / 2.0
    swing = 2.0 * math.sin(math.pi * nw / n) ** 2
    weighted = basis * (x * math.sqrt(swing))[:, None]
    form -= weighted.T @ weighted
    operator: Floats = form
    return operator


def _energy_ratios(tapers: Floats, nw: float) -> Floats:
    """Return the share of each taper's energy within ±nw / n."""
    n = tapers.shape[1]
    w = nw / n
    size = 1 << (2 * n - 1).bit_length()
    lags = np.arange(n)
    kernel = 4.0 * w * np.sinc(2.0 * w * lags)
    kernel[0] = 2.0 * w
    ratios = np.empty(len(tapers))
    for index, taper in enumerate(tapers):
        spectrum = np.fft.rfft(taper, size)
        power = spectrum.real**2 + spectrum.imag**2
        ratios[index] = np.fft.irfft(power, size)[:n] @ kernel
    return ratios
