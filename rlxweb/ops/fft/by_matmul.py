"""Fourier transforms composed of matrix products, for devices too small for FFT
kernels.

A row is cut Cooley-Tukey fashion into factors of at most 16 (or one prime), each done
by a product with a small DFT matrix; between them come twiddle factors and transposes.
Nothing here needs a row to fit a binding or workgroup memory. Every function takes and
gives block tensors [rows, 2N] = [re | im]; ranks and norms are the caller's business.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.codegen import fft_arithmetic
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor

MAX_DFT_MATRIX = 16
"""Largest composite DFT matrix: 2 * 16 squared floats are one binding of 4 KiB."""


def join_halves(g: Graph, re: Tensor, im: Tensor) -> Tensor:
    """Join real and imaginary halves into a block tensor."""
    return g.concat([re, im], axis=re.rank - 1)


def zeros(g: Graph, shape: tuple[int, ...], dtype: DType) -> Tensor:
    """Return a tensor of zeros that is stored as one number."""
    scalar = g.reshape(g.constant(0.0, dtype), (1,) * len(shape))
    return g.expand(scalar, shape)


def multiply_complex(g: Graph, x: Tensor, factor: npt.NDArray[np.complex128]) -> Tensor:
    """Multiply a block tensor by complex constants that broadcast against its
    halves.
    """
    re, im = g.split_block(x)
    c, s = (g.constant(part, x.dtype) for part in (factor.real, factor.imag))
    return join_halves(g, re * c - im * s, re * s + im * c)


def swap_halves(g: Graph, x: Tensor) -> Tensor:
    """Exchange the halves of a block tensor."""
    re, im = g.split_block(x)
    return join_halves(g, im, re)


def dft_matrix(n: int) -> npt.NDArray[np.float64]:
    """Return the [2n, 2n] matrix M with block row @ M = DFT of the row."""
    k = np.arange(n)
    w = fft_arithmetic.complex_roots_of_unity(n)[np.outer(k, k) % n]
    return np.block([[w.real, w.imag], [-w.imag, w.real]])


def forward_dft(g: Graph, x: Tensor) -> Tensor:
    """Compute the unscaled DFT of block rows [rows, 2N] for any N."""
    n = x.shape[-1] // 2
    if n == 1:
        return x
    if not fft_arithmetic.is_smooth(n):
        return _bluestein_dft(g, x, n)
    return _mixed_radix_dft(g, x, fft_arithmetic.radices(n, MAX_DFT_MATRIX))


def inverse_dft(g: Graph, x: Tensor) -> Tensor:
    """Compute the unscaled inverse DFT of block rows."""
    return swap_halves(g, forward_dft(g, swap_halves(g, x)))


def _mixed_radix_dft(g: Graph, x: Tensor, factors: tuple[int, ...]) -> Tensor:
    """Compute a DFT by mixed radix, one factor after the other."""
    # With n = n2 * i + j and k = p + n1 * q: columns first (i → p), then twiddles
    # w^(j p), then rows (j → q), and the answer is read transposed.
    rows, n = x.shape[0], x.shape[1] // 2
    n1 = factors[0]
    n2 = n // n1
    if n2 == 1:
        return g.matmul(x, g.constant(dft_matrix(n), x.dtype))
    x = g.transpose(g.reshape(x, (rows, 2, n1, n2)), (0, 3, 1, 2))
    x = g.reshape(x, (rows * n2, 2 * n1))
    x = g.matmul(x, g.constant(dft_matrix(n1), x.dtype))
    x = g.reshape(x, (rows, n2, 2 * n1))
    exponents = np.outer(np.arange(n2), np.arange(n1)) % n
    x = multiply_complex(g, x, fft_arithmetic.complex_roots_of_unity(n)[exponents])
    x = g.transpose(g.reshape(x, (rows, n2, 2, n1)), (0, 3, 2, 1))
    x = _mixed_radix_dft(g, g.reshape(x, (rows * n1, 2 * n2)), factors[1:])
    x = g.transpose(g.reshape(x, (rows, n1, 2, n2)), (0, 2, 3, 1))
    return g.reshape(x, (rows, 2 * n))


def _bluestein_dft(g: Graph, x: Tensor, n: int) -> Tensor:
    """Compute a DFT of any length by Bluestein's chirp transform."""
    size = fft_arithmetic.next_fast_length(2 * n - 1)
    chirp = fft_arithmetic.chirp(n)
    re, im = g.split_block(multiply_complex(g, x, chirp))
    pad = zeros(g, (x.shape[0], size - n), x.dtype)
    x = g.concat([re, pad, im, pad], axis=1)
    x = multiply_complex(g, forward_dft(g, x), fft_arithmetic.chirp_filter(n, size))
    re, im = g.split_block(inverse_dft(g, x))
    x = join_halves(g, g.narrow(re, 1, 0, n), g.narrow(im, 1, 0, n))
    return multiply_complex(g, x, chirp)


