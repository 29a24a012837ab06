"""The picture of `rlxweb bands`: what channels are made of, and where on the head."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from rlxweb.cli.look import PLAIN, Look
from rlxweb.cli.plot import (
    PANELS,
    lettering_of,
    new_figure,
    put_figure,
    warn_of_letters,
)
from rlxweb.cli.screen import counted
from rlxweb.jobs.bands import Banded, GroupBands
from rlxweb.plot.above import exponents, peaks_above
from rlxweb.plot.bars import height_of, legend_columns, spans_of, stacked
from rlxweb.plot.lettering import Lettering
from rlxweb.plot.naming import MOST
from rlxweb.plot.page import named, picture_page
from rlxweb.plot.page_bands import bands, has_heads
from rlxweb.plot.scalp import head_map
from rlxweb.plot.theme import quiet_text
from rlxweb.results.units import power_unit
from rlxweb.signal.electrodes import flat, positions

_MOST_ROWS: Final = 64
_MAP_INCHES: Final = 2.2
_MAPS: Final = 8


def put_picture(file: IO[bytes], found: Banded, how: str, look: Look = PLAIN) -> None:
    """One panel per group of equal rate. Errors  NotWritten."""
    if how == "html":
        file.write(_page(found, look).encode())
        return
    letters = lettering_of(found.result)
    doing = f"drawing {found.result.path!r}"
    warn_of_letters(letters, doing)
    draw = partial(_figure, found, letters, look)
    put_figure(file, draw, how, letters, doing, look.dark)


def _page(found: Banded, look: Look) -> str:
    panels = []
    for own in found.groups[:PANELS]:
        group = own.group
        units = [power_unit(unit, "spectrum") for unit in group.units]
        facts = _facts(own, named)
        panels.append(bands(own.bands, group.names, units, facts, group.states))
    return picture_page(
        Path(found.result.path).name, "", panels, log=False, dark=look.dark
    )


def _figure(found: Banded, letters: Lettering, look: Look) -> Any:
    groups = found.groups[:PANELS]
    tall = [_height(one) for one in groups]
    is_fitted = any(one.fit is not None for one in groups)
    most = max(legend_columns(len(one.bands.names)) for one in groups)
    wide = (13.0 if is_fitted else 10.0) + 1.8 * (most - 1)
    figure = new_figure(wide, sum(tall) + 0.3)
    name = letters.shown(Path(found.result.path).name, 48)
    figure.suptitle(name, x=0.008, ha="left")
    parts = figure.subfigures(len(tall), 1, squeeze=False, height_ratios=tall)[:, 0]
    for part, own in zip(parts, groups, strict=True):
        part.suptitle(
            _facts(own, partial(letters.shown, most=48)),
            x=0.008,
            ha="left",
            fontsize=9,
            fontweight="normal",
            color=quiet_text(look.dark),
        )
        _draw(part, own, letters)
    return figure


def _facts(own: GroupBands, shown: Callable[[str], str]) -> str:
    count = len(own.group.names)
    more = f", {count - _MOST_ROWS} more not drawn" if count > _MOST_ROWS else ""
    maps = " · on the heads: share of the power" if _has_maps(own) else ""
    epochs = own.group.epochs
    of = f" · {shown(epochs.short)}" if epochs else ""
    return f"{counted(count, 'channel')} at {own.group.fs:g} Hz{of}{more}{maps}"


def _height(own: GroupBands) -> float:
    rows = min(_MOST_ROWS, len(own.group.names))
    bars = height_of(rows, len(own.bands.names))
    return 0.4 + bars + (_MAP_INCHES if _has_maps(own) else 0.0)


def _has_maps(own: GroupBands) -> bool:
    is_few = len(own.bands.names) <= _MAPS
    return is_few and has_heads(own.group.names, own.bands.relative)


def _draw(part: Any, own: GroupBands, letters: Lettering) -> None:
    under = part
    if _has_maps(own):
        rows = min(_MOST_ROWS, len(own.group.names))
        ratios = (_MAP_INCHES, height_of(rows, len(own.bands.names)))
        heads, under = part.subfigures(2, 1, height_ratios=ratios)
        _maps(heads, own, letters)
    states = own.group.states[:_MOST_ROWS]
    names = [
        f"{letters.shown(name, MOST)}{f' ({state})' if state else ''}"
        for name, state in zip(own.group.names[:_MOST_ROWS], states, strict=True)
    ]
    shown = [letters.shown(name, MOST) for name in own.bands.names]
    spans = spans_of(shown, own.bands.edges)
    shares = own.bands.relative[:_MOST_ROWS]
    if own.fit is None:
        stacked(under.subplots(), names, shares, spans)
        return
    first, second, third = under.subplots(1, 3, width_ratios=(6, 3, 1.5))
    stacked(first, names, shares, spans)
    hz, height = own.fit.peak_hz[:_MOST_ROWS], own.fit.peak_height[:_MOST_ROWS]
    span = float(own.fit.f[0]), float(own.fit.f[-1])
    peaks_above(second, hz, height, own.bands.edges, span)
    exponents(third, own.fit.exponent[:_MOST_ROWS])


def _maps(part: Any, own: GroupBands, letters: Lettering) -> None:
    """A head for each band: the share it has at each electrode."""
    places, which = positions(own.group.names)
    at = flat(places)
    axes = part.subplots(1, len(own.bands.names), squeeze=False)[0]
    for k, axis in enumerate(axes):
        share = np.asarray(own.bands.relative[which, k], np.float64)
        fine = np.isfinite(share)
        image = head_map(axis, at[fine], share[fine], 1.8)
        axis.set_title(letters.shown(own.bands.names[k], MOST), loc="center", pad=8)
        bar = part.colorbar(
            image, ax=axis, orientation="horizontal", shrink=0.7, pad=0.02, aspect=18
        )
        low, high = float(share[fine].min()), float(share[fine].max())
        bar.set_ticks([low, high], labels=[f"{low:.0%}", f"{high:.0%}"])
        bar.ax.tick_params(length=0, labelsize=7.5)
        bar.outline.set_visible(False)
