"""A trained transform: what it computes, of which estimates, and how well.

Owns the record and what it may be used for. How it is run is in `in_numpy.py` and
`on_graph.py`, its file in `file.py`; training it is the business of `rlxweb.learn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.advice import Advice, Blank
from rlxweb.errors import UsageError
from rlxweb.forked import cached_property
from rlxweb.host.spec import Detrend, WelchSpec
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.butterflies import Gates, active, stages_of
from rlxweb.signal.learned.compact import Compact, compacted, exact

_CLOSE = 1e-6


@dataclass(frozen=True, slots=False, eq=False)
class LearnedTransform:
    """The bins of a band from segments of n real samples, by fewer butterflies.

    n        samples of a segment and length of the transform, a power of two
    fs       rate of the recordings it was trained on, in Hz
    window   n float64 samples as bytes, as in WelchSpec
    detrend  what is removed from a segment before: None or "constant"
    band     bins that it gives
    gates    (stages, n / 2) of its network, True where a butterfly is open
    program  what is run
    error    of the power of a bin, relative, on recordings it was not trained on
    worst    the error of a few segments of one row, at most, there
    recall   part of the true peaks that were found there, 0 to 1
    asked    the error that it was trained for
    k        peaks that were looked for
    """

    n: int
    fs: float
    window: bytes
    detrend: Detrend | None
    band: Band
    gates: Gates
    program: Compact
    error: float
    worst: float
    recall: float
    asked: float
    k: int

    def __repr__(self) -> str:
        return (
            f"LearnedTransform({len(self.band)} of {self.n // 2 + 1} bins of {self.n}"
            f" samples at {self.fs:g} Hz, {self.active:,} of {self.total:,} gates,"
            f" error {self.error:.2g})"
        )

    @property
    def total(self) -> int:
        """Butterflies of the whole network."""
        return int(self.gates.size)

    @cached_property
    def active(self) -> int:
        """Open gates that its bins depend on."""
        return active(self.gates, np.arange(self.band.first, self.band.stop))

    @cached_property
    def exact(self) -> Compact:
        """The program without anything learned, for the same bins."""
        return exact(self.n, np.arange(self.band.first, self.band.stop))

    @property
    def share(self) -> float:
        """Its arithmetic in parts of that of the whole transform."""
        whole = exact(self.n, np.arange(self.n // 2 + 1))
        return self.program.cost / whole.cost

    @property
    def hz(self) -> npt.NDArray[np.float64]:
        """Frequencies of its bins."""
        return np.arange(self.band.first, self.band.stop) * self.fs / self.n

    def check_fits(self, spec: WelchSpec, fs: float, band: Band | None) -> None:
        """UsageError, with both numbers, for what it was not trained for."""
        doing = "welch_peaks with a learned transform"

        def refused(what: str, rule: str, hint: str = "") -> UsageError:
            return UsageError(doing, what, rule, hint)

        if spec.is_complex or not spec.one_sided:
            raise refused("the samples are complex", "it is one of real samples")
        if abs(fs - self.fs) > _CLOSE * self.fs:
            raise refused(
                f"the rate is {fs:g} Hz",
                f"it was trained at {self.fs:g} Hz",
                "train one for this rate: rlxweb learn",
            )
        if spec.nperseg != self.n or spec.nfft != self.n:
            length = f"segments of {spec.nperseg}, transformed at {spec.nfft}"
            hint = Advice("give {}", nperseg=self.n)
            raise refused(length, f"it was trained for {self.n} samples", hint)
        if spec.detrend != self.detrend:
            raise refused(
                f"detrend is {spec.detrend}",
                f"it was trained with {self.detrend}",
                Advice("give {}", detrend=self.detrend),
            )
        if not np.allclose(spec.window_array, np.frombuffer(self.window), atol=1e-9):
            raise refused(
                "the window is another", "it is part of what was trained", "train anew"
            )
        if band is None or band.first < self.band.first or band.stop > self.band.stop:
            first, last = self.hz[0], self.hz[-1]
            asked = (
                "all bins" if band is None else f"bins {band.first} to {band.stop - 1}"
            )
            raise refused(
                f"{asked} are asked for",
                f"it gives bins {self.band.first} to {self.band.stop - 1}, that is "
                f"{first:g} to {last:g} Hz",
                Advice("give {} and {}", fmin=Blank("HZ"), fmax=Blank("HZ"))
                if band is None
                else "train one for this band: rlxweb learn",
            )


def untrained(spec: WelchSpec, fs: float, band: Band) -> LearnedTransform:
    """The exact transform of a band, with no butterfly but what its bins need."""
    n, bins = spec.nperseg, np.arange(band.first, band.stop)
    gates = np.ones((stages_of(n), n // 2), np.bool_)
    trend: Any = spec.detrend
    program = compacted(gates, bins)
    own = (n, fs, spec.window, trend, band, gates, program)
    return LearnedTransform(*own, error=0.0, worst=0.0, recall=1.0, asked=0.0, k=1)


def rows_of(band: Band, of: Band) -> slice:
    """Where the bins of a band lie among those of another that holds them."""
    return slice(band.first - of.first, band.stop - of.first)


def spectra(
    program: Compact, band: Band, segments: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """The band's bins (…, bins) of windowed segments (…, n), complex.

    In the segments' precision, where NumPy has a transform of it.
    """
    at, turned = places(program, band)
    total: Any = 0.0
    for p, phase in enumerate(program.phases):
        made = np.fft.rfft(segments[..., phase :: program.stride], axis=-1)
        values = made[..., at]
        np.conjugate(values, out=values, where=turned)
        total = total + values * program.weights[:, p].astype(made.dtype)
    return np.asarray(total)


def places(
    program: Compact, band: Band
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """For each bin which value of a short transform it needs, and whether turned over:
    of real samples the second half mirrors the first.
    """
    value = np.arange(band.first, band.stop) % program.m
    turned = value > program.m // 2
    return np.where(turned, program.m - value, value), turned
