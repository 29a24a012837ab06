"""Implementation of `result.plot()`: selects the plot function of a result."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

from rlxweb.core.argument_validation import check_option_names
from rlxweb.plot import band_bars, spectrum_plots, time_frequency_plot
from rlxweb.signal.aperiodic_result import AperiodicFit
from rlxweb.signal.band_power import BandPower
from rlxweb.signal.spectrum_result import Spectrum
from rlxweb.signal.time_frequency_result import TimeFrequency
from rlxweb.signal.welch_peaks_result import WelchPeaks

_PLOT_FUNCTIONS: dict[type, Any] = {
    Spectrum: spectrum_plots.spectrum,
    WelchPeaks: spectrum_plots.peaks,
    AperiodicFit: spectrum_plots.aperiodic,
    TimeFrequency: time_frequency_plot.spectrogram,
    BandPower: band_bars.bands,
}


def plot_result(result: Any, ax: Any = None, **options: Any) -> Any:
    """Draw a result with the plot function of its type and return the axes."""
    draw = _PLOT_FUNCTIONS[type(result)]
    parameters = signature(draw).parameters
    if not any(
        parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()
    ):
        check_option_names(f"{type(result).__name__}.plot", options, [*parameters][1:])
    return draw(result, ax, **options)
