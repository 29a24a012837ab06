"""`result.plot()`: the picture that fits a result."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

from rlxweb.arguments import check_options
from rlxweb.plot import bars, lines, surface
from rlxweb.signal.aperiodic_fit import AperiodicFit
from rlxweb.signal.bands import BandPower
from rlxweb.signal.result import WelchPeaks
from rlxweb.signal.spectrum import Spectrum
from rlxweb.signal.time_frequency import TimeFrequency

_OF: dict[type, Any] = {
    Spectrum: lines.spectrum,
    WelchPeaks: lines.peaks,
    AperiodicFit: lines.aperiodic,
    TimeFrequency: surface.spectrogram,
    BandPower: bars.bands,
}


def plot_result(result: Any, ax: Any = None, **options: Any) -> Any:
    """Draw a result; returns the axes it was drawn into."""
    draw = _OF[type(result)]
    known = signature(draw).parameters
    if not any(one.kind is Parameter.VAR_KEYWORD for one in known.values()):
        check_options(f"{type(result).__name__}.plot", options, [*known][1:])
    return draw(result, ax, **options)
