"""`rlxweb devices`: what this machine can compute on, and why not the rest."""

from __future__ import annotations

import click
from rich.console import Console

from rlxweb.cli.table import print_devices
from rlxweb.cli.versions import rlxweb_version, versions
from rlxweb.device import Device
from rlxweb.errors import AdapterMissing
from rlxweb.gpu.native import adapters
from rlxweb.gpu.port import DeviceFacts
from rlxweb.io import write_json
from rlxweb.runners.report import device_report

SCHEMA = "rlxweb.devices/1"


@click.command(name="devices")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
@click.option("--verbose", "-v", is_flag=True, help="Limits, features and adapters.")
def command(as_json: bool, verbose: bool) -> None:
    """List every device: available or not, and why."""
    rows = device_report()
    found, why_none = _adapters()
    if as_json:
        document = {
            "schema": SCHEMA,
            "rlxweb": rlxweb_version(),
            "versions": versions(),
            "devices": [row.as_json() for row in rows],
            "adapters": [_facts(one) for one in found],
            "no_adapters": why_none,
        }
        write_json("-", document)
        return
    console = Console()
    print_devices(console, rows, verbose)
    for one in found if verbose else ():
        console.print(f"adapter: {_words(one)}", markup=False, soft_wrap=True)
    if not any(r.available for r in rows if r.device is not Device.CPU):
        why = f": {why_none}" if why_none else "; no GPU driver was found"
        console.print(f"NumPy only{why}", markup=False, soft_wrap=True)


def _adapters() -> tuple[tuple[DeviceFacts, ...], str]:
    """Every adapter of the machine, or why they cannot be listed."""
    try:
        return adapters(), ""
    except AdapterMissing as error:
        return (), str(error)


def _words(one: DeviceFacts) -> str:
    kind = "software" if one.software else "hardware"
    return f"{one.name}, {one.backend}, {kind}, driver {one.driver or 'unnamed'}"


def _facts(one: DeviceFacts) -> dict[str, object]:
    return {
        "name": one.name,
        "vendor": one.vendor,
        "backend": one.backend,
        "driver": one.driver,
        "software": one.software,
    }
