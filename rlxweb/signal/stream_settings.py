"""Settings of a stream, checked once, and as plain data for its file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import check_choice, coerce_integer
from rlxweb.core.errors import UsageError
from rlxweb.core.fork_safety import cached_property
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.precision import PRECISIONS, Precision
from rlxweb.signal.row_input import coerce_rate
from rlxweb.signal.running_averages import (
    AVERAGES,
    AverageKind,
    SpectraAverage,
    make_average,
)
from rlxweb.signal.spectrum_peaks import PeakSearch
from rlxweb.signal.welch_request import (
    DETREND_FROM_PRESET,
    WelchRequest,
    welch_errors_named,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.signal.windows import WindowLike

StreamNanPolicy = Literal["raise", "propagate", "skip"]
STREAM_NAN_POLICIES: Final = ("raise", "propagate", "skip")
CONTEXT: Final = "WelchStream"


@dataclass(frozen=True)
class StreamSettings:
    """Arguments of `WelchStream`, checked.

    Errors   UsageError for what is outside its domain.
    """

    fs: float
    nperseg: int = 256
    k: int = 16
    n_channels: int = 1
    noverlap: int | None = None
    window: WindowLike | ArrayLike | None = None
    detrend: str | bool | None = DETREND_FROM_PRESET
    preset: str = "scipy"
    mode: Literal["bins", "peaks"] = "peaks"
    prominence: float | None = None
    fmin: float = 0.0
    fmax: float | None = None
    average: AverageKind = "all"
    last: int | None = None
    half_life: float | None = None
    nan: StreamNanPolicy = "raise"
    precision: Precision | None = None

    def __post_init__(self) -> None:
        coerce_rate(self.fs, CONTEXT)
        if coerce_integer("n_channels", self.n_channels, CONTEXT) < 1:
            raise UsageError(
                CONTEXT, f"n_channels is {self.n_channels}", "must be at least 1"
            )
        check_choice("nan", self.nan, STREAM_NAN_POLICIES, CONTEXT)
        if self.precision is not None:
            check_choice("precision", self.precision, PRECISIONS, CONTEXT)
        check_choice("average", self.average, AVERAGES, CONTEXT)
        self.make_average()
        _ = self.peak_search

    @cached_property
    def _request(self) -> WelchRequest:
        return WelchRequest(
            fs=coerce_rate(self.fs, CONTEXT),
            nperseg=self.nperseg,
            noverlap=self.noverlap,
            window=self.window,
            detrend=self.detrend,
            preset=self.preset,
        )

    def spec(self, dtype: str) -> WelchSpec:
        """Return the estimate for samples of a dtype and any number of segments."""
        with welch_errors_named(CONTEXT):
            return self._request.spec(None, dtype)

    @cached_property
    def hz(self) -> NDArray[np.float64]:
        """Frequencies (F,) of all bins."""
        return frequencies(self.spec("float64"), self.fs)

    @cached_property
    def band(self) -> BinRange:
        """Bins between fmin and fmax."""
        return BinRange.from_frequencies(
            self.hz, self.fs, self.fmin, self.fmax, CONTEXT
        )

    @cached_property
    def peak_search(self) -> PeakSearch:
        """Search for the peaks of a channel: k, or all bins of a narrower band."""
        search = PeakSearch.from_options(vars(self)).checked(CONTEXT, len(self.hz))
        return search._replace(k=min(search.k, len(self.band)))

    def make_average(self) -> SpectraAverage:
        """Return an empty average of the requested kind. Raises UsageError."""
        step = 0.0
        if self.average == "exponential":
            step = self.spec("float64").hop / self.fs
        return make_average(self.average, self.last, self.half_life, step, CONTEXT)

    def as_json(self) -> dict[str, Any]:
        """Return all settings but the window, whose samples are stored separately;
        NumPy's numbers as Python's.
        """
        names = (field.name for field in fields(self) if field.name != "window")
        values = {name: getattr(self, name) for name in names}
        return {
            name: value.item() if isinstance(value, np.generic | np.ndarray) else value
            for name, value in values.items()
        }
