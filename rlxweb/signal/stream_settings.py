"""What is asked of a stream, checked once, and as plain data for its file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import one_of, whole
from rlxweb.errors import UsageError
from rlxweb.forked import cached_property
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frequencies
from rlxweb.signal.averages import AVERAGES, Average, SpectraAverage, average_of
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.peaks_of_power import check_mode, check_prominence
from rlxweb.signal.precision import Precision
from rlxweb.signal.request import OF_PRESET, WelchRequest
from rlxweb.signal.rows_given import rate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.signal.windows import WindowLike

Gaps = Literal["raise", "propagate", "skip"]
GAPS: Final = ("raise", "propagate", "skip")
DOING: Final = "WelchStream"


@dataclass(frozen=True)
class StreamSettings:
    """See `WelchStream`, whose arguments these are.

    Errors   UsageError for what is outside its domain.
    """

    fs: float
    nperseg: int = 256
    k: int = 16
    n_channels: int = 1
    noverlap: int | None = None
    window: WindowLike | ArrayLike | None = None
    detrend: str | bool | None = OF_PRESET
    preset: str = "scipy"
    mode: Literal["bins", "peaks"] = "peaks"
    prominence: float | None = None
    fmin: float = 0.0
    fmax: float | None = None
    average: Average = "all"
    last: int | None = None
    half_life: float | None = None
    nan: Gaps = "raise"
    precision: Precision | None = None

    def __post_init__(self) -> None:
        rate(self.fs, DOING)
        if whole("n_channels", self.n_channels, DOING) < 1:
            raise UsageError(DOING, f"{self.n_channels} channels", "at least 1")
        check_mode(DOING, self.mode)
        check_prominence(self.prominence, self.mode, DOING)
        one_of("nan", self.nan, GAPS, DOING)
        one_of("average", self.average, AVERAGES, DOING)
        self.new_average()
        n_freqs = self.spec("float64").n_freqs
        if not 1 <= whole("k", self.k, DOING) <= n_freqs:
            hint = Advice("give a larger {}", nperseg=Blank("N"))
            rule = f"it must be 1 to {n_freqs}, the number of bins"
            raise UsageError(DOING, f"k is {self.k}", rule, hint)
        _ = self.band

    @cached_property
    def _request(self) -> WelchRequest:
        return WelchRequest(
            fs=rate(self.fs, DOING),
            nperseg=whole("nperseg", self.nperseg, DOING),
            noverlap=self.noverlap,
            window=self.window,
            detrend=self.detrend,
            preset=self.preset,
        )

    def spec(self, dtype: str) -> WelchSpec:
        """The estimate of samples of a type, for any number of segments."""
        try:
            return self._request.spec(None, dtype)
        except UsageError as error:
            error.doing = DOING if error.doing == "welch" else error.doing
            raise

    @cached_property
    def hz(self) -> NDArray[np.float64]:
        """(F,) frequencies of all bins."""
        return frequencies(self.spec("float64"), self.fs)

    @cached_property
    def band(self) -> Band:
        """The bins that are looked at."""
        return Band.of(self.hz, self.fs, self.fmin, self.fmax, DOING)

    @property
    def most(self) -> int:
        """Peaks of a channel: k, or all bins of a narrower band."""
        return min(self.k, len(self.band))

    def new_average(self) -> SpectraAverage:
        """An average of nothing yet. Errors  UsageError."""
        step = 0.0
        if self.average == "exponential":
            step = self.spec("float64").hop / self.fs
        return average_of(self.average, self.last, self.half_life, step, DOING)

    def as_json(self) -> dict[str, Any]:
        """All but the window, whose samples stand beside it."""
        names = (one.name for one in fields(self) if one.name != "window")
        return {name: getattr(self, name) for name in names}
