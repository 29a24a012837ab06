"""A running signal on a terminal: how it keeps up, a spectrum, peaks and bands.

Owns what a screen of some size shows of an update; redraws are the command's business.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.text import Text

from rlxweb.cli.screen import counted
from rlxweb.live.watch import Update
from rlxweb.printable import abridged, printable
from rlxweb.results.svg import COLOURS, ticks
from rlxweb.results.units import decibels, power_unit
from rlxweb.signal.bands import BandPower

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_LEFT: Final = 7
_SPAN_DB: Final = 60.0
_PEAKS: Final = 3
_NARROW: Final = 60
"""Columns below which peaks have a line's end to themselves, without bands."""


def view(
    update: Update, width: int, height: int, row: int = 0, colour: bool = True
) -> Text:
    """At most `height` lines of at most `width` cells.

    row     the channel whose spectrum is drawn
    colour  False: bands are told in words, as bars of one colour tell nothing
    """
    lines = [_head(update, width), _state(update, width)]
    if update.frame is None:
        lines.append(_cut("waiting for the first whole segment …", width, "dim"))
        return Text("\n").join(lines)
    room = height - len(lines)
    rows = len(update.stream.channels)
    tall = min(10, room - min(rows, 4) - 4)
    if tall >= 3 and width >= 30:
        lines += _spectrum(update, width, tall, row)
    bands = _band_head(update, width)
    if bands is not None and colour:
        lines.append(bands)
    room = height - len(lines)
    shown = rows if rows <= room else max(0, room - 1)
    lines += [_channel(update, at, width, colour) for at in range(shown)]
    if shown < rows:
        lines.append(_cut(f"… {counted(rows - shown, 'more channel')}", width, "dim"))
    return Text("\n").join(lines[:height])


def status(update: Update, width: int, viewers: int) -> Text:
    """One line of at most `width` cells, where the rest is on a page."""
    return _state(update, width, f"{counted(viewers, 'viewer')} · Ctrl-C ends it")


def line(update: Update) -> str:
    """One line of it, for what is no terminal."""
    said = f"{update.seconds:.1f} s"
    if update.is_stalled:
        said += f", no samples for {update.silent_s:.1f} s"
    if update.lost:
        said += f", {counted(update.lost, 'sample')} lost"
    if update.frame is None:
        return said + ", no whole segment yet"
    peaks = update.frame.peaks
    found = []
    for at, name in enumerate(update.stream.channels[:4]):
        hz = peaks.hz[at, : min(_PEAKS, int(peaks.count[at]))]
        found.append(f"{name} {', '.join(f'{one:.1f}' for one in hz) or 'none'}")
    rest = len(update.stream.channels) - 4
    more = f"; {rest} more channels" if rest > 0 else ""
    return printable(f"{said}, peaks in Hz: {'; '.join(found)}{more}")


def _cut(text: str, width: int, style: str = "") -> Text:
    own = Text(printable(text), style=style, no_wrap=True)
    own.truncate(max(1, width), overflow="ellipsis")
    return own


def _head(update: Update, width: int) -> Text:
    about = update.stream
    many = counted(len(about.channels), "channel")
    return _cut(f"{about.name} · {many} at {about.fs:g} Hz", width, "bold")


def _state(update: Update, width: int, more: str = "") -> Text:
    if update.is_stalled:
        said = f"no samples for {update.silent_s:.0f} s"
        said += f" · {more}" * bool(more)
        return _cut(f"{update.seconds:.1f} s · {said}", width, "bold yellow")
    parts = [f"{update.seconds:.1f} s"]
    if update.lost:  # first: a narrow terminal cuts the end off
        parts.append(f"{update.lost} lost")
    if np.isfinite(update.rate):
        parts.append(f"{update.rate:.4g} Hz come")
    if np.isfinite(update.latency_s):
        parts.append(f"{update.latency_s * 1e3:.1f} ms behind")
    if more:
        parts.append(more)
    return _cut(" · ".join(parts), width, "yellow" if update.lost else "dim")


