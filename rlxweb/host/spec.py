"""What one Welch estimate is: a frozen record with every default already decided.

Owns the record and which sample dtypes are taken. It must not decide a default (that is
the request's business), compute a spectrum or know a device: the CPU path, the stream
form and the graph of a device all read this one record.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rlxweb.digital import is_digital
from rlxweb.errors import DTypeError, UsageError
from rlxweb.recipes.welch_plan import samples_needed, segment_count

Detrend: TypeAlias = Literal["constant", "linear"]
Average: TypeAlias = Literal["mean", "median"]

DIGITAL: Final = "int24"

_DOING = "welch"


@dataclass(frozen=True, slots=True, repr=False)
class WelchSpec:
    """One estimate, fully decided: scale · mean over segments of |FFT(window · x)|².

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
        """Of what tells estimates apart most often: small jobs look specs up a lot."""
        return hash((self.nfft, self.hop, self.n_segments, self.scale, self.window))

    def __repr__(self) -> str:
        said = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        parts = (one for one in said if not one.startswith("window="))
        return f"WelchSpec(window of {self.nperseg} samples, {', '.join(parts)})"

    @property
    def window_array(self) -> NDArray[np.float64]:
        """The window, read-only, float64, shape (nperseg,)."""
        return np.frombuffer(self.window, np.float64)

    @property
    def n_freqs(self) -> int:
        """Bins in the answer, F."""
        return self.nfft // 2 + 1 if self.one_sided else self.nfft

    @property
    def is_complex(self) -> bool:
        """Samples are complex."""
        return self.dtype.startswith("complex")

    @property
    def is_digital(self) -> bool:
        """Samples are integers that float32 holds."""
        return self.dtype == DIGITAL

    @property
    def has_level(self) -> bool:
        """The level of digital rows belongs to the answer; a device is not given it."""
        return self.is_digital and self.detrend is None

    @property
    def power_dtype(self) -> np.dtype[Any]:
        """The dtype of the answer: float32 for single precision, else float64."""
        single = self.dtype in ("float32", "complex64")
        return np.dtype(np.float32 if single else np.float64)

    @property
    def only_on_host(self) -> str:
        """Why no device op computes this estimate; "" when one does."""
        if self.dtype not in ("float32", DIGITAL):
            return f"the samples are {self.dtype} and devices compute float32"
        if self.average != "mean":
            return f"average='{self.average}' is computed by NumPy only"
        if not self.one_sided:
            return "two-sided spectra are computed by NumPy only"
        return ""

    def must_cover(self, dtype: np.dtype[Any], doing: str = _DOING) -> None:
        """DTypeError for complex samples where the estimate is one of real ones."""
        if dtype.kind == "c" and not self.is_complex:
            raise DTypeError(
                doing,
                f"the samples are {dtype}",
                f"the estimate was resolved for {self.dtype}",
                "resolve it with the samples' dtype",
            )

    def segments_of(self, n_samples: int) -> int:
        """Segments averaged from a row of n_samples; UsageError if it is too short."""
        available = segment_count(n_samples, self.nperseg, self.hop)
        wanted = self.n_segments or max(available, 1)
        if available < wanted:
            needed = samples_needed(wanted, self.nperseg, self.hop)
            raise UsageError(
                _DOING,
                f"{wanted} segments need {needed} samples",
                f"the row has {n_samples}",
                "give a longer signal, a smaller nperseg or fewer segments",
            )
        return wanted


def sample_dtype(dtype: DTypeLike) -> str:
    """How samples are taken (see `WelchSpec.dtype`); wide integers count as float64."""
    if isinstance(dtype, str) and dtype == DIGITAL:
        return DIGITAL
    given = np.dtype(dtype)
    if is_digital(given):
        return DIGITAL
    if given.kind in "iu":
        return "float64"
    if given.kind == "f" and given.itemsize <= 8:
        return "float64" if given.itemsize == 8 else "float32"
    if given.kind == "c" and given.itemsize <= 16:
        return "complex128" if given.itemsize == 16 else "complex64"
    raise DTypeError(
        _DOING,
        f"samples of dtype {given} are not taken",
        "wanted bool, integers, float16 … float64, complex64 or complex128",
        "convert them first, so that the loss of precision is your choice",
    )
