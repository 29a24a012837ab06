"""Terminal table of `rlxweb bands`: one line per channel and one column per band.

Many bands are lines, and channels the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rich.console import Console

from rlxweb.batch.recording_band_power import FileBands, GroupBands
from rlxweb.cli.console import format_count, print_lines
from rlxweb.cli.peaks_text_table import (
    MAX_SHOWN_CHANNELS,
    TextTableColumn,
    column_width,
    format_columns,
)
from rlxweb.core.message_text import abbreviate, escape_unencodable, printable
from rlxweb.results.power_units import frequency_decimals

_MAX_NAME_LENGTH = 24
_COLUMN_GAP = 2
_MAX_PEAKS = 3
_MAX_BAND_COLUMNS = 8
"""Largest number of bands that are shown as columns; more bands are shown as rows."""
_FIT_HEADS = {"exponent": "exponent", "knee": "knee", "r_squared": "R²"}


def print_bands(console: Console, band_results: Sequence[FileBands]) -> None:
    """Print one table for each group of equal sampling rate."""
    for file_bands in band_results:
        for group_bands in file_bands.groups:
            print_lines(
                console, *_group_lines(console, file_bands.result.path, group_bands)
            )


def _group_lines(console: Console, path: str, group_bands: GroupBands) -> Iterator[str]:
    """Yield the lines that show one group: its heading and its table."""
    group = group_bands.group
    units = set(group.units)
    unit = printable(units.pop()).replace("uV", "µV") if len(units) == 1 else ""
    yield (
        f"{printable(path)}: {format_count(len(group.names), 'channel')} at "
        f"{group.fs:g} Hz, {format_count(group.n_segments, 'segment')} of "
        f"{group.spec.nperseg} samples, {_cell_description(group_bands, unit)}"
    )
    if group.epochs is not None:
        yield str(group.epochs)
    is_limited = console.is_terminal
    n_rows = (
        min(len(group.names), MAX_SHOWN_CHANNELS) if is_limited else len(group.names)
    )
    names = [
        escape_unencodable(
            abbreviate(name, _MAX_NAME_LENGTH) if is_limited else printable(name),
            console.encoding,
        )
        for name in group.names[:n_rows]
    ]
    name_column: TextTableColumn = ["channel", *names]
    columns = [
        _band_column(group_bands, k, n_rows)
        for k in range(len(group_bands.bands.names))
    ]
    extra_columns: list[TextTableColumn] = [
        [printable(name), *(_format_number(values[row]) for row in range(n_rows))]
        for name, values in group_bands.ratios.items()
    ]
    extra_columns += _fit_columns(group_bands, n_rows)
    max_width = console.width if is_limited else None
    if len(columns) > _MAX_BAND_COLUMNS and (is_limited or len(columns) > n_rows):
        transposed = zip(*([*column] for column in columns), strict=True)
        heads, *cells = map(list, transposed)
        channels = [
            [name, *group_bands] for name, group_bands in zip(names, cells, strict=True)
        ]
        yield from _column_blocks(["band", *heads], channels, max_width)
        columns = []
    if columns or extra_columns:
        yield from _column_blocks(name_column, [*columns, *extra_columns], max_width)
    n_hidden = len(group.names) - n_rows
    if n_hidden:
        hint = "use --csv, --parquet, --json or a pipe (| cat) to see all"
        yield f"… and {format_count(n_hidden, 'more channel')}; {hint}"


def _column_blocks(
    name_column: TextTableColumn,
    columns: Sequence[TextTableColumn],
    max_width: int | None,
) -> Iterator[str]:
    """Yield the lines of tables that fit the width, each beginning with the name
    column.

    max_width  cells of a line; None: there is no end
    """
    name_width = column_width(name_column)
    block_columns = list[TextTableColumn]()
    used_width = 0
    for column in columns:
        width = _COLUMN_GAP + column_width(column)
        if (
            block_columns
            and max_width is not None
            and name_width + used_width + width > max_width
        ):
            yield from format_columns([name_column, *block_columns], 1)
            block_columns, used_width = [], 0
        block_columns.append(column)
        used_width += width
    yield from format_columns([name_column, *block_columns], 1)


def _cell_description(group_bands: GroupBands, unit: str) -> str:
    """Describe the values in the band cells."""
    power = f"power in {unit}²" if unit else "power"
    if not group_bands.request.shows_values:
        return f"{power} and share"
    quantity = "share of the power" if group_bands.request.relative else power
    return f"log10 of the {quantity}" if group_bands.request.log else quantity


def _format_number(value: float) -> str:
    """Format a number with three digits, or a dash where it is not finite."""
    return f"{value:.3g}" if isfinite(value) else "–"


def _fit_columns(group_bands: GroupBands, n_rows: int) -> list[TextTableColumn]:
    """Return the columns of the 1/f fit: its parameters and the highest peaks above
    it.
    """
    fit = group_bands.fit
    if fit is None:
        return []
    low, high = fit.f[0], fit.f[-1]
    names = [
        "exponent",
        *(["knee"] if group_bands.request.fit == "knee" else []),
        "r_squared",
    ]
    columns: list[TextTableColumn] = [
        [
            f"1/f {_FIT_HEADS[name]}",
            *(_format_number(getattr(fit, name)[row]) for row in range(n_rows)),
        ]
        for name in names
    ]
    digits = frequency_decimals(group_bands.group.resolution)
    peaks = []
    for row in range(n_rows):
        row_peaks = sorted(
            group_bands.peaks_above_fit(row), key=lambda peak: -(peak["height"] or 0.0)
        )
        peak_texts = [
            f"{p['hz']:.{digits}f} ({p['height']:.2f})" for p in row_peaks[:_MAX_PEAKS]
        ]
        peaks.append(", ".join(peak_texts) or "–")
    head = f"peaks above 1/f, {low:g}–{high:g} Hz (log10)"
    return [*columns, [head, *peaks]]


def _band_column(group_bands: GroupBands, k: int, n_rows: int) -> TextTableColumn:
    """Return the column of one band: its heading and a cell for each channel."""
    low, high = group_bands.bands.edges[k]
    head = f"{printable(group_bands.bands.names[k])} {low:g}–{high:g} Hz"
    return [head, *(_format_cell(group_bands, row, k) for row in range(n_rows))]


def _format_cell(group_bands: GroupBands, row: int, k: int) -> str:
    """Format the power of one channel in one band, with its share and peak."""
    power = group_bands.bands.absolute[row, k]
    share = group_bands.bands.relative[row, k]
    if group_bands.group.states[row] or not isfinite(power):
        return group_bands.group.states[row] or "–"
    peak = group_bands.bands.peak_hz[row, k]
    peak_text = (
        f" @{peak:.{frequency_decimals(group_bands.group.resolution)}f}"
        if isfinite(peak)
        else ""
    )
    value = group_bands.bands.values[row, k]
    if group_bands.request.log:
        return f"{value:.2f}{peak_text}" if isfinite(value) else f"–{peak_text}"
    if group_bands.request.relative:
        return f"{value:.1%}{peak_text}"
    return f"{power:.3g} {share:4.0%}{peak_text}"
