"""The table of peaks per channel, for people. rich does the drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlxweb.cli.job import FileResult, GroupResult
from rlxweb.cli.screen import counted, say

_NEXT = ("2nd", "3rd", "4th", "5th")
SHOWN_PEAKS = 1 + len(_NEXT)
SHOWN_CHANNELS = 32
# Frame and padding of a column, and the room a channel's name may take.
_COLUMN_FRAME = 3
_MOST_NAME = 24


def print_peaks(console: Console, results: Sequence[FileResult]) -> None:
    """One table per group of equal rate, of as many peaks as fit the width."""
    for result in results:
        for group in result.groups:
            say(console, _title(result, group))
            console.print(_peak_table(console, group))
            hidden = len(group.names) - SHOWN_CHANNELS
            if hidden > 0:
                rest = f"… and {hidden} more channels"
                say(console, f"{rest}; --csv, --npz and --json hold all")
            if _is_offset(group):
                offset = "mostly at 0 Hz: an offset of the signal"
                say(console, f"{offset}; --detrend constant removes it")


def _is_offset(group: GroupResult) -> bool:
    """Most rows have their strongest bin where only an offset would put it."""
    if group.mode != "bins" or group.spec.detrend is not None:
        return False
    return 2 * int((group.peaks.bins[:, 0] == 0).sum()) > len(group.names)


def _title(result: FileResult, group: GroupResult) -> str:
    units = {group.power_unit(unit) for unit in group.units}
    power = f", power in {units.pop()}" if len(units) == 1 and units != {""} else ""
    return (
        f"{result.path}: {counted(len(group.names), 'channel')} at {group.fs:g} Hz, "
        f"{counted(group.n_segments, 'segment')} of {group.spec.nperseg}, "
        f"{group.resolution:.3g} Hz per bin{power}"
    )


def _peak_table(console: Console, group: GroupResult) -> Table:
    names = group.names[:SHOWN_CHANNELS]
    places = range(_places(group))
    cells = [[_cell(group, at, n) for n in places] for at in range(len(names))]
    mixed = len({group.power_unit(unit) for unit in group.units}) > 1
    wide = max((len(c) for row in cells for c in row), default=1) + _COLUMN_FRAME
    taken = min(_MOST_NAME, max(map(len, names))) + 2 * _COLUMN_FRAME + 8 * mixed
    shown = max(1, min(_places(group), (console.width - taken) // wide))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("channel", no_wrap=True, max_width=_MOST_NAME)
    if mixed:
        table.add_column("power in", no_wrap=True)
    noun = "peak" if group.mode == "peaks" else "bin"
    for head in (f"strongest {noun}", *_NEXT)[:shown]:
        table.add_column(head, justify="right", no_wrap=True)
    for at, name in enumerate(names):
        unit = [group.power_unit(group.units[at])] if mixed else []
        table.add_row(escape(name), *map(escape, unit), *cells[at][:shown])
    return table


def _places(group: GroupResult) -> int:
    return min(SHOWN_PEAKS, int(group.peaks.bins.shape[1]))


def _cell(group: GroupResult, at: int, n: int) -> str:
    if n >= group.peaks.count[at]:
        return "–"
    hz, power = group.peaks.hz[at, n], group.peaks.power[at, n]
    return f"{hz:.{decimals(group.resolution)}f} Hz {power:9.3g}"


def decimals(resolution: float) -> int:
    """Digits after the point that frequencies of this resolution deserve."""
    return max(1, min(6, math.ceil(-math.log10(resolution)) + 1))
