"""The picture of `rlxweb spectrogram`: a panel per channel, one scale of colours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.cli.plot import new_figure, put_figure
from rlxweb.cli.scales import SPAN_DB, decibels
from rlxweb.cli.screen import counted
from rlxweb.jobs.spectrogram import GroupSpectrogram
from rlxweb.plot.frequencies import log_ticks
from rlxweb.plot.lettering import Lettering

PANELS = 16
_MOST_NAME = 24
# Units of a time axis: from how many seconds on, their length, their name.
_TIMES = ((3 * 3600.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def put_picture(
    file: IO[bytes],
    path: str,
    groups: Sequence[GroupSpectrogram],
    how: str,
    is_log: bool = False,
) -> None:
    """The first 16 channels of each group. Errors  NotWritten."""
    texts = [path, *(name for one in groups for name in (*one.names, *one.units))]
    texts += [one.epochs.condition for one in groups if one.epochs is not None]
    letters = Lettering.of(texts)
    draw = partial(_figure, path, groups, is_log, letters)
    put_figure(file, draw, how, letters, f"drawing {path!r}")


def _figure(
    path: str, groups: Sequence[GroupSpectrogram], is_log: bool, letters: Lettering
) -> Any:
    panels = [(own, at) for own in groups for at in range(min(PANELS, len(own.names)))][
        :PANELS
    ]
    tall = 2.6 if len(panels) == 1 else 1.35
    figure = new_figure(11, 1.2 + tall * len(panels))
    axes = figure.subplots(len(panels), 1, squeeze=False, sharex=len(groups) == 1)
    image = None
    # One bar of colours holds for all that is drawn.
    ranges = [_range(own) for own in groups]
    levels = min(low for low, _ in ranges), max(high for _, high in ranges)
    for axis, (own, at) in zip(axes[:, 0], panels, strict=True):
        image = _panel(axis, own, at, is_log, levels)
        axis.set_title(_name_of(own, at, letters), fontsize=8, loc="left", pad=2)
    first = groups[0]
    _, unit_s, unit = next(t for t in _TIMES if first.seconds >= t[0])
    for axis in axes[:, 0]:
        axis.xaxis.set_major_formatter(lambda s, _: f"{s / unit_s:g}")
    since = "" if first.epochs is None else " from the annotation"
    axes[-1, 0].set_xlabel(f"time{since} ({unit})")
    figure.supylabel("frequency (Hz)", fontsize=10)
    if image is not None:
        units = {unit for own in groups for unit in own.units}
        one = letters.shown(units.pop().replace("uV", "µV"), _MOST_NAME)
        label = f"power (dB re 1 {one}²/Hz)" if not units and one else "power (dB)"
        if first.baseline is not None:
            label = "power over {:g} to {:g} s (dB)".format(*first.baseline)
        bar = figure.colorbar(image, ax=axes[:, 0], pad=0.01, fraction=0.03)
        bar.set_label(label)
    shown = len(panels)
    every = sum(len(own.names) for own in groups)
    more = f", {shown} panels drawn" if shown < every else ""
    many = counted(every, "channel")
    if first.epochs is not None:
        texts = dict.fromkeys(own.epochs.condition for own in groups if own.epochs)
        more = f", {counted(len(texts), 'condition')}{more}"
        many = counted(every // len(texts), "channel")
    figure.suptitle(
        f"{letters.shown(Path(path).name, 48)} · {many}{more} · "
        f"{first.nperseg} samples per segment, {first.fs / first.nperseg:.3g} Hz per "
        "bin",
        fontsize=10,
        x=0.01,
        ha="left",
    )
    return figure


def _name_of(own: GroupSpectrogram, at: int, letters: Lettering) -> str:
    name = letters.shown(own.names[at], _MOST_NAME)
    if own.epochs is None:
        return name
    return f"{name} · {letters.shown(own.epochs.short, 48)}"


def _range(own: GroupSpectrogram) -> tuple[float, float]:
    """Decibels from the faint to the strong, an offset at 0 Hz left aside."""
    skip = 2 if own.f[0] == 0 and len(own.f) > 8 else 0
    level = decibels(own.power[:PANELS, skip:])
    known = level[np.isfinite(level)]
    if not known.size:
        return 0.0, 1.0
    low, high = np.percentile(known, [2, 99.8])
    if own.baseline is not None:
        most = max(abs(low), abs(high), 1.0)
        return -float(most), float(most)
    low = max(low, high - SPAN_DB)
    return float(low), float(max(high, low + 1.0))


def _panel(
    axis: Any,
    own: GroupSpectrogram,
    at: int,
    is_log: bool,
    levels: tuple[float, float],
) -> Any:
    low, high = levels
    first = 1 if is_log and own.f[0] == 0 else 0
    level = decibels(own.power[at, first:])
    level = np.where(np.isneginf(level), low, level)
    moments = _edges(own.t, own.column_s)
    image = axis.pcolormesh(
        moments,
        _edges(own.f[first:], own.fs / own.nperseg),
        level,
        vmin=low,
        vmax=high,
        cmap="viridis" if own.baseline is None else "RdBu_r",
        rasterized=True,
    )
    axis.set_xlim(moments[0], moments[-1])
    if own.epochs is not None and moments[0] < 0 < moments[-1]:
        axis.axvline(0.0, color="0.2", lw=0.8, ls="--")
    if is_log:
        axis.set_yscale("log")
        log_ticks(axis.yaxis, float(own.f[first]), float(own.f[-1]))
    axis.tick_params(labelsize=7)
    axis.set_facecolor("0.8")  # where samples were not finite
    return image


def _edges(middles: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Edges between middles; where there is one, half a step to either side."""
    if len(middles) < 2:
        return np.array([middles[0] - step / 2, middles[0] + step / 2])
    inner = (middles[1:] + middles[:-1]) / 2
    ends = 2 * middles[0] - inner[0], 2 * middles[-1] - inner[-1]
    return np.concatenate([[ends[0]], inner, [ends[1]]])
