"""`rlxweb devices`: what this machine can compute on, and why not the rest."""

from __future__ import annotations

from importlib.metadata import version

import click
from rich.console import Console

from rlxweb.cli.table import print_devices
from rlxweb.devices.availability import device_report
from rlxweb.gpu.adapters import adapters
from rlxweb.io import write_json

SCHEMA = "rlxweb.devices/1"


@click.command(name="devices")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
@click.option("--verbose", "-v", is_flag=True, help="Limits, features and adapters.")
def command(as_json: bool, verbose: bool) -> None:
    """List every device: available or not, and why."""
    rows = device_report()
    if as_json:
        write_json(
            "-",
            {
                "schema": SCHEMA,
                "rlxweb": version("rlxweb"),
                "devices": [row.as_json() for row in rows],
            },
        )
        return
    console = Console()
    print_devices(console, rows, verbose)
    if verbose:
        for one in adapters():
            console.print(f"adapter: {one}", markup=False)
