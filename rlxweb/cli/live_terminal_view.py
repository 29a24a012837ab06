"""Terminal view of a running signal: latency, a spectrum, peaks and bands.

Owns what a screen of some size shows of an update; redraws are the command's business.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.text import Text

from rlxweb.cli.console import format_count
from rlxweb.core.message_text import abbreviate, printable
from rlxweb.live.continuous_analysis import LiveUpdate
from rlxweb.results.power_units import power_to_decibels, power_unit
from rlxweb.results.svg_charts import COLOURS, tick_values
from rlxweb.signal.band_power import BandPower

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_AXIS_WIDTH: Final = 7
_SPAN_DB: Final = 60.0
_MAX_PEAKS: Final = 3
_MIN_BANDS_WIDTH: Final = 60
"""Terminal width below which peaks are shown without bands."""


def render_view(
    update: LiveUpdate, width: int, height: int, row: int = 0, colour: bool = True
) -> Text:
    """Return at most `height` lines of at most `width` cells.

    row     the channel whose spectrum is drawn
    colour  False: bands are told in words, as bars of one colour tell nothing
    """
    lines = [_title_line(update, width), _status_line(update, width)]
    if update.frame is None:
        lines.append(
            _truncated_text("waiting for the first complete segment …", width, "dim")
        )
        return Text("\n").join(lines)
    free_lines = height - len(lines)
    n_channels = len(update.stream_info.channels)
    spectrum_height = min(10, free_lines - min(n_channels, 4) - 4)
    if spectrum_height >= 3 and width >= 30:
        lines += _spectrum_lines(update, width, spectrum_height, row)
    band_legend = _band_legend(update, width)
    if band_legend is not None and colour:
        lines.append(band_legend)
    free_lines = height - len(lines)
    n_shown = n_channels if n_channels <= free_lines else max(0, free_lines - 1)
    lines += [_channel_line(update, index, width, colour) for index in range(n_shown)]
    if n_shown < n_channels:
        lines.append(
            _truncated_text(
                f"… {format_count(n_channels - n_shown, 'more channel')}", width, "dim"
            )
        )
    return Text("\n").join(lines[:height])


def render_status(update: LiveUpdate, width: int, viewers: int) -> Text:
    """Return one line of at most `width` cells, for a signal that is shown on a
    page.
    """
    return _status_line(
        update, width, f"{format_count(viewers, 'viewer')} · Ctrl-C stops"
    )


def format_line(update: LiveUpdate) -> str:
    """Return an update as one line, for output that is no terminal."""
    message = f"{update.duration_s:.1f} s"
    if update.is_stalled:
        message += f", no samples for {update.silent_s:.1f} s"
    if update.n_lost:
        message += f", {format_count(update.n_lost, 'sample')} lost"
    if update.frame is None:
        return message + ", no complete segment yet"
    peaks = update.frame.peaks
    channel_texts = []
    for index, name in enumerate(update.stream_info.channels[:4]):
        hz = peaks.hz[index, : min(_MAX_PEAKS, int(peaks.count[index]))]
        channel_texts.append(
            f"{name} {', '.join(f'{value:.1f}' for value in hz) or 'none'}"
        )
    rest = len(update.stream_info.channels) - 4
    rest_text = f"; {format_count(rest, 'more channel')}" if rest > 0 else ""
    return printable(f"{message}, peaks in Hz: {'; '.join(channel_texts)}{rest_text}")


def _truncated_text(text: str, width: int, style: str = "") -> Text:
    """Return printable text that is truncated to a width."""
    truncated = Text(printable(text), style=style, no_wrap=True)
    truncated.truncate(max(1, width), overflow="ellipsis")
    return truncated


def _title_line(update: LiveUpdate, width: int) -> Text:
    """Return the line with the stream's name, channels and rate."""
    stream_info = update.stream_info
    channels_text = format_count(len(stream_info.channels), "channel")
    return _truncated_text(
        f"{stream_info.name} · {channels_text} at {stream_info.fs:g} Hz", width, "bold"
    )


def _status_line(update: LiveUpdate, width: int, suffix: str = "") -> Text:
    """Return the line with the time, lost samples, rate and latency."""
    if update.is_stalled:
        problem = f"no samples for {update.silent_s:.0f} s"
        problem += f" · {suffix}" * bool(suffix)
        return _truncated_text(
            f"{update.duration_s:.1f} s · {problem}", width, "bold yellow"
        )
    parts = [f"{update.duration_s:.1f} s"]
    if update.n_lost:  # first: a narrow terminal cuts the end off
        parts.append(f"{format_count(update.n_lost, 'sample')} lost")
    if np.isfinite(update.arrival_rate):
        parts.append(f"{update.arrival_rate:.4g} Hz received")
    if np.isfinite(update.latency_s):
        parts.append(f"{update.latency_s * 1e3:.1f} ms latency")
    if suffix:
        parts.append(suffix)
    return _truncated_text(
        " · ".join(parts), width, "yellow" if update.n_lost else "dim"
    )


