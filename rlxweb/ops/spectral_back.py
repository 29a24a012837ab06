"""Gradients of transforms: each is a transform again, the conjugate transpose.

In real and imaginary parts the transpose of a complex linear map is its conjugate
transpose. That of a transform is the inverse without its division by N; the half
spectrum of real rows stands for two of each bin but its ends.
"""

from __future__ import annotations

import numpy as np

from rlxweb.ir.derivative import Taken
from rlxweb.ir.tensor import Tensor

# Norms by what they multiply by: of transforms, and of inverse ones.
_SCALE = {"backward": "1", "none": "1", "ortho": "root", "forward": "1/n"}
_INVERSE_SCALE = {"backward": "1/n", "none": "1", "ortho": "root", "forward": "1"}
_NORM = {"1": "none", "root": "ortho", "1/n": "forward"}
_INVERSE_NORM = {"1": "none", "root": "ortho", "1/n": "backward"}


def fft_back(at: Taken) -> list[Tensor | None]:
    """Of `fft`: the other direction, scaled alike."""
    inverse, norm = at.attrs["inverse"], at.attrs["norm"]
    if inverse:
        norm = _NORM[_INVERSE_SCALE[norm]]
    else:
        norm = _INVERSE_NORM[_SCALE[norm]]
    return [at.g.apply("fft", at.grad, inverse=not inverse, norm=norm)]


def rfft_back(at: Taken) -> list[Tensor | None]:
    """Of `rfft`: an inverse in which the inner bins count half."""
    n = at.x.shape[-1]
    norm = _INVERSE_NORM[_SCALE[at.attrs["norm"]]]
    weights = _weights(at.grad, n, 0.5)
    return [at.g.apply("irfft", at.grad * weights, n=n, norm=norm)]


def irfft_back(at: Taken) -> list[Tensor | None]:
    """Of `irfft`: a transform whose inner bins count twice."""
    n = at.attrs["n"]
    norm = _NORM[_INVERSE_SCALE[at.attrs["norm"]]]
    made = at.g.apply("rfft", at.grad, norm=norm)
    return [made * _weights(made, n, 2.0)]


def _weights(block: Tensor, n: int, inner: float) -> Tensor:
    """Of half spectra of rows of n: 1 for the real ends and 0 for the imaginary ones,
    `inner` between them.
    """
    ends = [0, n // 2] if n % 2 == 0 else [0]
    re, im = np.full((2, n // 2 + 1), inner)
    re[ends], im[ends] = 1.0, 0.0
    return block.graph.constant(np.concatenate([re, im]), block.dtype)
