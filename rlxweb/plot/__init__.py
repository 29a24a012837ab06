"""Plots of results, drawn by matplotlib into the caller's axes or a new figure.

Each function takes a result and `ax=None`, and returns the axes; `html` writes a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.core.lazy_names import load_published, publish_names, published_names

if TYPE_CHECKING:
    from rlxweb.plot.band_bars import bands as bands
    from rlxweb.plot.result_page import html as html
    from rlxweb.plot.scalp_map import topomap as topomap
    from rlxweb.plot.spectrum_plots import aperiodic as aperiodic
    from rlxweb.plot.spectrum_plots import peaks as peaks
    from rlxweb.plot.spectrum_plots import spectrum as spectrum
    from rlxweb.plot.theme import style as style
    from rlxweb.plot.time_frequency_plot import spectrogram as spectrogram

publish_names(
    __name__,
    {
        "rlxweb.plot.band_bars": "bands",
        "rlxweb.plot.result_page": "html",
        "rlxweb.plot.spectrum_plots": "aperiodic peaks spectrum",
        "rlxweb.plot.scalp_map": "topomap",
        "rlxweb.plot.time_frequency_plot": "spectrogram",
        "rlxweb.plot.theme": "style",
    },
)
__all__ = published_names(__name__)


def __getattr__(name: str) -> Any:
    return load_published(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