def _spectrum(update: Update, width: int, tall: int, row: int) -> list[Text]:
    """The spectrum of a channel as columns of blocks, with its axes."""
    frame = update.frame
    assert frame is not None
    row = min(row, len(update.stream.channels) - 1)
    level = decibels(frame.power[row])
    wide = width - _LEFT
    columns = _columns(level, wide)
    known = columns[np.isfinite(columns)]
    high = float(known.max()) if known.size else 0.0
    low = max(float(np.percentile(known, 2)), high - _SPAN_DB) if known.size else -1.0
    share = (columns - low) / max(high - low, 1e-9)
    eighths = np.nan_to_num(np.clip(share, 0.0, 1.0) * tall * 8).round().astype(int)
    unit = power_unit(update.stream.unit, "density")
    name = abridged(update.stream.channels[row], 24)
    head = f"{name}, dB{f' re 1 {unit}' if unit else ''}"
    lines = [_cut(" " * _LEFT + head, width, "dim")]
    for at in range(tall):
        base = (tall - 1 - at) * 8
        text = "".join(_BLOCKS[int(np.clip(one - base, 0, 8))] for one in eighths)
        edge = {0: f"{high:.0f}", tall - 1: f"{low:.0f}"}.get(at, "")
        own = Text(f"{edge:>{_LEFT - 1}} ", style="dim", no_wrap=True)
        lines.append(own.append(text, style=COLOURS[5]))
    lines.append(_axis(float(frame.f[0]), float(frame.f[-1]), wide))
    return lines


def _columns(level: NDArray[np.float64], wide: int) -> NDArray[np.float64]:
    """Levels (F,) as so many columns, the highest of what falls into each."""
    at = np.linspace(0, len(level), wide + 1)
    if len(level) <= wide:
        near: NDArray[np.float64] = level[at[:-1].astype(int)]
        return near
    starts = np.unique(at[:-1].astype(int))
    found: NDArray[np.float64] = np.fmax.reduceat(level, starts)
    return found


def _axis(low: float, high: float, wide: int) -> Text:
    cells = [" "] * (wide + _LEFT)
    for value in ticks(low, high, max(2, wide // 12)):
        label = f"{value:g}"
        at = _LEFT + round((value - low) / max(high - low, 1e-9) * (wide - 1))
        at = min(at, len(cells) - len(label))
        if all(cell == " " for cell in cells[at - 1 : at + len(label)]):
            cells[at : at + len(label)] = label
    if wide > 20 and cells[-3:] == [" "] * 3:
        cells[-2:] = "Hz"
    return Text("".join(cells), style="dim", no_wrap=True)


def _band_head(update: Update, width: int) -> Text | None:
    if update.bands is None or width < _NARROW:
        return None
    own = Text("bands: ", style="dim", no_wrap=True)
    for at, name in enumerate(update.bands.names):
        own.append("█ ", style=COLOURS[at % len(COLOURS)]).append(f"{name}  ", "dim")
    own.truncate(width)
    return own


def _channel(update: Update, at: int, width: int, colour: bool) -> Text:
    """Its name, its peaks, and what it is made of."""
    frame = update.frame
    assert frame is not None
    peaks = frame.peaks
    hz = peaks.hz[at, : min(_PEAKS, int(peaks.count[at]))]
    most = max(6, min(16, width // 4))
    name = abridged(update.stream.channels[at], most)
    own = Text(no_wrap=True)
    own.append(printable(name) + " " * max(1, most + 1 - cell_len(name)))
    said = "  ".join(f"{one:6.1f}" for one in hz)
    own.append(f"{said:<22}" if len(hz) else f"{'no peak':<22}", "bold" * bool(len(hz)))
    own.append(" Hz " if len(hz) else "    ", "dim")
    room = min(40, width - own.cell_len)
    if update.bands is not None and width >= _NARROW and room >= 10:
        own.append(_bar(update.bands, at, room) if colour else _words(update.bands, at))
    own.truncate(max(1, width))
    return own


def _bar(bands: BandPower, at: int, room: int) -> Text:
    """The shares of a channel as parts of a bar."""
    own, begin = Text(no_wrap=True), 0
    ends = np.round(np.cumsum(np.nan_to_num(bands.relative[at])) * room).astype(int)
    for band, end in enumerate(ends):
        own.append("█" * (end - begin), COLOURS[band % len(COLOURS)])
        begin = max(begin, end)
    return own


def _words(bands: BandPower, at: int) -> Text:
    """The shares of a channel, the largest first."""
    share = np.nan_to_num(bands.relative[at])
    order = np.argsort(-share, kind="stable")
    said = (f"{bands.names[band]} {100 * share[band]:.0f} %" for band in order)
    return Text(printable(", ".join(said)), no_wrap=True)
