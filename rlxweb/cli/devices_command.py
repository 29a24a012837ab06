"""`rlxweb devices`: what this machine can compute on, and why not the rest."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlxweb.cli.record import document, versions
from rlxweb.device import Device
from rlxweb.devices.availability import DeviceRow
from rlxweb.errors import AdapterMissing
from rlxweb.gpu.native import adapters
from rlxweb.gpu.port import DeviceFacts
from rlxweb.io import write_json
from rlxweb.runners.report import device_report

SCHEMA = "rlxweb.devices/1"
FACTS = ("name", "vendor", "backend", "driver", "software")


@click.command(name="devices")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
@click.option("--verbose", "-v", is_flag=True, help="Limits, features and adapters.")
def command(as_json: bool, verbose: bool) -> None:
    """List every device: available or not, and why."""
    rows = device_report()
    found: tuple[DeviceFacts, ...] = ()
    why_none = ""
    try:
        found = adapters()
    except AdapterMissing as error:
        why_none = str(error)
    if as_json:
        record = document(
            SCHEMA,
            versions=versions(),
            devices=[row.as_json() for row in rows],
            adapters=[{name: getattr(one, name) for name in FACTS} for one in found],
            no_adapters=why_none,
        )
        write_json("-", record)
        return
    console = Console()
    _print_devices(console, rows, verbose)
    for one in found if verbose else ():
        kind = "software" if one.software else "hardware"
        said = f"{one.name}, {one.backend}, {kind}, driver {one.driver or 'unnamed'}"
        console.print(f"adapter: {said}", markup=False, soft_wrap=True)
    if not any(r.available for r in rows if r.device is not Device.CPU):
        why = f": {why_none}" if why_none else "; no GPU driver was found"
        console.print(f"NumPy only{why}", markup=False, soft_wrap=True)


def _print_devices(console: Console, rows: Sequence[DeviceRow], verbose: bool) -> None:
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
