"""The look of every picture: colours that all eyes tell apart, on light and on dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final

from rlxweb.errors import Unsupported
from rlxweb.results.svg import COLOURS

MAP: Final = "viridis"
"""Of values over two axes: even for every eye, and in print."""
_DASHES: Final = ("-", "--")
_LIGHT: Final = ("#ffffff", "#1b1f24", "#d5dae0")
_DARK: Final = ("#14181d", "#e2e6ea", "#3a424b")

_is_styled: ContextVar[bool] = ContextVar("rlxweb.plot.style", default=False)


def settings(dark: bool = False) -> dict[str, Any]:
    """What matplotlib's rcParams take."""
    from matplotlib.rcsetup import cycler

    paper, ink, faint = _DARK if dark else _LIGHT
    lines = [colour for _ in _DASHES for colour in COLOURS]
    dashes = [dash for dash in _DASHES for _ in COLOURS]
    return {
        "figure.facecolor": paper,
        "savefig.facecolor": paper,
        "axes.facecolor": paper,
        "axes.edgecolor": ink,
        "axes.labelcolor": ink,
        "axes.titlecolor": ink,
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "grid.color": faint,
        "legend.facecolor": paper,
        "legend.edgecolor": faint,
        "axes.prop_cycle": cycler(color=lines) + cycler(linestyle=dashes),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "image.cmap": MAP,
    }


@contextmanager
def style(dark: bool = False) -> Iterator[None]:
    """Draw in the look of rlxweb: `with rlx.plot.style(dark=True): …`.

    What is drawn inside has it, your own lines too; matplotlib's settings are as they
    were afterwards.

    Errors   Unsupported where matplotlib is missing.
    """
    with matplotlib("rlxweb.plot.style").rc_context(settings(dark)):
        before = _is_styled.set(True)
        try:
            yield
        finally:
            _is_styled.reset(before)


def matplotlib(doing: str) -> Any:
    """The library. Errors  Unsupported where it is missing."""
    try:
        import matplotlib as found
    except ImportError:
        raise Unsupported(
            doing,
            "matplotlib is not installed",
            hint="pip install 'rlxweb[plot]'",
        ) from None
    return found


def axes_of(ax: Any, doing: str, *, wide: float = 8.0, tall: float = 3.6) -> Any:
    """The caller's axes, or those of a new figure of pyplot's, in inches."""
    matplotlib(doing)
    if ax is not None:
        return ax
    from matplotlib import pyplot

    # Inside `style` it is the caller's look, dark or light.
    with nullcontext() if _is_styled.get() else style():
        _, own = pyplot.subplots(figsize=(wide, tall), layout="constrained")
    return own
