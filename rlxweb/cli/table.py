"""The table of peaks per channel, for people.

A pipe gets every channel and every peak. A terminal gets the peaks that fit its width,
or, where the number of peaks was asked for, all of them in as many blocks as it takes;
what is not shown is told. Lines are laid out here: rich takes a tenth of a millisecond
per cell, and a batch of files has a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console

from rlxweb.cli.screen import counted, say
from rlxweb.jobs.results import FileResult, GroupResult
from rlxweb.printable import abridged, encodable, printable
from rlxweb.results.units import decimals

SHOWN_CHANNELS = 32
# The room a channel's name may take on a terminal, and between two columns anywhere.
_MOST_NAME = 24
_GAP = "  "

Column = Sequence[str]
"""A head and a cell per channel."""


def print_peaks(
    console: Console, results: Sequence[FileResult], all_peaks: bool = True
) -> None:
    """One table per group of equal rate.

    all_peaks   False: on a terminal only as many as fit beside each other
    """
    for result in results:
        for group in result.groups:
            say(console, *_told(console, result, group, all_peaks))


def _told(
    console: Console, result: FileResult, group: GroupResult, all_peaks: bool
) -> Iterator[str]:
    yield _title(result, group)
    if group.epochs is not None:
        yield str(group.epochs)
    is_limited = console.is_terminal
    n_rows = min(len(group.names), SHOWN_CHANNELS) if is_limited else len(group.names)
    naming = _naming(group, n_rows, _MOST_NAME if is_limited else 0)
    # As wide as they will be where the terminal lacks letters.
    encoding = console.encoding
    naming = [[encodable(cell, encoding) for cell in column] for column in naming]
    peaks = [_peak_column(group, n, n_rows) for n in range(group.peaks.bins.shape[1])]
    per_block = len(peaks)
    if is_limited:
        wide = max(width_of(column) for column in peaks) + len(_GAP)
        room = console.width - sum(width_of(c) + len(_GAP) for c in naming)
        per_block = max(1, min(len(peaks), (room + len(_GAP)) // wide))
    shown = len(peaks) if all_peaks else per_block
    for at in range(0, shown, per_block):
        yield from block([*naming, *peaks[at : at + per_block]], len(naming))
    if shown < len(peaks):
        noun = "peaks" if group.mode == "peaks" else "bins"
        how = f"--k {len(peaks)} shows all"
        yield f"the {shown} strongest of {len(peaks)} {noun}; {how}"
    hidden = len(group.names) - n_rows
    if hidden:
        where = "a pipe (| cat), --csv, --npz and --json have all"
        yield f"… and {counted(hidden, 'more channel')}; {where}"
    states = zip(group.names, group.states, strict=True)
    flat = [abridged(name, _MOST_NAME) for name, state in states if state == "flat"]
    if flat:
        rest = f" and {len(flat) - 6} more" if len(flat) > 6 else ""
        yield f"flat, nothing but rounding: {', '.join(flat[:6])}{rest}"
    if _is_offset(group):
        offset = "mostly at 0 Hz: an offset of the signal"
        yield f"{offset}; --detrend constant removes it"
    elif _are_neighbours(group):
        beside = "mostly bins beside a strong one"
        yield f"{beside}; --mode peaks --preset scipy shows spectral peaks"


def _is_offset(group: GroupResult) -> bool:
    """Most rows have their strongest bin where only an offset would put it."""
    if group.mode != "bins" or group.spec.detrend is not None:
        return False
    return 2 * int((group.peaks.bins[:, 0] == 0).sum()) > len(group.names)


def _are_neighbours(group: GroupResult) -> bool:
    """Most rows have their second bin beside their first: the window's own width."""
    bins = group.peaks.bins
    if group.mode != "bins" or bins.shape[1] < 2:
        return False
    return 2 * int((abs(bins[:, 0] - bins[:, 1]) == 1).sum()) > len(group.names)


def _title(result: FileResult, group: GroupResult) -> str:
    units = {group.power_unit(unit) for unit in group.units}
    one = printable(units.pop()) if len(units) == 1 else ""
    power = f", power in {one}" if one else ""
    return (
        f"{printable(result.path)}: {counted(len(group.names), 'channel')} at "
        f"{group.fs:g} Hz, {counted(group.n_segments, 'segment')} of "
        f"{group.spec.nperseg}, {group.resolution:.3g} Hz per bin{power}"
    )


def _naming(group: GroupResult, n_rows: int, most: int) -> list[Column]:
    """Which channel a line is of and, where they differ, the unit of its power."""
    named = [abridged(n, most) if most else printable(n) for n in group.names[:n_rows]]
    columns: list[Column] = [["channel", *named]]
    units = [group.power_unit(unit) for unit in group.units]
    if len(set(units)) > 1:
        shown = [abridged(u, most) if most else printable(u) for u in units[:n_rows]]
        columns.append(["power in", *shown])
    return columns


def _peak_column(group: GroupResult, n: int, n_rows: int) -> Column:
    noun = "peak" if group.mode == "peaks" else "bin"
    head = f"strongest {noun}" if n == 0 else _ordinal(n + 1)
    return [head, *(_cell(group, at, n) for at in range(n_rows))]


def _ordinal(n: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{n}{'th' if n % 100 in (11, 12, 13) else endings.get(n % 10, 'th')}"


def _cell(group: GroupResult, at: int, n: int) -> str:
    if n >= group.peaks.count[at]:
        return "–"
    hz, power = group.peaks.hz[at, n], group.peaks.power[at, n]
    return f"{hz:.{decimals(group.resolution)}f} Hz {power:9.3g}"


def width_of(column: Column) -> int:
    """Cells of a terminal that a column takes."""
    return max(map(cell_len, column))


def block(columns: Sequence[Column], n_left: int) -> Iterator[str]:
    """The columns beside each other; all but the first `n_left` end on the right."""
    widths = [width_of(column) for column in columns]
    padded = []
    for at, (column, width) in enumerate(zip(columns, widths, strict=True)):
        blanks = [" " * (width - cell_len(cell)) for cell in column]
        pairs = zip(column, blanks, strict=True)
        padded.append([c + b if at < n_left else b + c for c, b in pairs])
    head, *rows = zip(*padded, strict=True)
    yield _GAP.join(head).rstrip()
    yield "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
    yield from (_GAP.join(row).rstrip() for row in rows)
