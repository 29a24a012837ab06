"""The table of `rlxweb bands`: a line per channel, a column per band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rich.console import Console

from rlxweb.cli.screen import counted, say
from rlxweb.cli.table import SHOWN_CHANNELS, Column, block, decimals, width_of
from rlxweb.jobs.bands import Banded, GroupBands
from rlxweb.printable import abridged, encodable, printable

_MOST_NAME = 24
_GAP = 2


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
        f"{group.spec.nperseg}, power"
        f"{f' in {unit}²' if unit else ''} and its share"
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
    naming: list[Column] = [["channel", *names]]
    bands = [_column(own, k, n_rows) for k in range(len(own.bands.names))]
    per_block = len(bands)
    if is_limited:
        room = console.width - width_of(naming[0])
        per_block = max(1, room // (max(map(width_of, bands)) + _GAP))
    for at in range(0, len(bands), per_block):
        yield from block([*naming, *bands[at : at + per_block]], 1)
    hidden = len(group.names) - n_rows
    if hidden:
        where = "a pipe (| cat), --csv, --parquet and --json have all"
        yield f"… and {counted(hidden, 'more channel')}; {where}"


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
    return f"{power:.3g} {share:4.0%}{where}"
