"""Plot style: colours that people with colour vision deficiency can tell apart, for
light and dark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any, Final, ParamSpec, TypeVar

from rlxweb.core.errors import Unsupported
from rlxweb.results.svg_charts import COLOURS

P = ParamSpec("P")
T = TypeVar("T")

SEQUENTIAL_COLORMAP: Final = "viridis"
"""Perceptually uniform colour map of values over two axes."""
DIVERGING_COLORMAP: Final = "RdBu_r"
"""Colour map of values above and below zero, readable with colour vision deficiency."""
_DASHES: Final = ("-", "--")
LIGHT_PALETTE: Final = ("#ffffff", "#1b2227", "#55616b", "#dde2e6")
DARK_PALETTE: Final = ("#12171b", "#e5eaee", "#a3afb9", "#2d363d")
"""Palettes of background, text, muted text and hairlines, as on the site."""

_is_styled: ContextVar[bool] = ContextVar("rlxweb.plot.style", default=False)


def style_settings(dark: bool = False) -> dict[str, Any]:
    """Return the rcParams of matplotlib for the style."""
    from matplotlib.rcsetup import cycler

    background, text, muted, faint = DARK_PALETTE if dark else LIGHT_PALETTE
    lines = [colour for _ in _DASHES for colour in COLOURS]
    dashes = [dash for dash in _DASHES for _ in COLOURS]
    return {
        "figure.facecolor": background,
        "savefig.facecolor": background,
        "axes.facecolor": background,
        "axes.edgecolor": muted,
        "axes.labelcolor": muted,
        "axes.titlecolor": text,
        "text.color": text,
        "xtick.color": muted,
        "ytick.color": muted,
        "grid.color": faint,
        "legend.facecolor": background,
        "legend.edgecolor": faint,
        "axes.prop_cycle": cycler(color=lines) + cycler(linestyle=dashes),
        "image.cmap": SEQUENTIAL_COLORMAP,
        **_SIZE_SETTINGS,
    }


_SIZE_SETTINGS: Final = {
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
    """Draw in rlxweb's style inside the block: `with rlx.plot.style(dark=True): …`.

    What is drawn inside has it, your own lines too; matplotlib's settings are as they
    were afterwards.

    Errors   Unsupported where matplotlib is missing.
    """
    with import_matplotlib("rlxweb.plot.style").rc_context(style_settings(dark)):
        token = _is_styled.set(True)
        try:
            yield
        finally:
            _is_styled.reset(token)


def muted_text_colour(dark: bool) -> str:
    """Return the colour of text beside the data before any axes exist."""
    return (DARK_PALETTE if dark else LIGHT_PALETTE)[2]


def background_colour(axis: Any) -> Any:
    """Return the background colour of the axes."""
    return axis.get_facecolor()


def label_colour(axis: Any) -> Any:
    """Return the colour of the axis labels, used for text beside the data."""
    return axis.xaxis.label.get_color()


def hairline_colour(axis: Any) -> Any:
    """Return the faint colour of reference lines."""
    from matplotlib.colors import to_rgba

    return to_rgba(label_colour(axis), 0.3)


def import_matplotlib(context: str) -> Any:
    """Import matplotlib; raise Unsupported if it is missing."""
    try:
        import matplotlib as found
    except ImportError:
        raise Unsupported(
            context,
            "matplotlib is not installed",
            hint="pip install 'rlxweb[plot]'",
        ) from None
    return found


def get_or_make_axes(
    ax: Any, context: str, *, width: float = 8.0, height: float = 3.6
) -> Any:
    """Return the caller's axes, or the axes of a new pyplot figure of this size in
    inches.
    """
    import_matplotlib(context)
    return (
        ax
        if ax is not None
        else make_figure(context, width=width, height=height).subplots()
    )


def make_figure(context: str, *, width: float, height: float) -> Any:
    """Return a new pyplot figure of this size in inches."""
    import_matplotlib(context)
    from matplotlib import pyplot

    return pyplot.figure(figsize=(width, height), layout="constrained")


def with_rlxweb_style(draw: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function of (result, ax=None) so that a figure it makes has rlxweb's
    style.

    Inside `style` it is the caller's look, dark or light, and their axes are theirs.
    """
    ax_position = list(signature(draw).parameters).index("ax")

    @wraps(draw)
    def draw_styled(*args: P.args, **options: P.kwargs) -> T:
        import_matplotlib(f"rlxweb.plot.{draw.__name__}")
        ax = args[ax_position] if len(args) > ax_position else options.get("ax")
        needs_style = ax is None and not _is_styled.get()
        with style() if needs_style else nullcontext():
            return draw(*args, **options)

    return draw_styled
