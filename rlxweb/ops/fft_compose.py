"""Fourier transforms out of matrix products, for devices too small for FFT kernels.

A row is cut Cooley-Tukey fashion into factors of at most 16 (or one prime), each done
by a product with a small DFT matrix; between them come twiddle factors and transposes.
Nothing here needs a row to fit a binding or workgroup memory. Every function takes and
gives block tensors [rows, 2N] = [re | im]; ranks and norms are the caller's business.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.recipes import fft_plan as plan

MATRIX = 16
"""Largest composite DFT matrix: 2 * 16 squared floats are one binding of 4 KiB."""


def joined(g: Graph, re: Tensor, im: Tensor) -> Tensor:
    """The block tensor of two halves."""
    return g.concat([re, im], axis=re.rank - 1)


def zeros(g: Graph, shape: tuple[int, ...], dtype: DType) -> Tensor:
    """A tensor of zeros that is stored as one number."""
    one = g.reshape(g.constant(0.0, dtype), (1,) * len(shape))
    return g.expand(one, shape)


def times(g: Graph, x: Tensor, factor: npt.NDArray[np.complex128]) -> Tensor:
    """Block tensor times complex constants that broadcast against its halves."""
    re, im = g.split_block(x)
    c, s = (g.constant(part, x.dtype) for part in (factor.real, factor.imag))
    return joined(g, re * c - im * s, re * s + im * c)


def swapped(g: Graph, x: Tensor) -> Tensor:
    """Block tensor with its halves exchanged."""
    re, im = g.split_block(x)
    return joined(g, im, re)


def matrix(n: int) -> npt.NDArray[np.float64]:
    """[2n, 2n] M with block row @ M = DFT of the row."""
    k = np.arange(n)
    w = plan.complex_roots(n)[np.outer(k, k) % n]
    return np.block([[w.real, w.imag], [-w.imag, w.real]])


def forward(g: Graph, x: Tensor) -> Tensor:
    """DFT of block rows [rows, 2N], any N, no scaling."""
    n = x.shape[-1] // 2
    if n == 1:
        return x
    if not plan.is_smooth(n):
        return _bluestein(g, x, n)
    return _mixed(g, x, plan.radices(n, MATRIX))


def inverse(g: Graph, x: Tensor) -> Tensor:
    """Unscaled inverse DFT of block rows."""
    return swapped(g, forward(g, swapped(g, x)))


def _mixed(g: Graph, x: Tensor, factors: tuple[int, ...]) -> Tensor:
    # With n = n2 * i + j and k = p + n1 * q: columns first (i → p), then twiddles
    # w^(j p), then rows (j → q), and the answer is read transposed.
    rows, n = x.shape[0], x.shape[1] // 2
    n1 = factors[0]
    n2 = n // n1
    if n2 == 1:
        return g.matmul(x, g.constant(matrix(n), x.dtype))
    x = g.transpose(g.reshape(x, (rows, 2, n1, n2)), (0, 3, 1, 2))
    x = g.reshape(x, (rows * n2, 2 * n1))
    x = g.matmul(x, g.constant(matrix(n1), x.dtype))
    x = g.reshape(x, (rows, n2, 2 * n1))
    turns = np.outer(np.arange(n2), np.arange(n1)) % n
    x = times(g, x, plan.complex_roots(n)[turns])
    x = g.transpose(g.reshape(x, (rows, n2, 2, n1)), (0, 3, 2, 1))
    x = _mixed(g, g.reshape(x, (rows * n1, 2 * n2)), factors[1:])
    x = g.transpose(g.reshape(x, (rows, n1, 2, n2)), (0, 2, 3, 1))
    return g.reshape(x, (rows, 2 * n))


def _bluestein(g: Graph, x: Tensor, n: int) -> Tensor:
    size = plan.good_length(2 * n - 1)
    chirp = plan.chirp(n)
    re, im = g.split_block(times(g, x, chirp))
    pad = zeros(g, (x.shape[0], size - n), x.dtype)
    x = g.concat([re, pad, im, pad], axis=1)
    x = times(g, forward(g, x), plan.chirp_filter(n, size))
    re, im = g.split_block(inverse(g, x))
    x = joined(g, g.narrow(re, 1, 0, n), g.narrow(im, 1, 0, n))
    return times(g, x, chirp)


def _flat(g: Graph, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    lead = x.shape[:-1]
    return g.reshape(x, (int(np.prod(lead)), x.shape[-1])), lead


def _scaled(g: Graph, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else g.mul(x, factor)


def build_fft(g: Graph, attrs: Any, x: Tensor) -> Tensor:
    """The op `fft`."""
    n, shape = x.shape[-1] // 2, x.shape
    rows, _ = _flat(g, x)
    rows = inverse(g, rows) if attrs["inverse"] else forward(g, rows)
    factor = plan.norm_scale(n, attrs["inverse"], attrs["norm"])
    return g.reshape(_scaled(g, rows, factor), shape)


def build_rfft(g: Graph, attrs: Any, x: Tensor) -> Tensor:
    """The op `rfft`, by a transform with zero imaginary parts."""
    n = x.shape[-1]
    rows, lead = _flat(g, x)
    bins = n // 2 + 1
    full = forward(g, joined(g, rows, zeros(g, rows.shape, x.dtype)))
    re, im = g.split_block(_scaled(g, full, plan.norm_scale(n, False, attrs["norm"])))
    half = joined(g, g.narrow(re, 1, 0, bins), g.narrow(im, 1, 0, bins))
    return g.reshape(half, (*lead, 2 * bins))


def build_irfft(g: Graph, attrs: Any, x: Tensor) -> Tensor:
    """The op `irfft`: the half spectrum is mirrored, then transformed back."""
    n = attrs["n"]
    rows, lead = _flat(g, x)
    re, im = g.split_block(rows)
    zero, inner = zeros(g, (rows.shape[0], 1), x.dtype), (n - 1) // 2
    ends = (zero,) if n % 2 == 0 else ()
    im = g.concat([zero, g.narrow(im, 1, 1, inner), *ends], axis=1)
    full = inverse(g, joined(g, _mirrored(g, re, n, 1), _mirrored(g, im, n, -1)))
    out = g.narrow(full, 1, 0, n)
    return g.reshape(
        _scaled(g, out, plan.norm_scale(n, True, attrs["norm"])), (*lead, n)
    )


def _mirrored(g: Graph, half: Tensor, n: int, sign: int) -> Tensor:
    inner = (n - 1) // 2
    if inner == 0:
        return half
    index = g.constant(np.arange(inner, 0, -1), DType.I32)
    back = g.gather(half, index, axis=1)
    return g.concat([half, back if sign > 0 else -back], axis=1)