def _flatten_rows(g: Graph, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Flatten leading axes into rows; return the rows and the leading shape."""
    lead = x.shape[:-1]
    return g.reshape(x, (int(np.prod(lead)), x.shape[-1])), lead


def _scale(g: Graph, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else g.mul(x, factor)


def build_fft(g: Graph, attrs: Any, x: Tensor) -> Tensor:
    """Build the op `fft` from matrix products."""
    n, shape = x.shape[-1] // 2, x.shape
    rows, _ = _flatten_rows(g, x)
    rows = inverse_dft(g, rows) if attrs["inverse"] else forward_dft(g, rows)
    factor = fft_arithmetic.norm_scale(n, attrs["inverse"], attrs["norm"])
    return g.reshape(_scale(g, rows, factor), shape)


def build_rfft(g: Graph, attrs: Any, x: Tensor) -> Tensor:
    """Build the op `rfft` by a transform with zero imaginary parts."""
    n = x.shape[-1]
    rows, lead = _flatten_rows(g, x)
    bins = n // 2 + 1
    full = forward_dft(g, join_halves(g, rows, zeros(g, rows.shape, x.dtype)))
    re, im = g.split_block(
        _scale(g, full, fft_arithmetic.norm_scale(n, False, attrs["norm"]))
    )
    half = join_halves(g, g.narrow(re, 1, 0, bins), g.narrow(im, 1, 0, bins))
    return g.reshape(half, (*lead, 2 * bins))


def build_irfft(g: Graph, attrs: Any, x: Tensor) -> Tensor:
    """Build the op `irfft`: mirror the half spectrum, then transform it back."""
    n = attrs["n"]
    rows, lead = _flatten_rows(g, x)
    re, im = g.split_block(rows)
    zero, inner = zeros(g, (rows.shape[0], 1), x.dtype), (n - 1) // 2
    ends = (zero,) if n % 2 == 0 else ()
    im = g.concat([zero, g.narrow(im, 1, 1, inner), *ends], axis=1)
    full = inverse_dft(
        g, join_halves(g, _mirror_half(g, re, n, 1), _mirror_half(g, im, n, -1))
    )
    out = g.narrow(full, 1, 0, n)
    return g.reshape(
        _scale(g, out, fft_arithmetic.norm_scale(n, True, attrs["norm"])), (*lead, n)
    )


def _mirror_half(g: Graph, half: Tensor, n: int, sign: int) -> Tensor:
    """Mirror a half spectrum to full length; the mirrored part is multiplied by
    `sign`.
    """
    inner = (n - 1) // 2
    if inner == 0:
        return half
    index = g.constant(np.arange(inner, 0, -1), DType.I32)
    mirrored = g.gather(half, index, axis=1)
    return g.concat([half, mirrored if sign > 0 else -mirrored], axis=1)
