"""What `aperiodic` returns: the 1/f part of spectra, and the peaks above it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.results.labels import UNNAMED, Labels
from rlxweb.results.ran import UNTOLD, Ran
from rlxweb.results.result import Result
from rlxweb.results.stored import State, of_plain, plain_of
from rlxweb.results.svg import Line, chart
from rlxweb.results.tables import Axis, Labelled, Variable, batch_axes

Floats = NDArray[np.float64]

_ARRAYS: Final = (
    *("f", "offset", "exponent", "knee", "peak_hz", "peak_height", "peak_width"),
    *("count", "r_squared", "error", "aperiodic", "fitted"),
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AperiodicFit(Result):
    """10**(offset - log10(knee + f**exponent)), and P peaks above it, of each row.

    f           (F,) Hz that were fitted
    offset      (…) log10 of the power that the line has at 1 Hz, without a knee
    exponent    (…) how steeply it falls
    knee        (…) of mode "knee"; 0 of "fixed"
    peak_hz     (…, P) centres by rising frequency; NaN where a row has fewer
    peak_height (…, P) log10 above the 1/f part
    peak_width  (…, P) Hz, two standard deviations
    count       (…) peaks of a row
    r_squared   (…) of the log10 power; NaN where that is the same at every frequency
    error       (…) mean absolute error of the log10 power
    aperiodic   (…, F) power of the 1/f part
    fitted      (…, F) of that and the peaks
    labels      names of the axes before
    ran         engine, decision and wall time of the spectrum, where it tells them
    """

    f: Floats
    offset: Floats
    exponent: Floats
    knee: Floats
    peak_hz: Floats
    peak_height: Floats
    peak_width: Floats
    count: NDArray[np.int64]
    r_squared: Floats
    error: Floats
    aperiodic: Floats
    fitted: Floats
    labels: Labels = UNNAMED
    ran: Ran = UNTOLD

    def named(self, labels: Labels) -> AperiodicFit:
        """The same with names for the axes of its batch."""
        return replace(self, labels=labels)

    def labelled(self) -> Labelled:
        batch = self.offset.shape
        labels = self.labels.fitted(batch)
        dims = labels.dims
        peak = (*dims, "peak")
        ranks = np.arange(1, self.peak_hz.shape[-1] + 1)
        axes = (
            *batch_axes(labels, batch),
            Axis("peak", ranks, "", "by rising frequency"),
            Axis("frequency", self.f, "Hz"),
        )
        spectra = (*dims, "frequency")
        return Labelled(
            axes,
            (
                Variable("exponent", self.exponent, dims, "", "how steeply it falls"),
                Variable("offset", self.offset, dims, "", "log10 power at 1 Hz"),
                Variable("knee", self.knee, dims),
                Variable("r_squared", self.r_squared, dims),
                Variable("error", self.error, dims, "", "mean, of log10 power"),
                Variable("count", self.count, dims, "", "peaks"),
                Variable("peak_frequency", self.peak_hz, peak, "Hz"),
                Variable("peak_height", self.peak_height, peak, "", "log10 power"),
                Variable("peak_width", self.peak_width, peak, "Hz", "2 SD"),
                Variable("aperiodic", self.aperiodic, spectra, "", "the 1/f part"),
                Variable("fitted", self.fitted, spectra, "", "the model"),
            ),
            {},
        )

    def _state(self) -> State:
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return State(arrays, plain_of(self.labels, self.ran))

    @classmethod
    def _of_state(cls, state: State) -> AperiodicFit:
        labels, ran = of_plain(state.plain)
        return cls(**state.arrays, labels=labels, ran=ran)

    def _picture(self) -> str:
        at = np.log10(self.f)
        fitted, line = (
            10.0 * np.log10(own.reshape(-1, len(self.f))[0])
            for own in (self.fitted, self.aperiodic)
        )
        lines = [Line("fitted", at, fitted), Line("1/f", at, line)]
        return chart(lines, "dB", log=True)

    def __repr__(self) -> str:
        rows = "×".join(map(str, self.offset.shape)) or "1"
        exponent, r_squared = _mean(self.exponent, 2), _mean(self.r_squared, 3)
        lost = int(np.isnan(self.offset).sum())
        left_out = f", {lost} left out" if lost else ""
        return (
            f"AperiodicFit({rows} rows{left_out}, exponent {exponent}, "
            f"{int(self.count.sum())} peaks, R² {r_squared})"
        )


def _mean(values: Floats, digits: int) -> str:
    """Mean of the known values in words; a dash where none is known."""
    known = values[~np.isnan(values)]
    return f"{known.mean():.{digits}f}" if known.size else "–"
