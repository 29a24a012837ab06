"""Plot of Welch spectra with their peaks marked, or a channels × frequency heatmap.

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

from rlxweb.batch.results import FileResult, GroupResult
from rlxweb.cli.console import format_count
from rlxweb.cli.plot_options import DEFAULT_PLOT_STYLE, PlotStyle
from rlxweb.core.errors import (
    NotWritten,
    PictureWarning,
    RlxError,
    Unsupported,
    UsageError,
)
from rlxweb.core.output_streams import is_stream
from rlxweb.plot.font_selection import DEFAULT_FONTS, FontSelection
from rlxweb.plot.heatmap import draw_heatmap, heatmap_height
from rlxweb.plot.html_page import render_page, shorten_name, spectra_panel
from rlxweb.plot.row_labels import MAX_NAME_LENGTH
from rlxweb.plot.spectrum_line_drawing import (
    DeferredDraw,
    draw_offset,
    draw_overlaid,
    draw_panels,
)
from rlxweb.plot.spectrum_plot_data import (
    MAX_LINES,
    SpectrumRows,
    choose_line_layout,
    power_levels,
)
from rlxweb.plot.spectrum_plots import decibel_label
from rlxweb.plot.theme import muted_text_colour, style_settings

# Laying out more panels takes minutes, and looking at them no less.
MAX_PANELS = 16
IMAGE_SUFFIXES = (".png", ".svg", ".pdf")
PLOT_SUFFIXES = (*IMAGE_SUFFIXES, ".html")
"""Suffixes accepted where an interactive HTML page can be written as well."""
DPI = 130
# The room a name may take in a title.
_MAX_FILE_NAME_LENGTH = 48
_NULL_LOG_HANDLER = logging.NullHandler()


def check_plot(path: str, formats: Sequence[str] = IMAGE_SUFFIXES) -> None:
    """Raise an error if the plot could not be drawn.

    Errors   UsageError for an unknown suffix; Unsupported when matplotlib is missing.
    """
    if picture_format(path, formats) == "html":
        return
    # Where nobody listens it tells of its folders on standard error, in its own lines.
    logging.getLogger("matplotlib").addHandler(_NULL_LOG_HANDLER)
    try:
        import matplotlib.figure  # noqa: F401  loading it is the question
    except ImportError:
        raise Unsupported(
            f"--plot {path!r}",
            "matplotlib is not installed",
            hint="pip install 'rlxweb[plot]'",
        ) from None


def picture_format(path: str, formats: Sequence[str] = PLOT_SUFFIXES) -> str:
    """Return the file format by the suffix; PNG for a stream without a suffix.

    Errors   UsageError for an unknown suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix in formats:
        return suffix[1:]
    if is_stream(path):
        return "png"
    problem = f"the suffix is {suffix!r}" if suffix else "the file name has no suffix"
    raise UsageError(f"--plot {path!r}", problem, "supported: " + ", ".join(formats))


def write_spectra_picture(
    file: IO[bytes],
    result: FileResult,
    file_format: str,
    style: PlotStyle = DEFAULT_PLOT_STYLE,
) -> None:
    """Write one panel per group of equal rate in the given format, at most 16 of them.

    Warns    PictureWarning for letters that no font of this machine has, for rates
             that are left out, and for lines that are too many
    Errors   NotWritten when the picture cannot be drawn.
    """
    context = f"drawing {result.path!r}"
    n_omitted = len(result.groups) - MAX_PANELS
    if n_omitted > 0:
        message = (
            f"{context}: the channels of {n_omitted} of {len(result.groups)} sampling "
            "rates are not shown"
        )
        advice = "select the channels to show with -c"
        warnings.warn(PictureWarning(message, advice), stacklevel=2)
    if file_format == "html":
        file.write(_html_page(result, style).encode())
        return
    fonts = select_fonts(result)
    warn_missing_glyphs(fonts, context)
    max_channels = max((len(group.names) for group in result.groups), default=0)
    if max_channels > MAX_LINES and style.lines not in (None, "heatmap"):
        message = f"{context}: {max_channels} channels are drawn as a heatmap"
        advice = (
            f"at most {MAX_LINES} channels can be drawn as lines; use -c to select "
            "channels"
        )
        warnings.warn(PictureWarning(message, advice), stacklevel=2)
    draw = partial(_build_figure, result, fonts, style)
    write_figure(file, draw, file_format, fonts, context, style.dark)


def warn_missing_glyphs(fonts: FontSelection, context: str) -> None:
    """Issue a PictureWarning for characters that no font has."""
    if fonts.missing_letters:
        examples = " ".join(sorted(fonts.missing_letters)[:8])
        message = (
            f"{context}: no installed font contains {examples}; these characters are "
            "drawn as escape sequences"
        )
        warnings.warn(PictureWarning(message), stacklevel=3)


def select_fonts(result: FileResult) -> FontSelection:
    """Select fonts that cover all names and texts of a result."""
    texts = [result.path]
    for group in result.groups:
        texts += [*group.names, *map(group.power_unit, group.units), group.engine]
        texts += [] if group.epochs is None else [group.epochs.condition]
    return FontSelection.for_texts(texts)


