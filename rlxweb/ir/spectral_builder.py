"""Builder methods for transforms and spectra.

Complex values are real tensors in block layout: the last axis holds N real parts, then
N imaginary parts. Norm names are NumPy's (`backward` divides the inverse by N); `none`
scales nothing, which is what RLX calls Backward. Nothing is computed here.
"""

from __future__ import annotations

import numpy as np

from rlxweb.errors import ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import as_integer
from rlxweb.ir.tensor import Tensor


def _numpys(norm: str | None) -> str:
    """NumPy's default norm may be given as None."""
    return "backward" if norm is None else norm


def _bins(n: int, doing: str) -> int:
    try:
        if (n := as_integer(n, "n")) >= 1:
            return n
    except ShapeError as error:
        error.doing = doing
        raise
    raise ShapeError(doing, f"n is {n}", "n >= 1")


class SpectralBuilder(OpBuilder):
    """Spectral builder methods over `apply`; mixed into Graph."""

    def fft(
        self, x: Tensor, inverse: bool = False, norm: str | None = "backward"
    ) -> Tensor:
        """Complex FFT of the last axis, block layout [..., 2N] → [..., 2N], any N.

        norm   NumPy's names, None as there for "backward": the inverse divides by N,
               so that `g.fft(g.fft(x), True)` is x. "none" divides nowhere, as RLX's
               `fft`, where that is N · x
        """
        return self.apply("fft", x, inverse=inverse, norm=_numpys(norm))

    def ifft(self, x: Tensor, norm: str | None = "backward") -> Tensor:
        """`fft` with inverse=True, as numpy.fft.ifft."""
        return self.fft(x, True, norm)

    def rfft_block(self, x: Tensor, norm: str | None = "backward") -> Tensor:
        """Spectrum of real rows [..., n] as one block [..., 2F], F = n // 2 + 1."""
        return self.apply("rfft", x, norm=_numpys(norm))

    def rfft(self, x: Tensor, norm: str | None = "backward") -> tuple[Tensor, Tensor]:
        """Spectrum of real rows [..., n] as (re, im), each [..., n // 2 + 1]."""
        return self.split_block(self.rfft_block(x, norm))

    def split_block(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The real and the imaginary half of a block tensor."""
        half, axis = x.shape[-1] // 2, x.rank - 1
        re = self.apply("narrow", x, axis=axis, start=0, length=half)
        return re, self.apply("narrow", x, axis=axis, start=half, length=half)

    def irfft(
        self, re: Tensor, im: Tensor, n: int, norm: str | None = "backward"
    ) -> Tensor:
        """Real rows [..., n] of a half spectrum; numpy.fft.irfft's meaning."""
        block = self.apply("concat", re, im, axis=re.rank - 1)
        return self.apply("irfft", block, n=n, norm=_numpys(norm))

    def fftfreq(self, n: int, d: float = 1.0) -> Tensor:
        """Bin frequencies [n] as a constant, as numpy.fft.fftfreq."""
        return self.constant(np.fft.fftfreq(_bins(n, "fftfreq"), d), "f32")

    def rfftfreq(self, n: int, d: float = 1.0) -> Tensor:
        """Bin frequencies [n // 2 + 1] as a constant, as numpy.fft.rfftfreq."""
        return self.constant(np.fft.rfftfreq(_bins(n, "rfftfreq"), d), "f32")

    def psd(self, re: Tensor, im: Tensor) -> Tensor:
        """(re² + im²) / F with F the length of the last axis, as RLX's psd."""
        return self.apply("psd", re, im)

    def psd_real(self, x: Tensor) -> Tensor:
        """`rfft` then `psd`: divides by n // 2 + 1, no one-sided doubling."""
        if x.dtype is DType.F16:  # whose powers one kernel does not compute
            return self.psd(*self.rfft(x))
        return self.apply("psd_real", x)

    def frame(self, x: Tensor, length: int, hop: int, count: int = 0) -> Tensor:
        """Overlapping frames [..., count, length] of the last axis, a view.

        `count` 0 takes all 1 + (T - length) // hop of them.
        """
        return self.apply("frame", x, length=length, hop=hop, count=count)

    def stft(self, x: Tensor, frame: int, hop: int) -> Tensor:
        """Short-time spectrum [frames, ..., 2F] of rows [..., T]; no window, no pad."""
        return self.apply("stft", x, length=frame, hop=hop)

    def log_mel(self, spectrum: Tensor, filters: Tensor) -> Tensor:
        """Whisper-style log-mel [..., M] of a block spectrum [..., 2N]."""
        return self.apply("log_mel", spectrum, filters)

    def log_mel_backward(
        self, spectrum: Tensor, filters: Tensor, grad: Tensor
    ) -> Tensor:
        """Gradient of `log_mel` with respect to the spectrum."""
        return self.apply("log_mel_backward", spectrum, filters, grad)

    def welch_peaks(self, spectrum: Tensor, k: int, n_segments: int) -> Tensor:
        """Packed (bin, power) pairs [B, 2k] of block spectra [B * S, 2n]."""
        return self.apply("welch_peaks", spectrum, k=k, n_segments=n_segments)
