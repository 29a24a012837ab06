"""The picture of `rlxweb spectrogram`: a panel per channel, one scale of colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from rlxweb.cli.look import PLAIN, Look
from rlxweb.cli.plot import new_figure, put_figure, warn_of_letters
from rlxweb.cli.screen import counted
from rlxweb.jobs.spectrogram import GroupSpectrogram
from rlxweb.plot.frequencies import said_axis
from rlxweb.plot.lettering import Lettering
from rlxweb.plot.lines import decibel_label
from rlxweb.plot.page import named, picture_page
from rlxweb.plot.page import surface as surface_panel
from rlxweb.plot.rows import SPAN_DB
from rlxweb.plot.surface import levels_of, span_of, surface
from rlxweb.plot.theme import AROUND, MAP, quiet_text
from rlxweb.results.units import power_unit

PANELS = 16
Shown = Callable[[str], str]
"""How a name is."""
# Units of a time axis: from how many seconds on, their length, their name.
_TIMES = ((3 * 3600.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def put_picture(
    file: IO[bytes],
    path: str,
    groups: Sequence[GroupSpectrogram],
    how: str,
    look: Look = PLAIN,
) -> None:
    """The first 16 channels of each group. Errors  NotWritten."""
    if how == "html":
        file.write(_page(path, groups, look).encode())
        return
    texts = [path, *(name for one in groups for name in (*one.names, *one.units))]
    texts += [one.epochs.condition for one in groups if one.epochs is not None]
    letters = Lettering.of(texts)
    doing = f"drawing {path!r}"
    warn_of_letters(letters, doing)
    draw = partial(_figure, path, groups, look, letters)
    put_figure(file, draw, how, letters, doing, look.dark)


def shown_channels(
    groups: Sequence[GroupSpectrogram],
) -> list[tuple[GroupSpectrogram, int]]:
    """The first 16 channels of all."""
    every = [(own, at) for own in groups for at in range(len(own.names))]
    return every[:PANELS]


def facts_of(groups: Sequence[GroupSpectrogram]) -> str:
    """What stands above a picture."""
    first = groups[0]
    every = sum(len(own.names) for own in groups)
    more = f", {PANELS} panels drawn" if every > PANELS else ""
    many = every
    if first.epochs is not None:
        texts = dict.fromkeys(own.epochs.condition for own in groups if own.epochs)
        more = f", {counted(len(texts), 'condition')}{more}"
        many //= len(texts)
    return (
        f"{counted(many, 'channel')} at {first.fs:g} Hz{more} · "
        f"{first.nperseg} samples per segment, {first.fs / first.nperseg:.3g} Hz per "
        "bin"
    )


def label_of(groups: Sequence[GroupSpectrogram], shown: Shown) -> str:
    """Of the colours."""
    baseline = groups[0].baseline
    if baseline is not None:
        return "power over {:g} to {:g} s (dB)".format(*baseline)
    units = {unit for own in groups for unit in own.units}
    one = shown(units.pop()) if len(units) == 1 else ""
    return decibel_label(power_unit(one, "density"))


def range_of(groups: Sequence[GroupSpectrogram]) -> tuple[float, float]:
    """Decibels from the faint to the strong of all that is drawn, an offset at 0 Hz
    left aside; both sides of a baseline alike.
    """
    ends = []
    for own in groups:
        skip = 2 if own.f[0] == 0 and len(own.f) > 8 else 0
        ends.append(span_of(levels_of(own.power[:PANELS, skip:]), SPAN_DB))
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if groups[0].baseline is not None:
        most = max(abs(low), abs(high), 1.0)
        return -most, most
    return low, high


def _page(path: str, groups: Sequence[GroupSpectrogram], look: Look) -> str:
    panels = []
    left, limits = PANELS, range_of(groups)
    for own in groups:
        count = min(left, len(own.names))
        left -= count
        if not count:
            break
        panels.append(
            surface_panel(
                [named(_name_of(own, at, str)) for at in range(count)],
                own.f,
                own.t,
                [levels_of(one) for one in own.power[:count]],
                limits,
                label_of(groups, named),
                "",
                scale="values" if own.baseline is None else "around",
                since="" if own.epochs is None else "from the annotation",
                steps=(own.column_s, own.fs / own.nperseg),
            )
        )
    return picture_page(Path(path).name, facts_of(groups), panels, look.log, look.dark)


def _figure(
    path: str, groups: Sequence[GroupSpectrogram], look: Look, letters: Lettering
) -> Any:
    panels = shown_channels(groups)
    tall = 2.8 if len(panels) == 1 else 1.4
    figure = new_figure(11, 1.5 + tall * len(panels))
    figure.suptitle(letters.shown(Path(path).name, 48), x=0.008, ha="left")
    part = figure.subfigures()
    part.suptitle(
        facts_of(groups),
        x=0.008,
        ha="left",
        fontsize=9,
        fontweight="normal",
        color=quiet_text(look.dark),
    )
    axes = part.subplots(len(panels), 1, squeeze=False, sharex=len(groups) == 1)[:, 0]
    limits = range_of(groups)
    seconds = max(own.seconds for own in groups)
    _, unit_s, unit = next(t for t in _TIMES if seconds >= t[0])
    for axis, (own, at) in zip(axes, panels, strict=True):
        image = surface(
            axis,
            own.t,
            own.f,
            levels_of(own.power[at]),
            limits,
            look.log,
            MAP if own.baseline is None else AROUND,
            steps=(own.column_s, own.fs / own.nperseg),
        )
        if own.epochs is not None and own.t[0] < 0 < own.t[-1]:
            axis.axvline(0.0, color=quiet_text(look.dark), lw=0.9, ls="--")
        axis.set_title(
            _name_of(own, at, partial(letters.shown, most=48)), fontsize=8.5, pad=3
        )
        axis.xaxis.set_major_formatter(lambda s, _: f"{s / unit_s:g}")
        axis.tick_params(labelsize=7.5)
    since = "" if groups[0].epochs is None else " from the annotation"
    axes[-1].set_xlabel(f"time{since} ({unit})")
    quiet = quiet_text(look.dark)
    part.supylabel(said_axis(look.log), fontsize=9, color=quiet)
    bar = part.colorbar(image, ax=axes, pad=0.01, fraction=0.03, aspect=40)
    bar.set_label(label_of(groups, partial(letters.shown, most=48)))
    bar.outline.set_visible(False)
    return figure


def _name_of(own: GroupSpectrogram, at: int, shown: Shown) -> str:
    name = shown(own.names[at])
    return name if own.epochs is None else f"{name} · {shown(own.epochs.short)}"