def new_figure(width: float, height: float) -> Any:
    """Create an empty figure (size in inches) outside matplotlib's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write_figure(
    file: IO[bytes],
    draw: Callable[[], Any],
    file_format: str,
    fonts: FontSelection = DEFAULT_FONTS,
    context: str = "drawing the picture",
    dark: bool = False,
) -> None:
    """Save the figure made by `draw` into an open file in the given format.

    Errors   NotWritten for whatever the drawing library dies of.
    """
    import matplotlib

    rc_params: Any = style_settings(dark) | {"font.family": list(fonts.families)}
    with (
        warnings.catch_warnings(),
        matplotlib.rc_context(rc_params),
    ):
        warnings.simplefilter("ignore")  # about fonts; it would help nobody here
        try:
            draw().savefig(file, dpi=DPI, format=file_format)
        except (RlxError, OSError, MemoryError):
            raise
        except Exception as error:
            cause = f"matplotlib failed ({type(error).__name__}: {error})"
            raise NotWritten(context, cause) from error


def _build_figure(
    result: FileResult, fonts: FontSelection, style: PlotStyle = DEFAULT_PLOT_STYLE
) -> Any:
    groups = result.groups[:MAX_PANELS]
    heights = [_group_height(group, style) for group in groups]
    figure = new_figure(11, sum(heights) + 0.3)
    figure.suptitle(_shown_file_name(result, fonts), x=0.008, ha="left")
    subfigures = figure.subfigures(
        len(heights), 1, squeeze=False, height_ratios=heights
    )[:, 0]
    label_callbacks = []
    for subfigure, group in zip(subfigures, groups, strict=True):
        subfigure.suptitle(
            _group_caption(
                group, partial(fonts.drawable_text, max_chars=_MAX_FILE_NAME_LENGTH)
            ),
            x=0.008,
            ha="left",
            fontsize=9,
            fontweight="normal",
            color=muted_text_colour(style.dark),
        )
        label_callbacks.append(_draw_group(subfigure, group, fonts, style))
    figure.draw_without_rendering()
    for name_peaks in label_callbacks:
        name_peaks()
    return figure


def _draw_group(
    subfigure: Any, group: GroupResult, fonts: FontSelection, style: PlotStyle
) -> DeferredDraw:
    """Draw a group of channels into a subfigure."""
    context = "--axis log"
    rows = spectrum_rows(
        group, partial(fonts.drawable_text, max_chars=MAX_NAME_LENGTH)
    ).crop_frequencies(None, None, style.is_log, context)
    layout = choose_line_layout(len(rows), style.lines)
    if layout == "panels":
        n_columns = _panel_columns(len(rows))
        n_rows = -(-len(rows) // n_columns)
        axes = subfigure.subplots(n_rows, n_columns, squeeze=False).reshape(-1)
        for unused in axes[len(rows) :]:
            unused.set_visible(False)
        return draw_panels(axes[: len(rows)], rows, style.is_log, n_columns)
    axis = subfigure.subplots()
    if layout == "heatmap":
        return draw_heatmap(axis, rows, style.is_log, 3 if group.mode == "peaks" else 1)
    return (draw_offset if layout == "offset" else draw_overlaid)(
        axis, rows, style.is_log
    )


def _html_page(result: FileResult, style: PlotStyle) -> str:
    panels = [
        spectra_panel(
            spectrum_rows(group, shorten_name),
            _group_caption(group, shorten_name),
            style.lines,
        )
        for group in result.groups[:MAX_PANELS]
    ]
    return render_page(Path(result.path).name, "", panels, style.is_log, style.dark)


def spectrum_rows(
    group: GroupResult, format_name: Callable[[str], str]
) -> SpectrumRows:
    """Return the spectra of a group as rows to plot; `format_name` formats channel
    names.
    """
    level = power_levels(group.power)
    level[[bool(state) for state in group.states]] = np.nan
    peaks = group.peaks
    peak_slices = [slice(0, int(n)) for n in peaks.count]
    power = power_levels(peaks.power)
    marks = tuple(
        (peaks.hz[row_index, n], power[row_index, n])
        for row_index, n in enumerate(peak_slices)
    )
    return SpectrumRows(
        names=tuple(map(format_name, group.names)),
        f=np.asarray(group.hz, np.float64),
        level=level,
        label=decibel_label(_common_unit(group, format_name)),
        step=group.resolution,
        peak_marks=marks,
        missing_reasons=group.states,
        n_offset_bins=_offset_bins(group),
        mark_noun="peak" if group.mode == "peaks" else "bin",
    )


def _offset_bins(group: GroupResult) -> int:
    """Return the number of bins from 0 Hz upward that a signal offset fills.

    Removed by detrending, it leaves bin 0 with nothing to say; left in, the window's
    main lobe carries it into bin 1.
    """
    n_bins = max(0, (1 if group.spec.detrend else 2) - group.first_bin)
    return n_bins if len(group.hz) > 4 * n_bins else 0


def _common_unit(group: GroupResult, format_name: Callable[[str], str]) -> str:
    units = {group.power_unit(u) for u in group.units}
    return format_name(units.pop()) if len(units) == 1 else ""


def _panel_columns(n_rows: int) -> int:
    """Return the number of panels side by side."""
    return 1 if n_rows < 4 else 2


def _group_height(group: GroupResult, style: PlotStyle) -> float:
    n_rows = len(group.names)
    layout = choose_line_layout(n_rows, style.lines)
    if layout == "heatmap":
        return heatmap_height(n_rows)
    if layout == "panels":
        return 0.9 + 1.45 * -(-n_rows // _panel_columns(n_rows))
    return max(4.2, 1.6 + 0.62 * n_rows) if layout == "offset" else 4.6


def _shown_file_name(result: FileResult, fonts: FontSelection) -> str:
    return fonts.drawable_text(Path(result.path).name, _MAX_FILE_NAME_LENGTH)


def _group_caption(group: GroupResult, format_name: Callable[[str], str]) -> str:
    channels = format_count(len(group.names), "channel")
    condition = ""
    if group.epochs is not None:
        condition = f"{format_name(group.epochs.summary)} · "
    return (
        f"{channels} at {group.fs:g} Hz · {condition}"
        f"{group.n_segments} × {group.spec.nperseg} samples, "
        f"{group.resolution:.3g} Hz per bin · {format_name(group.engine)}"
    )
