"""Specification of one Welch estimate: a frozen record with every default resolved.

Owns the record and which sample dtypes are taken. It must not decide a default (that is
the request's business), compute a spectrum or know a device: the CPU path, the stream
form and the graph of a device all read this one record.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rlxweb.core.adc_samples import is_digital_dtype
from rlxweb.core.errors import DTypeError, UsageError
from rlxweb.ops.welch.parameters import samples_needed, segment_count

Detrend: TypeAlias = Literal["constant", "linear"]
Average: TypeAlias = Literal["mean", "median"]

DIGITAL_DTYPE: Final = "int24"

_CONTEXT = "welch"


@dataclass(frozen=True, slots=True, repr=False)
class WelchSpec:
    """Fully resolved estimate: scale · mean over segments of |FFT(window · x)|².

    nperseg     samples in a segment
    hop         samples from one segment's start to the next one's
    nfft        FFT length; segments are zero-padded from nperseg up to it
    n_segments  segments averaged per row; 0 means as many as the row or stream gives
    window      nperseg float64 samples as bytes, so that specs hash and compare
    detrend     what is removed from each segment before the window
    one_sided   bins 0 … nfft // 2, all doubled but DC and (even nfft) Nyquist;
                otherwise all nfft bins in numpy.fft.fftfreq's order
    scale       the factor on |X|² before that doubling
    average     mean, or median divided by scipy's bias
    dtype       how the samples are taken: float32, float64, complex64, complex128, or
                "int24", integers of at most 24 bits: computed in float64 by NumPy and
                exact in the float32 of a device, the answer in float64 either way
    """

    nperseg: int
    hop: int
    nfft: int
    n_segments: int
    window: bytes
    detrend: Detrend | None
    one_sided: bool
    scale: float
    average: Average
    dtype: str

    def __hash__(self) -> int:
        """Hash the fields that differ most often; small jobs look specs up a lot."""
        return hash((self.nfft, self.hop, self.n_segments, self.scale, self.window))

    def __repr__(self) -> str:
        field_texts = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        shown_fields = (text for text in field_texts if not text.startswith("window="))
        return f"WelchSpec(window of {self.nperseg} samples, {', '.join(shown_fields)})"

    @property
    def window_array(self) -> NDArray[np.float64]:
        """The window, read-only, float64, shape (nperseg,)."""
        return np.frombuffer(self.window, np.float64)

    @property
    def n_freqs(self) -> int:
        """Number of bins in the result, F."""
        return self.nfft // 2 + 1 if self.one_sided else self.nfft

    @property
    def is_complex(self) -> bool:
        """True if the samples are complex."""
        return self.dtype.startswith("complex")

    @property
    def is_digital(self) -> bool:
        """True if the samples are integers that float32 represents exactly."""
        return self.dtype == DIGITAL_DTYPE

    @property
    def has_level(self) -> bool:
        """True if the level of digital rows belongs to the result; devices do not
        receive it.
        """
        return self.is_digital and self.detrend is None

    @property
    def power_dtype(self) -> np.dtype[Any]:
        """Dtype of the result: float32 for single precision, else float64."""
        single = self.dtype in ("float32", "complex64")
        return np.dtype(np.float32 if single else np.float64)

    @property
    def host_only_reason(self) -> str:
        """Reason why no device op computes this estimate; "" when one does."""
        if self.dtype not in ("float32", DIGITAL_DTYPE):
            return (
                f"the samples are {self.dtype}, but every device except the CPU "
                "computes in float32"
            )
        if self.average != "mean":
            return f"only NumPy supports average='{self.average}'"
        if not self.one_sided:
            return "only NumPy supports two-sided spectra"
        return ""

    def check_dtype(self, dtype: np.dtype[Any], context: str = _CONTEXT) -> None:
        """Raise DTypeError for complex samples where the estimate is one of real
        samples.
        """
        if dtype.kind == "c" and not self.is_complex:
            raise DTypeError(
                context,
                f"the samples are {dtype}",
                f"the estimate was created for {self.dtype}",
                "create an estimate for the dtype of the samples",
            )

    def segments_per_row(self, n_samples: int) -> int:
        """Return the segments averaged from a row of n_samples; UsageError if it is too
        short.
        """
        available = segment_count(n_samples, self.nperseg, self.hop)
        n_segments = self.n_segments or max(available, 1)
        if available < n_segments:
            needed = samples_needed(n_segments, self.nperseg, self.hop)
            raise UsageError(
                _CONTEXT,
                f"{n_segments} segments need {needed} samples",
                f"the signal has {n_samples}",
                "pass a longer signal, a smaller nperseg or fewer segments",
            )
        return n_segments


def sample_dtype(dtype: DTypeLike) -> str:
    """Return how samples are read (see `WelchSpec.dtype`); wide integers count as
    float64.
    """
    if isinstance(dtype, str) and dtype == DIGITAL_DTYPE:
        return DIGITAL_DTYPE
    element_type = np.dtype(dtype)
    if is_digital_dtype(element_type):
        return DIGITAL_DTYPE
    if element_type.kind in "iu":
        return "float64"
    if element_type.kind == "f" and element_type.itemsize <= 8:
        return "float64" if element_type.itemsize == 8 else "float32"
    if element_type.kind == "c" and element_type.itemsize <= 16:
        return "complex128" if element_type.itemsize == 16 else "complex64"
    raise DTypeError(
        _CONTEXT,
        f"samples of dtype {element_type} are not supported",
        "expected bool, integers, float16 … float64, complex64 or complex128",
        "convert the samples first; the conversion may lose precision",
    )
