"""The table of `rlxweb bands`: a line per channel, a column per band.

Many bands are lines, and channels the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rich.console import Console

from rlxweb.cli.screen import counted, say
from rlxweb.cli.table import SHOWN_CHANNELS, Column, block, width_of
from rlxweb.jobs.bands import Banded, GroupBands
from rlxweb.printable import abridged, encodable, printable
from rlxweb.results.units import decimals

_MOST_NAME = 24
_GAP = 2
_PEAKS = 3
_ACROSS = 8
"""Bands that stand beside each other; more of them stand below each other."""
_HEADS = {"exponent": "exponent", "knee": "knee", "r_squared": "R²"}


def print_bands(console: Console, found: Sequence[Banded]) -> None:
    """One table per group of equal rate."""
    for one in found:
        for group in one.groups:
            say(console, *_told(console, one.result.path, group))


def _told(console: Console, path: str, own: GroupBands) -> Iterator[str]:
    group = own.group
    units = set(group.units)
    unit = printable(units.pop()).replace("uV", "µV") if len(units) == 1 else ""
    yield (
        f"{printable(path)}: {counted(len(group.names), 'channel')} at "
        f"{group.fs:g} Hz, {counted(group.n_segments, 'segment')} of "
        f"{group.spec.nperseg}, {_what(own, unit)}"
    )
    if group.epochs is not None:
        yield str(group.epochs)
    is_limited = console.is_terminal
    n_rows = min(len(group.names), SHOWN_CHANNELS) if is_limited else len(group.names)
    names = [
        encodable(
            abridged(name, _MOST_NAME) if is_limited else printable(name),
            console.encoding,
        )
        for name in group.names[:n_rows]
    ]
    naming: Column = ["channel", *names]
    columns = [_column(own, k, n_rows) for k in range(len(own.bands.names))]
    more: list[Column] = [
        [printable(name), *(_number(values[at]) for at in range(n_rows))]
        for name, values in own.ratios.items()
    ]
    more += _fit_columns(own, n_rows)
    room = console.width if is_limited else None
    if len(columns) > _ACROSS and (is_limited or len(columns) > n_rows):
        lines = zip(*([*column] for column in columns), strict=True)
        heads, *cells = map(list, lines)
        channels = [[name, *own] for name, own in zip(names, cells, strict=True)]
        yield from _blocks(["band", *heads], channels, room)
        columns = []
    if columns or more:
        yield from _blocks(naming, [*columns, *more], room)
    hidden = len(group.names) - n_rows
    if hidden:
        where = "a pipe (| cat), --csv, --parquet and --json have all"
        yield f"… and {counted(hidden, 'more channel')}; {where}"


def _blocks(
    naming: Column, columns: Sequence[Column], room: int | None
) -> Iterator[str]:
    """Columns beside the naming one, in as many blocks as the room takes.

    room   cells of a line; None: there is no end
    """
    first, held, used = width_of(naming), list[Column](), 0
    for column in columns:
        wide = _GAP + width_of(column)
        if held and room is not None and first + used + wide > room:
            yield from block([naming, *held], 1)
            held, used = [], 0
        held.append(column)
        used += wide
    yield from block([naming, *held], 1)


def _what(own: GroupBands, unit: str) -> str:
    """What the cells of the bands hold."""
    power = f"power in {unit}²" if unit else "power"
    if not own.asked.shows_values:
        return f"{power} and its share"
    what = "share of the power" if own.asked.relative else power
    return f"log10 of the {what}" if own.asked.log else what


def _number(value: float) -> str:
    return f"{value:.3g}" if isfinite(value) else "–"


def _fit_columns(own: GroupBands, n_rows: int) -> list[Column]:
    """The 1/f part of each channel, and the highest peaks above it."""
    fit = own.fit
    if fit is None:
        return []
    low, high = fit.f[0], fit.f[-1]
    names = ["exponent", *(["knee"] if own.asked.fit == "knee" else []), "r_squared"]
    columns: list[Column] = [
        [
            f"1/f {_HEADS[name]}",
            *(_number(getattr(fit, name)[at]) for at in range(n_rows)),
        ]
        for name in names
    ]
    digits = decimals(own.group.resolution)
    peaks = []
    for at in range(n_rows):
        found = sorted(own.peaks_above(at), key=lambda peak: -(peak["height"] or 0.0))
        said = [f"{p['hz']:.{digits}f} ({p['height']:.2f})" for p in found[:_PEAKS]]
        peaks.append(", ".join(said) or "–")
    head = f"above 1/f at {low:g}–{high:g} Hz: Hz (log10)"
    return [*columns, [head, *peaks]]


def _column(own: GroupBands, k: int, n_rows: int) -> Column:
    low, high = own.bands.edges[k]
    head = f"{printable(own.bands.names[k])} {low:g}–{high:g} Hz"
    return [head, *(_cell(own, at, k) for at in range(n_rows))]


def _cell(own: GroupBands, at: int, k: int) -> str:
    power, share = own.bands.absolute[at, k], own.bands.relative[at, k]
    if own.group.states[at] or not isfinite(power):
        return own.group.states[at] or "–"
    peak = own.bands.peak_hz[at, k]
    where = f" @{peak:.{decimals(own.group.resolution)}f}" if isfinite(peak) else ""
    value = own.bands.values[at, k]
    if own.asked.log:
        return f"{value:.2f}{where}" if isfinite(value) else f"–{where}"
    if own.asked.relative:
        return f"{value:.1%}{where}"
    return f"{power:.3g} {share:4.0%}{where}"
