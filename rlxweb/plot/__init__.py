"""Pictures of results, drawn by matplotlib into axes of the caller's or of their own.

Each function takes a result and `ax=None`, and returns the axes; `html` writes a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.names import found, publish, published

if TYPE_CHECKING:
    from rlxweb.plot.bars import bands as bands
    from rlxweb.plot.interactive import html as html
    from rlxweb.plot.lines import aperiodic as aperiodic
    from rlxweb.plot.lines import peaks as peaks
    from rlxweb.plot.lines import spectrum as spectrum
    from rlxweb.plot.scalp import topomap as topomap
    from rlxweb.plot.surface import spectrogram as spectrogram
    from rlxweb.plot.theme import style as style

publish(
    __name__,
    {
        "rlxweb.plot.bars": "bands",
        "rlxweb.plot.interactive": "html",
        "rlxweb.plot.lines": "aperiodic peaks spectrum",
        "rlxweb.plot.scalp": "topomap",
        "rlxweb.plot.surface": "spectrogram",
        "rlxweb.plot.theme": "style",
    },
)
__all__ = published(__name__)


def __getattr__(name: str) -> Any:
    return found(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