def _spectrum_lines(
    update: LiveUpdate, width: int, height: int, row: int
) -> list[Text]:
    """Return the spectrum of a channel as columns of block characters, with its
    axes.
    """
    frame = update.frame
    assert frame is not None
    row = min(row, len(update.stream_info.channels) - 1)
    levels = power_to_decibels(frame.power[row])
    n_columns = width - _AXIS_WIDTH
    columns = _column_maxima(levels, n_columns)
    finite_levels = columns[np.isfinite(columns)]
    high = float(finite_levels.max()) if finite_levels.size else 0.0
    low = (
        max(float(np.percentile(finite_levels, 2)), high - _SPAN_DB)
        if finite_levels.size
        else -1.0
    )
    fraction = (columns - low) / max(high - low, 1e-9)
    eighths = (
        np.nan_to_num(np.clip(fraction, 0.0, 1.0) * height * 8).round().astype(int)
    )
    unit = power_unit(update.stream_info.unit, "density")
    name = abbreviate(update.stream_info.channels[row], 24)
    head = f"{name}, dB{f' re 1 {unit}' if unit else ''}"
    lines = [_truncated_text(" " * _AXIS_WIDTH + head, width, "dim")]
    for line_index in range(height):
        base = (height - 1 - line_index) * 8
        text = "".join(_BLOCKS[int(np.clip(value - base, 0, 8))] for value in eighths)
        label = {0: f"{high:.0f}", height - 1: f"{low:.0f}"}.get(line_index, "")
        styled_line = Text(f"{label:>{_AXIS_WIDTH - 1}} ", style="dim", no_wrap=True)
        lines.append(styled_line.append(text, style=COLOURS[5]))
    lines.append(_axis_line(float(frame.f[0]), float(frame.f[-1]), n_columns))
    return lines


def _column_maxima(levels: NDArray[np.float64], n_columns: int) -> NDArray[np.float64]:
    """Return levels (F,) as `n_columns` columns, each the highest level that falls into
    it.
    """
    column_edges = np.linspace(0, len(levels), n_columns + 1)
    if len(levels) <= n_columns:
        nearest_levels: NDArray[np.float64] = levels[column_edges[:-1].astype(int)]
        return nearest_levels
    starts = np.unique(column_edges[:-1].astype(int))
    maxima: NDArray[np.float64] = np.fmax.reduceat(levels, starts)
    return maxima


def _axis_line(low: float, high: float, n_columns: int) -> Text:
    """Return the frequency axis as a line of labels."""
    cells = [" "] * (n_columns + _AXIS_WIDTH)
    for value in tick_values(low, high, max(2, n_columns // 12)):
        label = f"{value:g}"
        start = _AXIS_WIDTH + round(
            (value - low) / max(high - low, 1e-9) * (n_columns - 1)
        )
        start = min(start, len(cells) - len(label))
        if all(cell == " " for cell in cells[start - 1 : start + len(label)]):
            cells[start : start + len(label)] = label
    if n_columns > 20 and cells[-3:] == [" "] * 3:
        cells[-2:] = "Hz"
    return Text("".join(cells), style="dim", no_wrap=True)


def _band_legend(update: LiveUpdate, width: int) -> Text | None:
    """Return the legend of the bands; None without bands or room."""
    if update.bands is None or width < _MIN_BANDS_WIDTH:
        return None
    legend = Text("bands: ", style="dim", no_wrap=True)
    for index, name in enumerate(update.bands.names):
        legend.append("█ ", style=COLOURS[index % len(COLOURS)]).append(
            f"{name}  ", "dim"
        )
    legend.truncate(width)
    return legend


def _channel_line(update: LiveUpdate, row: int, width: int, colour: bool) -> Text:
    """Return the line of a channel: its name, its peaks and its band shares."""
    frame = update.frame
    assert frame is not None
    peaks = frame.peaks
    hz = peaks.hz[row, : min(_MAX_PEAKS, int(peaks.count[row]))]
    max_name_width = max(6, min(16, width // 4))
    name = abbreviate(update.stream_info.channels[row], max_name_width)
    styled_line = Text(no_wrap=True)
    styled_line.append(
        printable(name) + " " * max(1, max_name_width + 1 - cell_len(name))
    )
    peaks_text = "  ".join(f"{value:6.1f}" for value in hz)
    styled_line.append(
        f"{peaks_text:<22}" if len(hz) else f"{'no peak':<22}", "bold" * bool(len(hz))
    )
    styled_line.append(" Hz " if len(hz) else "    ", "dim")
    free_width = min(40, width - styled_line.cell_len)
    if update.bands is not None and width >= _MIN_BANDS_WIDTH and free_width >= 10:
        styled_line.append(
            _shares_bar(update.bands, row, free_width)
            if colour
            else _shares_text(update.bands, row)
        )
    styled_line.truncate(max(1, width))
    return styled_line


def _shares_bar(bands: BandPower, row: int, width: int) -> Text:
    """Return the band shares of a channel as parts of a bar."""
    bar, begin = Text(no_wrap=True), 0
    ends = np.round(np.cumsum(np.nan_to_num(bands.relative[row])) * width).astype(int)
    for band, end in enumerate(ends):
        bar.append("█" * (end - begin), COLOURS[band % len(COLOURS)])
        begin = max(begin, end)
    return bar


def _shares_text(bands: BandPower, row: int) -> Text:
    """Return the band shares of a channel in words, the largest first."""
    shares = np.nan_to_num(bands.relative[row])
    order = np.argsort(-shares, kind="stable")
    parts = (f"{bands.names[band]} {100 * shares[band]:.0f} %" for band in order)
    return Text(printable(", ".join(parts)), no_wrap=True)
