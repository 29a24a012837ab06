"""Graph methods for transforms and spectra.

Complex values are real tensors in block layout: the last axis holds N real parts, then
N imaginary parts. Norm names are NumPy's (`backward` divides the inverse by N); `none`
scales nothing, which is what RLX calls Backward. Nothing is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlxweb.core.errors import ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import as_integer
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


def _numpy_norm(norm: str | None) -> str:
    """Return the norm's name; None is NumPy's default, "backward"."""
    return "backward" if norm is None else norm


def _check_length(n: int, context: str) -> int:
    """Return n as an integer of 1 or more. Errors  ShapeError."""
    try:
        if (n := as_integer(n, "n")) >= 1:
            return n
    except ShapeError as error:
        error.doing = context
        raise
    raise ShapeError(context, f"n is {n}", "n must be >= 1")


@graph_method
def fft(
    g: Graph, x: Tensor, inverse: bool = False, norm: str | None = "backward"
) -> Tensor:
    """Return the complex FFT of the last axis, block layout [..., 2N] → [..., 2N],
    any N.

    norm   NumPy's names, None as there for "backward": the inverse divides by N,
           so that `g.fft(g.fft(x), True)` is x. "none" divides nowhere, as RLX's
           `fft`, where that is N · x
    """
    return g.apply("fft", x, inverse=inverse, norm=_numpy_norm(norm))


@graph_method
def ifft(g: Graph, x: Tensor, norm: str | None = "backward") -> Tensor:
    """Return the inverse `fft`, as numpy.fft.ifft."""
    return g.fft(x, True, norm)


@graph_method
def rfft_block(g: Graph, x: Tensor, norm: str | None = "backward") -> Tensor:
    """Return the spectrum of real rows [..., n] as one block [..., 2F], F = n // 2
    + 1.
    """
    return g.apply("rfft", x, norm=_numpy_norm(norm))


@graph_method
def rfft(g: Graph, x: Tensor, norm: str | None = "backward") -> tuple[Tensor, Tensor]:
    """Return the spectrum of real rows [..., n] as (re, im), each [..., n // 2 + 1]."""
    return g.split_block(g.rfft_block(x, norm))


@graph_method
def split_block(g: Graph, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the real and the imaginary half of a block tensor."""
    half, axis = x.shape[-1] // 2, x.rank - 1
    re = g.apply("narrow", x, axis=axis, start=0, length=half)
    return re, g.apply("narrow", x, axis=axis, start=half, length=half)


@graph_method
def irfft(
    g: Graph, re: Tensor, im: Tensor, n: int, norm: str | None = "backward"
) -> Tensor:
    """Return the real rows [..., n] of a half spectrum, as numpy.fft.irfft."""
    block = g.apply("concat", re, im, axis=re.rank - 1)
    return g.apply("irfft", block, n=n, norm=_numpy_norm(norm))


@graph_method
def fftfreq(g: Graph, n: int, d: float = 1.0) -> Tensor:
    """Return the bin frequencies [n] as a constant, as numpy.fft.fftfreq."""
    return g.constant(np.fft.fftfreq(_check_length(n, "fftfreq"), d), "f32")


@graph_method
def rfftfreq(g: Graph, n: int, d: float = 1.0) -> Tensor:
    """Return the bin frequencies [n // 2 + 1] as a constant, as numpy.fft.rfftfreq."""
    return g.constant(np.fft.rfftfreq(_check_length(n, "rfftfreq"), d), "f32")


@graph_method
def psd(g: Graph, re: Tensor, im: Tensor) -> Tensor:
    """Return (re² + im²) / F with F the length of the last axis, as RLX's psd."""
    return g.apply("psd", re, im)


@graph_method
def psd_real(g: Graph, x: Tensor) -> Tensor:
    """Return `psd` of `rfft`: divides by n // 2 + 1, no one-sided doubling."""
    if x.dtype is DType.F16:  # whose powers one kernel does not compute
        return g.psd(*g.rfft(x))
    return g.apply("psd_real", x)


@graph_method
def frame(g: Graph, x: Tensor, length: int, hop: int, count: int = 0) -> Tensor:
    """Return overlapping frames [..., count, length] of the last axis, a view.

    `count` 0 takes all 1 + (T - length) // hop of them.
    """
    return g.apply("frame", x, length=length, hop=hop, count=count)


@graph_method
def stft(g: Graph, x: Tensor, frame: int, hop: int) -> Tensor:
    """Return the short-time spectrum [frames, ..., 2F] of rows [..., T]; no window,
    no padding.
    """
    return g.apply("stft", x, length=frame, hop=hop)


@graph_method
def log_mel(g: Graph, spectrum: Tensor, filters: Tensor) -> Tensor:
    """Return the Whisper-style log-mel spectrum [..., M] of a block spectrum [...,
    2N].
    """
    return g.apply("log_mel", spectrum, filters)


@graph_method
def log_mel_backward(
    g: Graph, spectrum: Tensor, filters: Tensor, grad: Tensor
) -> Tensor:
    """Return the gradient of `log_mel` with respect to the spectrum."""
    return g.apply("log_mel_backward", spectrum, filters, grad)


@graph_method
def welch_peaks(g: Graph, spectrum: Tensor, k: int, n_segments: int) -> Tensor:
    """Return packed (bin, power) pairs [B, 2k] of block spectra [B * S, 2n]."""
    return g.apply("welch_peaks", spectrum, k=k, n_segments=n_segments)
