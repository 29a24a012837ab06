"""The picture: spectra with their peaks marked, or a channels × frequency heatmap.

Owns the figure of a recording and what stands above it; `rlxweb.plot` draws spectra.
matplotlib is loaded here, only when a picture is asked for, and its settings are left
as they were.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from rlxweb.cli.look import PLAIN, Look
from rlxweb.cli.screen import counted
from rlxweb.errors import (
    NotWritten,
    PictureWarning,
    RlxError,
    Unsupported,
    UsageError,
)
from rlxweb.jobs.results import FileResult, GroupResult
from rlxweb.plot.curves import Later, offset, overlaid, panels
from rlxweb.plot.heat import heatmap, height_of
from rlxweb.plot.lettering import LATIN, Lettering
from rlxweb.plot.lines import decibel_label
from rlxweb.plot.naming import MOST
from rlxweb.plot.page import named, picture_page, spectra
from rlxweb.plot.rows import LINES, Rows, quantity_levels, way_of
from rlxweb.plot.theme import quiet_text, settings
from rlxweb.streams import is_stream

# Laying out more panels takes minutes, and looking at them no less.
PANELS = 16
FORMATS = (".png", ".svg", ".pdf")
PAGES = (*FORMATS, ".html")
"""Where a page one can look around in is made as well."""
DPI = 130
# The room a name may take in a title.
_MOST_FILE_NAME = 48
_SILENT = logging.NullHandler()


def check_plot(path: str, formats: Sequence[str] = FORMATS) -> None:
    """Refuse what could not be drawn.

    Errors   UsageError for an unknown suffix; Unsupported when matplotlib is missing.
    """
    if picture_format(path, formats) == "html":
        return
    # Where nobody listens it tells of its folders on standard error, in its own lines.
    logging.getLogger("matplotlib").addHandler(_SILENT)
    try:
        import matplotlib.figure  # noqa: F401  loading it is the question
    except ImportError:
        raise Unsupported(
            f"--plot {path!r}",
            "matplotlib is not installed",
            hint="pip install 'rlxweb[plot]'",
        ) from None


def picture_format(path: str, formats: Sequence[str] = PAGES) -> str:
    """By the suffix; what goes into a stream without one is PNG.

    Errors   UsageError for an unknown suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix in formats:
        return suffix[1:]
    if is_stream(path):
        return "png"
    raise UsageError(
        f"--plot {path!r}", f"the suffix is {suffix!r}", "known: " + ", ".join(formats)
    )


def put_plot(file: IO[bytes], result: FileResult, how: str, look: Look = PLAIN) -> None:
    """One panel per group of equal rate, in the format `how`; the first 16 of them.

    Warns    PictureWarning for letters that no font of this machine has, for rates
             that are left out, and for lines that are too many
    Errors   NotWritten when the picture cannot be drawn.
    """
    doing = f"drawing {result.path!r}"
    more = len(result.groups) - PANELS
    if more > 0:
        said = f"{doing}: {more} of {len(result.groups)} rates are left out of it"
        why = "the channels that are asked for by name (-c) are shown"
        warnings.warn(PictureWarning(said, why), stacklevel=2)
    if how == "html":
        file.write(_page(result, look).encode())
        return
    letters = lettering_of(result)
    warn_of_letters(letters, doing)
    most = max((len(group.names) for group in result.groups), default=0)
    if most > LINES and look.lines not in (None, "heatmap"):
        said = f"{doing}: {most} channels are drawn as a heatmap"
        why = f"up to {LINES} are drawn as lines; -c chooses them"
        warnings.warn(PictureWarning(said, why), stacklevel=2)
    draw = partial(_figure, result, letters, look)
    put_figure(file, draw, how, letters, doing, look.dark)


def warn_of_letters(letters: Lettering, doing: str) -> None:
    """Tell of what no font has. Warns  PictureWarning."""
    if letters.missing:
        some = " ".join(sorted(letters.missing)[:8])
        said = f"{doing}: no font here has {some}; they are written as numbers"
        warnings.warn(PictureWarning(said), stacklevel=3)


def lettering_of(result: FileResult) -> Lettering:
    """Fonts for everything that the file says of itself."""
    texts = [result.path]
    for group in result.groups:
        texts += [*group.names, *map(group.power_unit, group.units), group.engine]
        texts += [] if group.epochs is None else [group.epochs.condition]
    return Lettering.of(texts)


