"""Console table of the peaks of each channel.

A pipe gets every channel and every peak. A terminal gets the peaks that fit its width,
or, where the number of peaks was asked for, all of them in as many blocks as it takes;
what is not shown is told. Lines are laid out here: rich takes a tenth of a millisecond
per cell, and a batch of files has a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console

from rlxweb.batch.results import FileResult, GroupResult
from rlxweb.cli.console import format_count, print_lines
from rlxweb.core.message_text import abbreviate, escape_unencodable, printable
from rlxweb.results.power_units import frequency_decimals

MAX_SHOWN_CHANNELS = 32
# The room a channel's name may take on a terminal, and between two columns anywhere.
_MAX_NAME_WIDTH = 24
_GAP = "  "
_MAX_NOTED_NAMES = 6

TextTableColumn = Sequence[str]
"""Header and one cell per channel."""


def print_peaks(
    console: Console, results: Sequence[FileResult], all_peaks: bool = True
) -> None:
    """Print one table per group of equal rate.

    all_peaks   False: on a terminal only as many as fit beside each other
    """
    for result in results:
        for group in result.groups:
            print_lines(console, *_table_lines(console, result, group, all_peaks))


def _table_lines(
    console: Console, result: FileResult, group: GroupResult, all_peaks: bool
) -> Iterator[str]:
    yield _title(result, group)
    if group.epochs is not None:
        yield str(group.epochs)
    is_limited = console.is_terminal
    n_rows = (
        min(len(group.names), MAX_SHOWN_CHANNELS) if is_limited else len(group.names)
    )
    name_columns = _name_columns(group, n_rows, _MAX_NAME_WIDTH if is_limited else 0)
    # As wide as they will be where the terminal lacks letters.
    encoding = console.encoding
    name_columns = [
        [escape_unencodable(cell, encoding) for cell in column]
        for column in name_columns
    ]
    peaks = [_peak_column(group, n, n_rows) for n in range(group.peaks.bins.shape[1])]
    per_block = len(peaks)
    if is_limited:
        peak_width = max(column_width(column) for column in peaks) + len(_GAP)
        free_width = console.width - sum(
            column_width(c) + len(_GAP) for c in name_columns
        )
        per_block = max(1, min(len(peaks), (free_width + len(_GAP)) // peak_width))
    n_shown = len(peaks) if all_peaks else per_block
    for start in range(0, n_shown, per_block):
        yield from format_columns(
            [*name_columns, *peaks[start : start + per_block]], len(name_columns)
        )
    if n_shown < len(peaks):
        noun = "peaks" if group.mode == "peaks" else "bins"
        hint = f"--k {len(peaks)} shows all"
        yield f"the {n_shown} strongest of {len(peaks)} {noun} are shown; {hint}"
    n_hidden = len(group.names) - n_rows
    if n_hidden:
        alternatives = "use --csv, --npz, --json or a pipe (| cat) to see all"
        yield f"… and {format_count(n_hidden, 'more channel')}; {alternatives}"
    yield from _state_notes(group)
    if _is_dominated_by_offset(group):
        offset_note = (
            "in most channels the strongest bin is at 0 Hz: the signal has an offset"
        )
        yield f"{offset_note}; --detrend constant removes it"
    elif _has_adjacent_bins(group):
        finding = "in most channels the second strongest bin is next to the strongest"
        yield f"{finding}; --mode peaks --preset scipy shows spectral peaks"


def _state_notes(group: GroupResult) -> Iterator[str]:
    """Yield a line for each reason why channels have no peaks, with their names."""
    names_by_state: dict[str, list[str]] = {}
    for name, state in zip(group.names, group.peak_states, strict=True):
        if state:
            shown_name = abbreviate(name, _MAX_NAME_WIDTH)
            names_by_state.setdefault(state, []).append(shown_name)
    for state, names in names_by_state.items():
        note = "flat (only rounding errors)" if state == "flat" else state
        n_more = len(names) - _MAX_NOTED_NAMES
        more_text = f" and {n_more} more" if n_more > 0 else ""
        yield f"{note}: {', '.join(names[:_MAX_NOTED_NAMES])}{more_text}"


def _is_dominated_by_offset(group: GroupResult) -> bool:
    """Return True if most rows have their strongest bin where only an offset would put
    it.
    """
    if group.mode != "bins" or group.spec.detrend is not None:
        return False
    return 2 * int((group.peaks.bins[:, 0] == 0).sum()) > len(group.names)


def _has_adjacent_bins(group: GroupResult) -> bool:
    """Return True if most rows have their second bin next to their first, because of
    the window's own width.
    """
    bins = group.peaks.bins
    if group.mode != "bins" or bins.shape[1] < 2:
        return False
    return 2 * int((abs(bins[:, 0] - bins[:, 1]) == 1).sum()) > len(group.names)


def _title(result: FileResult, group: GroupResult) -> str:
    units = {group.power_unit(unit) for unit in group.units}
    unit_text = printable(units.pop()) if len(units) == 1 else ""
    power = f", power in {unit_text}" if unit_text else ""
    return (
        f"{printable(result.path)}: {format_count(len(group.names), 'channel')} at "
        f"{group.fs:g} Hz, {format_count(group.n_segments, 'segment')} of "
        f"{group.spec.nperseg} samples, {group.resolution:.3g} Hz per bin{power}"
    )


def _name_columns(
    group: GroupResult, n_rows: int, max_width: int
) -> list[TextTableColumn]:
    """Return the column of channel names and, where units differ, that of the power's
    unit.
    """
    shown_names = [
        abbreviate(n, max_width) if max_width else printable(n)
        for n in group.names[:n_rows]
    ]
    columns: list[TextTableColumn] = [["channel", *shown_names]]
    units = [group.power_unit(unit) for unit in group.units]
    if len(set(units)) > 1:
        shown_units = [
            abbreviate(u, max_width) if max_width else printable(u)
            for u in units[:n_rows]
        ]
        columns.append(["power unit", *shown_units])
    return columns


def _peak_column(group: GroupResult, n: int, n_rows: int) -> TextTableColumn:
    noun = "peak" if group.mode == "peaks" else "bin"
    head = f"strongest {noun}" if n == 0 else _ordinal(n + 1)
    return [head, *(_peak_cell(group, row, n) for row in range(n_rows))]


def _ordinal(n: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{n}{'th' if n % 100 in (11, 12, 13) else endings.get(n % 10, 'th')}"


def _peak_cell(group: GroupResult, row: int, n: int) -> str:
    if n >= group.peaks.count[row]:
        return "–"
    hz, power = group.peaks.hz[row, n], group.peaks.power[row, n]
    return f"{hz:.{frequency_decimals(group.resolution)}f} Hz {power:9.3g}"


def column_width(column: TextTableColumn) -> int:
    """Return the width of a column in terminal cells."""
    return max(map(cell_len, column))


def format_columns(
    columns: Sequence[TextTableColumn], n_left_aligned: int
) -> Iterator[str]:
    """Yield the lines of the columns side by side; all but the first `n_left_aligned`
    are right-aligned.
    """
    widths = [column_width(column) for column in columns]
    padded = []
    for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
        blanks = [" " * (width - cell_len(cell)) for cell in column]
        pairs = zip(column, blanks, strict=True)
        padded.append([c + b if index < n_left_aligned else b + c for c, b in pairs])
    head, *rows = zip(*padded, strict=True)
    yield _GAP.join(head).rstrip()
    yield "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
    yield from (_GAP.join(row).rstrip() for row in rows)
