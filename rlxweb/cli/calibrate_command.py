"""`rlxweb calibrate`: measure this machine's engines, or show stored measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import SpinnerColumn, TimeElapsedColumn

from rlxweb.cli import options
from rlxweb.cli.console import (
    TaskDescriptionColumn,
    make_console,
    make_progress,
    print_lines,
    print_table,
)
from rlxweb.cli.json_documents import json_document
from rlxweb.core.errors import RlxError, UsageError
from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.cost.decision import format_ns
from rlxweb.cost.work_kinds import point_rate
from rlxweb.engines.pool import pool
from rlxweb.io import write_json
from rlxweb.select.calibration.autotune import AUTOTUNE_S
from rlxweb.select.calibration.calibration_store import (
    calibration_file_name,
    calibration_store,
)
from rlxweb.select.calibration.engine_calibration_lookup import (
    known_record,
    measure_now,
)
from rlxweb.select.calibration.measure_engine import BUDGET_S
from rlxweb.select.device_and_adapter import DevicePlace, available_places, parse_place

SCHEMA = "rlxweb.calibrate/1"


StoredCalibration = tuple[Calibration, Path | None]
"""Calibration and the file that stores it; None where it could not be stored."""


@click.command(name="calibrate")
@options.devices_option("every engine of this machine")
@click.option(
    "--adapter", default="", help="Use the GPU adapter whose name contains this text."
)
@click.option(
    "--budget-s",
    type=options.FiniteFloatRange(min=0.0, min_open=True, max=600.0),
    default=BUDGET_S,
    show_default=True,
    help="Time limit per device in seconds; no new measurement starts after it.",
)
@click.option(
    "--race/--no-race",
    default=None,
    help="Time the kernel variants of each op, which takes longer; default: on all "
    "devices except software adapters.",
)
@click.option("--show", is_flag=True, help="Show stored results; measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(
    devices: tuple[str, ...],
    adapter: str,
    budget_s: float,
    race: bool | None,
    show: bool,
    as_json: bool,
) -> None:
    """Measure how fast each engine is: round trips, transfers, kernels.

    The results are stored per adapter, driver, shader compiler and rlxweb version, and
    determine where later jobs run. If an op has several kernel variants, they are timed
    and the fastest is used; variants with wrong results are excluded and listed.
    """
    err = make_console(stderr=True)
    errors: list[RlxError] = []
    if show:
        calibrations = _stored_calibrations(
            _requested_places(devices, adapter) if devices or adapter else None
        )
    else:
        calibrations = []
        for place in _requested_places(devices, adapter):
            try:
                calibrations.append(_measure_place(place, budget_s, race, err))
            except RlxError as error:  # what the others took seconds for is shown first
                errors.append(error)
    if calibrations or not errors:
        _show_calibrations(calibrations, as_json)
    for later_error in errors[1:]:
        print_lines(err, str(later_error))
    if errors:
        raise errors[0]


def _show_calibrations(
    calibrations: Sequence[StoredCalibration], as_json: bool
) -> None:
    """Print the calibrations, or write them as JSON."""
    if as_json:
        records = [
            calibration.as_json() | {"file": None if path is None else str(path)}
            for calibration, path in calibrations
        ]
        write_json("-", json_document(SCHEMA, records=records))
        return
    console = make_console()
    if not calibrations:
        print_lines(console, "no results are stored yet; run `rlxweb calibrate`")
    for calibration, path in calibrations:
        _print_calibration(console, calibration, path)


def _requested_places(devices: Sequence[str], adapter: str) -> tuple[DevicePlace, ...]:
    """Return the places that the options name; every available place without any."""
    if not devices:
        return (parse_place(f"gpu:{adapter}"),) if adapter else available_places()
    places = options.parse_places(devices)
    if adapter and any(p.adapter for p in places):
        raise UsageError(
            "--adapter", "--device already names an adapter", hint="omit --adapter"
        )
    adapter_places = (DevicePlace(p.device, p.adapter or adapter) for p in places)
    return tuple(dict.fromkeys(adapter_places))


def _stored_calibrations(
    places: Sequence[DevicePlace] | None,
) -> list[StoredCalibration]:
    """Return the stored calibrations of these places, or all of them, with their
    files.
    """
    records = (
        calibration_store.load_all() if places is None else map(known_record, places)
    )
    calibrations: list[StoredCalibration] = []
    for calibration in filter(None, records):
        path = (
            calibration_store.folder
            and calibration_store.folder / calibration_file_name(calibration.identity)
        )
        calibrations.append((calibration, path if path and path.is_file() else None))
    return calibrations


def _measure_place(
    place: DevicePlace, budget_s: float, race: bool | None, err: Console
) -> StoredCalibration:
    """Measure a place now; a terminal shows the current step and the elapsed time."""
    columns = SpinnerColumn(), TaskDescriptionColumn(), TimeElapsedColumn()
    with make_progress(err, *columns) as bar:
        task = bar.add_task(f"{place}: opening", total=None)

        def show_step(text: str) -> None:
            bar.update(task, description=f"{place}: {text}")

        if race is None:
            race = not pool.engine(place.device.label, place.adapter).identity.software
        autotune_s = AUTOTUNE_S if race else 0.0
        return measure_now(
            place, budget_s=budget_s, autotune_s=autotune_s, progress=show_step
        )


def _print_calibration(
    console: Console, calibration: Calibration, path: Path | None
) -> None:
    """Print the figures, autotuning results and omissions of a calibration."""
    location = "" if path is None else f", stored in {path}"
    print_lines(
        console,
        f"{calibration.engine} ({calibration.backend}), device '{calibration.device}': "
        f"{len(calibration.points)} results in {calibration.took_s:.1f} s{location}",
    )
    rows = []
    for point in calibration.points:
        size = ", ".join(f"{k} {v:,}" for k, v in point.size.items())
        spread = f"{point.spread:.0%}" if point.samples > 1 else ""
        rows.append((point.what, size, format_ns(point.ns), spread, format_rate(point)))
    numbers = ("time", "spread", "rate")
    heads = ("what", "size", *numbers)
    print_table(console, heads, rows, right_aligned=numbers, no_wrap=numbers, box=None)
    for race in calibration.races:
        print_lines(console, f"autotuning: {race}")
    for reason in calibration.left_out:
        print_lines(console, f"not measured: {reason}")


def format_rate(point: MeasuredPoint) -> str:
    """Return the bytes or operations per second as text; empty where the size does not
    give them.
    """
    per_ns, unit = point_rate(point)
    return f"{per_ns:.3g} {unit}" if per_ns else ""