def new_figure(width: float, height: float) -> Any:
    """An empty picture, in inches, outside matplotlib's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def put_figure(
    file: IO[bytes],
    draw: Callable[[], Any],
    how: str,
    letters: Lettering = LATIN,
    doing: str = "drawing the picture",
    dark: bool = False,
) -> None:
    """What `draw` makes into an open file, in the format `how`.

    Errors   NotWritten for whatever the drawing library dies of.
    """
    import matplotlib

    look: Any = settings(dark) | {"font.family": list(letters.families)}
    with (
        warnings.catch_warnings(),
        matplotlib.rc_context(look),
    ):
        warnings.simplefilter("ignore")  # about fonts; it would help nobody here
        try:
            draw().savefig(file, dpi=DPI, format=how)
        except (RlxError, OSError, MemoryError):
            raise
        except Exception as error:
            why = f"matplotlib failed ({type(error).__name__}: {error})"
            raise NotWritten(doing, why) from error


def _figure(result: FileResult, letters: Lettering, look: Look = PLAIN) -> Any:
    groups = result.groups[:PANELS]
    tall = [_height(group, look) for group in groups]
    figure = new_figure(11, sum(tall) + 0.3)
    figure.suptitle(_file_name(result, letters), x=0.008, ha="left")
    parts = figure.subfigures(len(tall), 1, squeeze=False, height_ratios=tall)[:, 0]
    later = []
    for part, group in zip(parts, groups, strict=True):
        part.suptitle(
            _facts(group, partial(letters.shown, most=_MOST_FILE_NAME)),
            x=0.008,
            ha="left",
            fontsize=9,
            fontweight="normal",
            color=quiet_text(look.dark),
        )
        later.append(_draw(part, group, letters, look))
    figure.draw_without_rendering()
    for name_peaks in later:
        name_peaks()
    return figure


def _draw(part: Any, group: GroupResult, letters: Lettering, look: Look) -> Later:
    """A group of channels into a part of the figure."""
    doing = "--axis log"
    rows = rows_of(group, partial(letters.shown, most=MOST)).within(
        None, None, look.log, doing
    )
    way = way_of(len(rows), look.lines)
    if way == "panels":
        across = _across(len(rows))
        down = -(-len(rows) // across)
        axes = part.subplots(down, across, squeeze=False).reshape(-1)
        for unused in axes[len(rows) :]:
            unused.set_visible(False)
        return panels(axes[: len(rows)], rows, look.log, across)
    axis = part.subplots()
    if way == "heatmap":
        return heatmap(axis, rows, look.log, 3 if group.mode == "peaks" else 1)
    return (offset if way == "offset" else overlaid)(axis, rows, look.log)


def _page(result: FileResult, look: Look) -> str:
    panels = [
        spectra(rows_of(group, named), _facts(group, named), look.lines)
        for group in result.groups[:PANELS]
    ]
    return picture_page(Path(result.path).name, "", panels, look.log, look.dark)


def rows_of(group: GroupResult, shown: Callable[[str], str]) -> Rows:
    """What is drawn of a group. shown: how a name is."""
    level = quantity_levels(group.power)
    level[[bool(state) for state in group.states]] = np.nan
    peaks = group.peaks
    taken = [slice(0, int(n)) for n in peaks.count]
    power = quantity_levels(peaks.power)
    marks = tuple((peaks.hz[at, n], power[at, n]) for at, n in enumerate(taken))
    return Rows(
        names=tuple(map(shown, group.names)),
        f=np.asarray(group.hz, np.float64),
        level=level,
        label=decibel_label(_unit(group, shown)),
        step=group.resolution,
        marks=marks,
        states=group.states,
        skip=_offset_bins(group),
        noun="peak" if group.mode == "peaks" else "bin",
    )


def _offset_bins(group: GroupResult) -> int:
    """How many bins from 0 Hz up an offset of the signal fills.

    Removed by detrending, it leaves bin 0 with nothing to say; left in, the window's
    main lobe carries it into bin 1.
    """
    wanted = max(0, (1 if group.spec.detrend else 2) - group.first_bin)
    return wanted if len(group.hz) > 4 * wanted else 0


def _unit(group: GroupResult, shown: Callable[[str], str]) -> str:
    units = {group.power_unit(u) for u in group.units}
    return shown(units.pop()) if len(units) == 1 else ""


def _across(rows: int) -> int:
    """Panels side by side."""
    return 1 if rows < 4 else 2


def _height(group: GroupResult, look: Look) -> float:
    rows = len(group.names)
    way = way_of(rows, look.lines)
    if way == "heatmap":
        return height_of(rows)
    if way == "panels":
        return 0.9 + 1.45 * -(-rows // _across(rows))
    return max(4.2, 1.6 + 0.62 * rows) if way == "offset" else 4.6


def _file_name(result: FileResult, letters: Lettering) -> str:
    return letters.shown(Path(result.path).name, _MOST_FILE_NAME)


def _facts(group: GroupResult, shown: Callable[[str], str]) -> str:
    channels = counted(len(group.names), "channel")
    of = ""
    if group.epochs is not None:
        of = f"{shown(group.epochs.short)} · "
    return (
        f"{channels} at {group.fs:g} Hz · {of}"
        f"{group.n_segments} × {group.spec.nperseg} samples, "
        f"{group.resolution:.3g} Hz per bin · {shown(group.engine)}"
    )
