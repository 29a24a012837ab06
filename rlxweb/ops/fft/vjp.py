"""Vector-Jacobian products of Fourier transforms: each is the conjugate transpose,
again a transform.

In real and imaginary parts the transpose of a complex linear map is its conjugate
transpose. That of a transform is the inverse without its division by N; the half
spectrum of real rows stands for two of each bin but its ends.
"""

from __future__ import annotations

import numpy as np

from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.tensor import Tensor

# Norms by what they multiply by: of transforms, and of inverse ones.
_SCALE_BY_NORM = {"backward": "1", "none": "1", "ortho": "root", "forward": "1/n"}
_INVERSE_SCALE_BY_NORM = {
    "backward": "1/n",
    "none": "1",
    "ortho": "root",
    "forward": "1",
}
_NORM_BY_SCALE = {"1": "none", "root": "ortho", "1/n": "forward"}
_INVERSE_NORM_BY_SCALE = {"1": "none", "root": "ortho", "1/n": "backward"}


def fft_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `fft`: the opposite direction with the same scale."""
    inverse, norm = ctx.attrs["inverse"], ctx.attrs["norm"]
    if inverse:
        norm = _NORM_BY_SCALE[_INVERSE_SCALE_BY_NORM[norm]]
    else:
        norm = _INVERSE_NORM_BY_SCALE[_SCALE_BY_NORM[norm]]
    return [ctx.g.apply("fft", ctx.grad, inverse=not inverse, norm=norm)]


def rfft_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `rfft`: an inverse transform in which the inner bins count half."""
    n = ctx.x.shape[-1]
    norm = _INVERSE_NORM_BY_SCALE[_SCALE_BY_NORM[ctx.attrs["norm"]]]
    weights = _bin_weights(ctx.grad, n, 0.5)
    return [ctx.g.apply("irfft", ctx.grad * weights, n=n, norm=norm)]


def irfft_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `irfft`: a transform whose inner bins count twice."""
    n = ctx.attrs["n"]
    norm = _NORM_BY_SCALE[_INVERSE_SCALE_BY_NORM[ctx.attrs["norm"]]]
    spectrum = ctx.g.apply("rfft", ctx.grad, norm=norm)
    return [spectrum * _bin_weights(spectrum, n, 2.0)]


def _bin_weights(block: Tensor, n: int, inner: float) -> Tensor:
    """Return the weights of half spectra of rows of n: 1 for the real ends, 0 for the
    imaginary ends, and `inner` between them.
    """
    ends = [0, n // 2] if n % 2 == 0 else [0]
    re, im = np.full((2, n // 2 + 1), inner)
    re[ends], im[ends] = 1.0, 0.0
    return block.graph.constant(np.concatenate([re, im]), block.dtype)
