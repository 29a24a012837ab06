"""`./dev bench sweep band`: what a part of a spectrum costs, and what learning buys."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from rlxweb.cli import options
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import progress_on, say, screen, show_table
from rlxweb.cli.targets import check_targets, goes_to_stdout, write_all
from rlxweb.device import Device
from rlxweb.devices.place import available_places, engine_key
from rlxweb.io import write_json
from tests.benchmarks.band_sweep import (
    LENGTHS,
    SHARES,
    SIGNALS,
    BandCell,
    BandResult,
    BandSweep,
    Timed,
)

SCHEMA = "rlxweb.bench.band/1"
HEADS = ("way", "engine", "asked", "error", "ns/sample", "× whole")


@click.command(name="band", short_help="A part of a spectrum, by every way.")
@options.devices("every engine of this machine")
@options.one_of("--signal", SIGNALS, "What the recordings are like.", "eeg")
@click.option("--n", "lengths", type=click.IntRange(16), multiple=True, help="Lengths.")
@click.option(
    "--rounds", type=click.IntRange(3), default=7, help="Turns of every way [7]."
)
@click.option("--steps", type=click.IntRange(1), default=60, help="Of a training [60].")
@click.option("--quick", is_flag=True, help="One cell, short rows, few steps.")
@options.file_path("json", "Write every time as a record; - is stdout.")
def band(
    devices: Sequence[str],
    signal: str,
    lengths: tuple[int, ...],
    rounds: int,
    steps: int,
    quick: bool,
    json_path: str | None,
) -> None:
    """Time the ways to compute some bins of a spectrum alone, and how exact they are.

    The whole transform; the band of fewer samples, within an error; its bins by one
    product; Goertzel's recurrence; the transform without what the bins do not need; and
    one that was trained for it, with the share of its gates that could go. "× whole" is
    how many times faster than the whole transform on the same engine.
    """
    check_targets([], [("--json", json_path)])
    err = screen(stderr=True)
    places = options.places_of(devices) or list(available_places())
    beside = {engine_key(p)[0]: p for p in places if p.device is not Device.CPU}
    sweep = BandSweep(beside, rounds, kind=signal, steps=steps)
    cells = [BandCell(n, share) for n in lengths or LENGTHS for share in SHARES]
    if quick:
        sweep = BandSweep(beside, 3, 1 << 12, 5, signal, (1e-2, 1e-3))
        cells = [BandCell(lengths[0] if lengths else 256, 0.1)]
    found: list[BandResult] = []
    with progress_on(err) as bar:
        task = bar.add_task("cells", total=len(cells))
        for one in sweep.run(cells):
            found.append(one)
            bar.update(task, advance=1, description=str(one.cell))
    if json_path is not None:
        record = document(
            SCHEMA,
            versions=versions(),
            machine=f"{platform.machine()}, {os.cpu_count()} cores",
            engines=list(beside),
            signal=signal,
            rounds=sweep.rounds,
            samples=sweep.samples,
            cells=[one.as_json() for one in found],
        )
        write_all([(json_path, partial(write_json, obj=record))])
    out = err if goes_to_stdout([json_path]) else screen()
    for one in found:
        _show(out, one)


def _show(out: Any, one: BandResult) -> None:
    say(out, f"{one.cell}: {len(one.cell.band)} bins", style="bold")
    show_table(out, HEADS, map(_row, one.ways), right=HEADS[2:], whole=HEADS)
    for asked, (active, error) in one.gates.items():
        gone = 1 - active / one.total
        said = f"within {asked:g}: {gone:.0%} of {one.total:,} gates can go"
        say(out, f"{said}, error {error:.1e}; {1 - one.needed / one.total:.0%} unasked")


def _row(way: Timed) -> tuple[str, ...]:
    asked = f"{way.asked:g}" if way.asked else "exact"
    if way.failed:
        return way.method, way.engine, asked, "", "", way.failed
    times = f"{way.ns:.2f}", f"{way.ratio:.2f}" if way.ratio else ""
    return way.method, way.engine, asked, f"{way.error:.1e}", *times
