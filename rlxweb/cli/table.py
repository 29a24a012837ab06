"""Tables for people: peaks per channel, devices per machine. rich does the drawing."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rlxweb.cli.job import FileResult, GroupResult
from rlxweb.devices.availability import DeviceRow

SHOWN_PEAKS = 5
SHOWN_CHANNELS = 32


def print_peaks(console: Console, results: Sequence[FileResult]) -> None:
    """One table per group of equal rate."""
    for result in results:
        for group in result.groups:
            console.print(_peak_table(result, group))
            hidden = len(group.names) - SHOWN_CHANNELS
            if hidden > 0:
                console.print(
                    f"  … and {hidden} more channels (--csv, --json and --npz hold all)"
                )


def _peak_table(result: FileResult, group: GroupResult) -> Table:
    shown = min(SHOWN_PEAKS, group.peaks.bins.shape[1])
    spec = group.spec
    table = Table(
        title=f"{result.path}: {len(group.names)} channels at {group.fs:g} Hz, "
        f"{group.n_segments} segments of {spec.nperseg}, "
        f"{group.fs / spec.nfft:.3g} Hz per bin",
        title_justify="left",
    )
    table.add_column("channel")
    table.add_column("unit")
    for n in range(shown):
        table.add_column("strongest" if n == 0 else str(n + 1), justify="right")
    for at, name in enumerate(group.names[:SHOWN_CHANNELS]):
        cells = []
        for n in range(shown):
            if n < group.peaks.count[at]:
                hz, power = group.peaks.hz[at, n], group.peaks.power[at, n]
                cells.append(f"{hz:.2f} Hz  [dim]{power:.3g}[/dim]")
            else:
                cells.append("–")
        table.add_row(name, group.units[at], *cells)
    return table


def print_devices(console: Console, rows: Sequence[DeviceRow], verbose: bool) -> None:
    """Every device of the enum: there or not, what it is, or why not."""
    table = Table()
    for head in ("device", "available", "engine, or why not"):
        table.add_column(head)
    for row in rows:
        mark = "[green]yes[/green]" if row.available else "[dim]no[/dim]"
        table.add_row(row.device.label, mark, row.engine or row.blocker)
        if verbose and row.available:
            for name, value in row.facts.items():
                table.add_row("", "", f"[dim]{name}: {_short(value)}[/dim]")
    console.print(table)


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v:,}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(str(v) for v in value) or "none"
    return str(value)
