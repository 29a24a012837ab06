"""`rlxweb devices`: list the devices of this machine, and why others are
unavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import Final

import click
from rich.console import Console

from rlxweb.cli.console import Cell, make_console, print_lines, print_table
from rlxweb.cli.json_documents import json_document, library_versions
from rlxweb.cli.options import complete_device_label
from rlxweb.codegen.llvm_compiler import host_cpu
from rlxweb.core.device import Device, parse_devices
from rlxweb.core.errors import AdapterMissing
from rlxweb.core.library_crash_probe import library_problem
from rlxweb.engines.registry import refused_entry_points, row_hint
from rlxweb.gpu.port_protocol import DeviceFacts
from rlxweb.gpu.wgpu_libraries import list_adapters
from rlxweb.io import write_json
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.select.availability import DeviceRow, probe
from rlxweb.select.calibration.engine_calibration_lookup import known_record
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.select.device_report import device_report

SCHEMA = "rlxweb.devices/1"
_DETAIL_WIDTH: Final = 96
"""Width of a detail line in characters where the output is no terminal."""
ADAPTER_FIELDS = ("name", "vendor", "backend", "driver", "software")


@click.command(name="devices")
@click.argument(
    "names", nargs=-1, metavar="[NAME]...", shell_complete=complete_device_label
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--verbose", "-v", is_flag=True, help="Show limits, features and adapters."
)
def command(names: tuple[str, ...], as_json: bool, verbose: bool) -> None:
    """List every device, or only those passed as NAME: available or not, and why.

    A device marked "named" is used only if a command names it. To open it here, pass
    its name.
    """
    rows = [probe(name) for name in parse_devices(names)] if names else device_report()
    gpu_adapters: tuple[DeviceFacts, ...] = ()
    no_adapters_reason = ""
    try:
        gpu_adapters = list_adapters()
    except AdapterMissing as error:
        no_adapters_reason = str(error)
    if as_json:
        record = json_document(
            SCHEMA,
            versions=library_versions(),
            devices=[row.as_json() | {"raced": _race_results(row)} for row in rows],
            adapters=[
                {name: getattr(adapter, name) for name in ADAPTER_FIELDS}
                for adapter in gpu_adapters
            ],
            no_adapters=no_adapters_reason,
            compiled_code=describe_compiled_code(),
            refused_entry_points=list(refused_entry_points()),
        )
        write_json("-", record)
        return
    console = make_console()
    _print_devices(console, rows, verbose)
    if verbose:
        print_lines(console, f"native CPU code: {describe_compiled_code()}")
    for adapter in gpu_adapters if verbose else ():
        kind = "software" if adapter.software else "hardware"
        description = (
            f"{adapter.name}, {adapter.backend}, {kind}, driver "
            f"{adapter.driver or 'unknown'}"
        )
        print_lines(console, f"adapter: {description}")
    for reason in refused_entry_points():
        print_lines(console, f"entry point rejected: {reason}")
    if not names and not any(
        device_row.available
        for device_row in rows
        if device_row.device is not Device.CPU
    ):
        reason = (
            f": {no_adapters_reason}"
            if no_adapters_reason
            else "; no GPU driver was found"
        )
        print_lines(console, f"only NumPy is available{reason}")


def describe_compiled_code() -> str:
    """Describe the compiler and target of native CPU code, or why there is none."""
    if welch_kernels.disabled_reason:
        return f"none: {welch_kernels.disabled_reason}"
    problem = library_problem("llvmlite", "rlxweb.cli.devices_command:try_compiler")
    if problem:
        return f"none: llvmlite cannot be used ({problem})"
    try:
        return host_cpu().description
    except AdapterMissing as error:
        return f"none: {error}"


def try_compiler(on_loaded: Callable[[], object]) -> None:
    """Load llvmlite and query the processor; runs in a child process."""
    host_cpu()
    on_loaded()


def _print_devices(console: Console, rows: Sequence[DeviceRow], verbose: bool) -> None:
    """Print every device: available or not, with its engine or the reason."""
    cells: list[Sequence[Cell]] = []
    for row in rows:
        mark = ("yes", "green") if row.available else ("no", "dim")
        description = row.engine if row.available else row.blocker
        if row.available and row.named_only:
            description = f"{description} (used only if named)"
        if row.waits:
            mark = ("named", "yellow")
        cells.append((row.device.label, (row.device.display, "dim"), mark, description))
        if verbose:
            max_width = None if console.is_terminal else _DETAIL_WIDTH
            cells += [
                ("", "", "", (detail, "dim"))
                for detail in _detail_lines(row, max_width)
            ]
    heads = ("device", "", "available", "engine or reason")
    print_table(console, heads, cells, no_wrap=heads[:3])


def _detail_lines(row: DeviceRow, max_width: int | None) -> Iterator[str]:
    """Yield the facts of a device, wrapped to a width.

    max_width  characters after which a list goes on in a new line; None: never
    """
    if row.available:
        details = [
            f"{name}: {_format_value(value)}" for name, value in row.facts.items()
        ]
        details += [f"autotuning: {race}" for race in _race_results(row)]
    else:
        details = [] if row.waits else [row_hint(row.device.label)]
    for detail in filter(None, details):
        if max_width is None:
            yield detail
            continue
        yield from wrap(
            detail, max_width, subsequent_indent="  ", break_on_hyphens=False
        )


def _race_results(row: DeviceRow) -> list[str]:
    """Return the autotuning results of a device as lines, where `rlxweb calibrate`
    measured them.
    """
    calibration = known_record(DevicePlace(row.device)) if row.available else None
    return [] if calibration is None else [str(race) for race in calibration.races]


def _format_value(value: object) -> str:
    """Format a fact as text; dictionaries and lists as comma-separated items."""
    if isinstance(value, dict):
        return ", ".join(f"{k} = {v:,}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(str(v) for v in value) or "none"
    return str(value)
