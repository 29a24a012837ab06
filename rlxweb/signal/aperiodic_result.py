"""Result class of `aperiodic`: the 1/f part of spectra, and the peaks above it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.results.labelled_arrays import (
    LabelledArrays,
    ResultAxis,
    ResultVariable,
    batch_axes,
)
from rlxweb.results.labels import NO_LABELS, Labels
from rlxweb.results.ran import UNKNOWN_RUN, Ran
from rlxweb.results.result import Result
from rlxweb.results.result_files import (
    ResultState,
    labels_and_run_from_json,
    labels_and_run_to_json,
)
from rlxweb.results.svg_charts import ChartLine, svg_line_chart

Floats = NDArray[np.float64]

_ARRAY_FIELDS: Final = (
    *("f", "offset", "exponent", "knee", "peak_hz", "peak_height", "peak_width"),
    *("count", "r_squared", "error", "aperiodic", "fitted"),
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AperiodicFit(Result):
    """Fitted model of each row: 10**(offset - log10(knee + f**exponent)), and P peaks
    above it.

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
    labels: Labels = NO_LABELS
    ran: Ran = UNKNOWN_RUN

    def named(self, labels: Labels) -> AperiodicFit:
        """Return the same fit with names for the axes of its batch."""
        return replace(self, labels=labels)

    def labelled(self) -> LabelledArrays:
        batch = self.offset.shape
        labels = self.labels.fitted(batch)
        dims = labels.dims
        peak = (*dims, "peak")
        ranks = np.arange(1, self.peak_hz.shape[-1] + 1)
        axes = (
            *batch_axes(labels, batch),
            ResultAxis("peak", ranks, "", "sorted by frequency"),
            ResultAxis("frequency", self.f, "Hz"),
        )
        spectra = (*dims, "frequency")
        return LabelledArrays(
            axes,
            (
                ResultVariable(
                    "exponent", self.exponent, dims, "", "steepness of the 1/f part"
                ),
                ResultVariable("offset", self.offset, dims, "", "log10 power at 1 Hz"),
                ResultVariable("knee", self.knee, dims),
                ResultVariable("r_squared", self.r_squared, dims),
                ResultVariable(
                    "error",
                    self.error,
                    dims,
                    "",
                    "mean absolute error of the log10 power",
                ),
                ResultVariable("count", self.count, dims, "", "number of peaks"),
                ResultVariable("peak_frequency", self.peak_hz, peak, "Hz"),
                ResultVariable(
                    "peak_height",
                    self.peak_height,
                    peak,
                    "",
                    "log10 power above the 1/f part",
                ),
                ResultVariable("peak_width", self.peak_width, peak, "Hz", "2 SD"),
                ResultVariable(
                    "aperiodic", self.aperiodic, spectra, "", "the 1/f part"
                ),
                ResultVariable(
                    "fitted", self.fitted, spectra, "", "1/f part and peaks"
                ),
            ),
            {},
        )

    def _to_state(self) -> ResultState:
        arrays = {name: getattr(self, name) for name in _ARRAY_FIELDS}
        return ResultState(arrays, labels_and_run_to_json(self.labels, self.ran))

    @classmethod
    def _from_state(cls, state: ResultState) -> AperiodicFit:
        labels, ran = labels_and_run_from_json(state.json_data)
        return cls(**state.arrays, labels=labels, ran=ran)

    def _svg(self) -> str:
        log_hz = np.log10(self.f)
        fitted, line = (
            10.0 * np.log10(power.reshape(-1, len(self.f))[0])
            for power in (self.fitted, self.aperiodic)
        )
        lines = [ChartLine("fitted", log_hz, fitted), ChartLine("1/f", log_hz, line)]
        return svg_line_chart(lines, "dB", log=True)

    def __repr__(self) -> str:
        rows = "×".join(map(str, self.offset.shape)) or "1"
        exponent = _format_mean(self.exponent, 2)
        r_squared = _format_mean(self.r_squared, 3)
        excluded_count = int(np.isnan(self.offset).sum())
        excluded_text = f", {excluded_count} not fitted" if excluded_count else ""
        return (
            f"AperiodicFit({rows} rows{excluded_text}, exponent {exponent}, "
            f"{int(self.count.sum())} peaks, R² {r_squared})"
        )


def _format_mean(values: Floats, digits: int) -> str:
    """Format the mean of the known values; a dash where none is known."""
    known = values[~np.isnan(values)]
    return f"{known.mean():.{digits}f}" if known.size else "–"
