"""Welch parameters with RLX's presets: segments of n samples that overlap by half, one,
two or eight of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.core.argument_validation import coerce_integer, coerce_integer_from

DEFAULT_PEAK_K = 16
"""RLX's default k."""


@dataclass(frozen=True, slots=True)
class WelchPeakParams:
    """Parameters of a Welch estimate: half-overlapping segments of n_fft samples, k
    peaks a row.

    Errors   UsageError for what is no whole number, and for n_fft or n_segments below
             1; k below 1 counts as 1.
    """

    n_fft: int
    k: int = DEFAULT_PEAK_K
    n_segments: int = 8

    def __post_init__(self) -> None:
        for name in ("n_fft", "n_segments"):
            size = coerce_integer_from(1, name, getattr(self, name), "WelchPeakParams")
            object.__setattr__(self, name, size)
        k = coerce_integer("k", self.k, "WelchPeakParams")
        object.__setattr__(self, "k", max(k, 1))

    @classmethod
    def ultra_fast(cls, n_fft: int, k: int = DEFAULT_PEAK_K) -> WelchPeakParams:
        """Return the preset of one segment."""
        return cls(n_fft, k, 1)

    @classmethod
    def fast(cls, n_fft: int, k: int = DEFAULT_PEAK_K) -> WelchPeakParams:
        """Return the preset of two segments."""
        return cls(n_fft, k, 2)

    # RLX's names.
    ultra_fast_for_n_fft = ultra_fast
    fast_for_n_fft = fast

    @classmethod
    def reference(cls, n_fft: int, k: int = DEFAULT_PEAK_K) -> WelchPeakParams:
        """Return the preset of eight segments."""
        return cls(n_fft, k, 8)

    @property
    def hop(self) -> int:
        """Number of samples between the starts of two segments."""
        return self.n_fft // 2

    @property
    def frame_length(self) -> int:
        """Number of samples in a row."""
        return self.n_fft + (self.n_segments - 1) * self.hop

    @property
    def n_bins(self) -> int:
        """Number of bins of the one-sided spectrum."""
        return self.n_fft // 2 + 1
