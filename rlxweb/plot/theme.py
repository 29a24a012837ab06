"""The look of every picture: colours that all eyes tell apart, on light and on dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any, Final, ParamSpec, TypeVar

from rlxweb.errors import Unsupported
from rlxweb.results.svg import COLOURS

P = ParamSpec("P")
T = TypeVar("T")

MAP: Final = "viridis"
"""Of values over two axes: even for every eye, and in print."""
AROUND: Final = "RdBu_r"
"""Of values above and below zero: red and blue are told apart by every eye."""
_DASHES: Final = ("-", "--")
LIGHT: Final = ("#ffffff", "#1b2227", "#55616b", "#dde2e6")
DARK: Final = ("#12171b", "#e5eaee", "#a3afb9", "#2d363d")
"""Ground, text, quieter text and hairlines, as the site has them."""

_is_styled: ContextVar[bool] = ContextVar("rlxweb.plot.style", default=False)


def settings(dark: bool = False) -> dict[str, Any]:
    """What matplotlib's rcParams take."""
    from matplotlib.rcsetup import cycler

    paper, ink, muted, faint = DARK if dark else LIGHT
    lines = [colour for _ in _DASHES for colour in COLOURS]
    dashes = [dash for dash in _DASHES for _ in COLOURS]
    return {
        "figure.facecolor": paper,
        "savefig.facecolor": paper,
        "axes.facecolor": paper,
        "axes.edgecolor": muted,
        "axes.labelcolor": muted,
        "axes.titlecolor": ink,
        "text.color": ink,
        "xtick.color": muted,
        "ytick.color": muted,
        "grid.color": faint,
        "legend.facecolor": paper,
        "legend.edgecolor": faint,
        "axes.prop_cycle": cycler(color=lines) + cycler(linestyle=dashes),
        "image.cmap": MAP,
        **_SHAPES,
    }


_SHAPES: Final = {
    "axes.axisbelow": True,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "font.size": 9,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.handlelength": 1.4,
    "legend.handletextpad": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "xtick.labelsize": 8,
    "xtick.major.size": 3,
    "xtick.major.width": 0.7,
    "ytick.labelsize": 8,
    "ytick.major.size": 3,
    "ytick.major.width": 0.7,
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


def quiet_text(dark: bool) -> str:
    """The colour of words beside the data, where there are no axes yet."""
    return (DARK if dark else LIGHT)[2]


def ground(axis: Any) -> Any:
    """The colour it is drawn on."""
    return axis.get_facecolor()


def quiet_ink(axis: Any) -> Any:
    """The colour of words beside the data."""
    return axis.xaxis.label.get_color()


def hairline(axis: Any) -> Any:
    """The colour of what is there to compare with."""
    from matplotlib.colors import to_rgba

    return to_rgba(quiet_ink(axis), 0.3)


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
    return ax if ax is not None else figure_of(doing, wide=wide, tall=tall).subplots()


def figure_of(doing: str, *, wide: float, tall: float) -> Any:
    """A new figure of pyplot's, in inches."""
    matplotlib(doing)
    from matplotlib import pyplot

    return pyplot.figure(figsize=(wide, tall), layout="constrained")


def in_our_look(draw: Callable[P, T]) -> Callable[P, T]:
    """A function of (result, ax=None) that draws a figure of its own in our look.

    Inside `style` it is the caller's look, dark or light, and their axes are theirs.
    """
    at = list(signature(draw).parameters).index("ax")

    @wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> T:
        matplotlib(f"rlxweb.plot.{draw.__name__}")
        ax = args[at] if len(args) > at else options.get("ax")
        ours = ax is None and not _is_styled.get()
        with style() if ours else nullcontext():
            return draw(*args, **options)

    return drawn
