"""`rlxweb calibrate`: measure this machine's engines, or show what is known of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import SpinnerColumn, TimeElapsedColumn

from rlxweb.backends.pool import pool
from rlxweb.calibration.known import known_record, measure_now
from rlxweb.calibration.measure import BUDGET_S
from rlxweb.calibration.races import RACE_S
from rlxweb.calibration.store import file_name, store
from rlxweb.cli import options
from rlxweb.cli.record import document
from rlxweb.cli.screen import Description, progress_on, say, screen, show_table
from rlxweb.cost.kinds import rate_of
from rlxweb.cost.record import Calibration, Point
from rlxweb.decision.terms import human_ns
from rlxweb.devices.place import Place, available_places, parse_place
from rlxweb.errors import RlxError, UsageError
from rlxweb.io import write_json

SCHEMA = "rlxweb.calibrate/1"


Measured = tuple[Calibration, Path | None]
"""A record and the file it is kept in; None where it could not be kept."""


def _number(context: click.Context, option: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("nan is not a number of seconds")
    return value


@click.command(name="calibrate")
@options.devices("every engine of this machine once")
@click.option("--adapter", default="", help="Part of an adapter's name.")
@click.option(
    "--budget-s",
    type=click.FloatRange(min=0.0, min_open=True, max=600.0),
    callback=_number,
    default=BUDGET_S,
    show_default=True,
    help="Seconds per device after which nothing more is begun.",
)
@click.option(
    "--race/--no-race",
    default=None,
    help="Race the ways to run an op, seconds more [on GPUs].",
)
@click.option("--show", is_flag=True, help="Show what is known; measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="The records as JSON on stdout.")
def command(
    devices: tuple[str, ...],
    adapter: str,
    budget_s: float,
    race: bool | None,
    show: bool,
    as_json: bool,
) -> None:
    """Measure how fast each engine is: trips, transfers, our own kernels.

    The figures are kept per adapter, driver, shader compiler and rlxweb version, and
    decide from then on where jobs run. Where an op can be run in several ways, a race
    decides which is taken; what computes wrong is left out, and said.
    """
    err = screen(stderr=True)
    failed: list[RlxError] = []
    if show:
        found = _known(_places(devices, adapter) if devices or adapter else None)
    else:
        found = []
        for place in _places(devices, adapter):
            try:
                found.append(_measure(place, budget_s, race, err))
            except RlxError as error:  # what the others took seconds for is shown first
                failed.append(error)
    if found or not failed:
        _tell(found, as_json)
    for other in failed[1:]:
        say(err, str(other))
    if failed:
        raise failed[0]


def _tell(found: Sequence[Measured], as_json: bool) -> None:
    if as_json:
        records = [
            record.as_json() | {"file": None if path is None else str(path)}
            for record, path in found
        ]
        write_json("-", document(SCHEMA, records=records))
        return
    console = screen()
    if not found:
        say(console, "nothing was measured yet; `rlxweb calibrate` does it")
    for record, path in found:
        _print(console, record, path)


def _places(devices: Sequence[str], adapter: str) -> tuple[Place, ...]:
    if not devices:
        return (parse_place(f"gpu:{adapter}"),) if adapter else available_places()
    places = options.places_of(devices)
    if adapter and any(p.adapter for p in places):
        raise UsageError(
            "--adapter", "a device names its adapter already", hint="leave it out"
        )
    asked = (Place(p.device, p.adapter or adapter) for p in places)
    return tuple(dict.fromkeys(asked))


def _known(places: Sequence[Place] | None) -> list[Measured]:
    """What is kept of these places, or all that is kept, with its files."""
    records = store.stored() if places is None else map(known_record, places)
    found: list[Measured] = []
    for record in filter(None, records):
        path = store.folder and store.folder / file_name(record.identity)
        found.append((record, path if path and path.is_file() else None))
    return found


def _measure(
    place: Place, budget_s: float, race: bool | None, err: Console
) -> Measured:
    """Measured now; what is being measured and for how long is shown on a terminal."""
    columns = SpinnerColumn(), Description(), TimeElapsedColumn()
    with progress_on(err, *columns) as bar:
        task = bar.add_task(f"{place}: opening", total=None)

        def step(said: str) -> None:
            bar.update(task, description=f"{place}: {said}")

        if race is None:
            race = not pool.backend(place.device.label, place.adapter).software
        race_s = RACE_S if race else 0.0
        return measure_now(place, budget_s=budget_s, race_s=race_s, progress=step)


def _print(console: Console, record: Calibration, path: Path | None) -> None:
    kept = "" if path is None else f", kept in {path}"
    say(
        console,
        f"{record.engine} ({record.backend}) as '{record.device}': "
        f"{len(record.points)} figures in {record.took_s:.1f} s{kept}",
    )
    rows = []
    for point in record.points:
        size = ", ".join(f"{k} {v:,}" for k, v in point.size.items())
        spread = f"{point.spread:.0%}" if point.samples > 1 else ""
        rows.append((point.what, size, human_ns(point.ns), spread, rate(point)))
    numbers = ("time", "spread", "rate")
    heads = ("what", "size", *numbers)
    show_table(console, heads, rows, right=numbers, whole=numbers, frame=None)
    for race in record.races:
        say(console, f"raced: {race}")
    for why in record.left_out:
        say(console, f"left out: {why}")


def rate(point: Point) -> str:
    """Bytes or operations per second, where the size says how many."""
    per_ns, unit = rate_of(point)
    return f"{per_ns:.3g} {unit}" if per_ns else ""
