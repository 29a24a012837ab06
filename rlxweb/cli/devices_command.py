"""`rlxweb devices`: what this machine can compute on, and why not the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import Final

import click
from rich.console import Console

from rlxweb.backends.registry import hint_of, refused_entry_points
from rlxweb.calibration.known import known_record
from rlxweb.choose.report import device_report
from rlxweb.cli.options import device_labels
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import Cell, say, screen, show_table
from rlxweb.device import Device, devices_named
from rlxweb.devices.availability import DeviceRow, probe
from rlxweb.devices.place import Place
from rlxweb.errors import AdapterMissing
from rlxweb.gpu.libraries import adapters
from rlxweb.gpu.port import DeviceFacts
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.io import write_json
from rlxweb.library_probe import library_problem
from rlxweb.machine.library import processor

SCHEMA = "rlxweb.devices/1"
_WIDE: Final = 96
"""Characters of a line about a device."""
FACTS = ("name", "vendor", "backend", "driver", "software")


@click.command(name="devices")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=device_labels)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
@click.option("--verbose", "-v", is_flag=True, help="Limits, features and adapters.")
def command(names: tuple[str, ...], as_json: bool, verbose: bool) -> None:
    """List every device, or those of the names given: available or not, and why.

    What is marked "named" is only used where it is named, and opened where it is named
    here.
    """
    rows = [probe(name) for name in devices_named(names)] if names else device_report()
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
            devices=[row.as_json() | {"raced": _raced(row)} for row in rows],
            adapters=[{name: getattr(one, name) for name in FACTS} for one in found],
            no_adapters=why_none,
            compiled_code=compiled_code(),
            refused_entry_points=list(refused_entry_points()),
        )
        write_json("-", record)
        return
    console = screen()
    _print_devices(console, rows, verbose)
    if verbose:
        say(console, f"compiled code for the CPU: {compiled_code()}")
    for one in found if verbose else ():
        kind = "software" if one.software else "hardware"
        said = f"{one.name}, {one.backend}, {kind}, driver {one.driver or 'unnamed'}"
        say(console, f"adapter: {said}")
    for why in refused_entry_points():
        say(console, f"entry point refused: {why}")
    if not names and not any(r.available for r in rows if r.device is not Device.CPU):
        why = f": {why_none}" if why_none else "; no GPU driver was found"
        say(console, f"NumPy only{why}")


def compiled_code() -> str:
    """What code for the CPU is compiled by, and for; or why there is none."""
    if welch_kernels.why_not:
        return f"none: {welch_kernels.why_not}"
    problem = library_problem("llvmlite", "rlxweb.cli.devices_command:try_compiler")
    if problem:
        return f"none: llvmlite cannot be used ({problem})"
    try:
        return processor().words
    except AdapterMissing as error:
        return f"none: {error}"


def try_compiler(opened: Callable[[], object]) -> None:
    """Load llvmlite and ask it for the processor: the work of a child."""
    processor()
    opened()


def _print_devices(console: Console, rows: Sequence[DeviceRow], verbose: bool) -> None:
    """Every device of the enum: there or not, what it is, or why not."""
    cells: list[Sequence[Cell]] = []
    for row in rows:
        mark = ("yes", "green") if row.available else ("no", "dim")
        said = row.engine if row.available else row.blocker
        if row.available and row.named_only:
            said = f"{said} (named only)"
        if row.waits:
            mark = ("named", "yellow")
        cells.append((row.device.label, (row.device.display, "dim"), mark, said))
        if verbose:
            wide = None if console.is_terminal else _WIDE
            cells += [("", "", "", (one, "dim")) for one in _details(row, wide)]
    heads = ("device", "", "available", "engine, or why not")
    show_table(console, heads, cells, whole=heads[:3])


def _details(row: DeviceRow, wide: int | None) -> Iterator[str]:
    """Facts of a device beside its name.

    wide   characters after which a list goes on in a new line; None: never
    """
    if row.available:
        told = [f"{name}: {_short(value)}" for name, value in row.facts.items()]
        told += [f"raced: {race}" for race in _raced(row)]
    else:
        told = [] if row.waits else [hint_of(row.device.label)]
    for one in filter(None, told):
        if wide is None:
            yield one
            continue
        yield from wrap(one, wide, subsequent_indent="  ", break_on_hyphens=False)


def _raced(row: DeviceRow) -> list[str]:
    """In what order the ways to run an op ended, where `rlxweb calibrate` did that."""
    record = known_record(Place(row.device)) if row.available else None
    return [] if record is None else [str(race) for race in record.races]


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} = {v:,}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(str(v) for v in value) or "none"
    return str(value)
