"""Tables for people: peaks per channel, devices per machine. rich does the drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlxweb.cli.job import FileResult, GroupResult
from rlxweb.devices.availability import DeviceRow

SHOWN_PEAKS = 5
SHOWN_CHANNELS = 32
# Frame and padding of a column, and the room a channel's name may take.
_COLUMN_FRAME = 3
_MOST_NAME = 24


def print_peaks(console: Console, results: Sequence[FileResult]) -> None:
    """One table per group of equal rate, of as many peaks as fit the width."""
    for result in results:
        for group in result.groups:
            console.print(
                _title(result, group), markup=False, highlight=False, soft_wrap=True
            )
            console.print(_peak_table(console, group))
            hidden = len(group.names) - SHOWN_CHANNELS
            if hidden > 0:
                console.print(
                    f"… and {hidden} more channels; --csv, --npz and --json hold all",
                    highlight=False,
                    soft_wrap=True,
                )
            if _is_offset(group):
                console.print(
                    "mostly at 0 Hz: an offset of the signal; "
                    "--detrend constant removes it",
                    highlight=False,
                    soft_wrap=True,
                )


def _is_offset(group: GroupResult) -> bool:
    """Most rows have their strongest bin where only an offset would put it."""
    if group.mode != "bins" or group.spec.detrend is not None:
        return False
    return 2 * int((group.peaks.bins[:, 0] == 0).sum()) > len(group.names)


def _title(result: FileResult, group: GroupResult) -> str:
    units = {group.power_unit(unit) for unit in group.units}
    power = f", power in {units.pop()}" if len(units) == 1 and units != {""} else ""
    return (
        f"{result.path}: {_count(len(group.names), 'channel')} at {group.fs:g} Hz, "
        f"{_count(group.n_segments, 'segment')} of {group.spec.nperseg}, "
        f"{group.resolution:.3g} Hz per bin{power}"
    )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")


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
    for n in range(shown):
        head = f"strongest {noun}" if n == 0 else _ordinal(n + 1)
        table.add_column(head, justify="right", no_wrap=True)
    for at, name in enumerate(names):
        unit = [group.power_unit(group.units[at])] if mixed else []
        table.add_row(escape(name), *map(escape, unit), *cells[at][:shown])
    return table


def _ordinal(n: int) -> str:
    ends = {2: "nd", 3: "rd"}
    return f"{n}{ends.get(n, 'th')}"


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


def print_devices(console: Console, rows: Sequence[DeviceRow], verbose: bool) -> None:
    """Every device of the enum: there or not, what it is, or why not."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("device", "", "available", "engine, or why not"):
        table.add_column(head)
    for row in rows:
        mark = "[green]yes[/green]" if row.available else "[dim]no[/dim]"
        said = escape(row.engine if row.available else row.blocker)
        table.add_row(row.device.label, f"[dim]{row.device.display}[/dim]", mark, said)
        if verbose and row.available:
            for name, value in row.facts.items():
                table.add_row(
                    "", "", "", escape(f"{name}: {_short(value)}"), style="dim"
                )
    console.print(table)


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v:,}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(str(v) for v in value) or "none"
    return str(value)
