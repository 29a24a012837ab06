"""`result.plot()`: the picture that fits a result."""

from __future__ import annotations

from typing import Any

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
    """The axes it was drawn into."""
    return _OF[type(result)](result, ax, **options)
