"""`./dev bench sweep band`: cost of a part of a spectrum, and the gain of learned
transforms.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from rlxweb.cli import options
from rlxweb.cli.console import make_console, make_progress, print_lines, print_table
from rlxweb.cli.json_documents import json_document, library_versions
from rlxweb.cli.output_files import check_output_paths, uses_stdout, write_results
from rlxweb.core.device import Device
from rlxweb.io import write_json
from rlxweb.select.device_and_adapter import available_places, engine_key
from tests.benchmarks.band_sweep import (
    LENGTHS,
    SHARES,
    SIGNALS,
    BandCell,
    BandResult,
    BandSweep,
    BandTiming,
)

SCHEMA = "rlxweb.bench.band/1"
HEADERS = ("way", "engine", "asked", "error", "ns/sample", "× whole")


@click.command(name="band", short_help="A part of a spectrum, by every way.")
@options.devices_option("every engine of this machine")
@options.choice_option("--signal", SIGNALS, "What the recordings are like.", "eeg")
@click.option("--n", "lengths", type=click.IntRange(16), multiple=True, help="Lengths.")
@click.option(
    "--rounds", type=click.IntRange(3), default=7, help="Turns of every way [7]."
)
@click.option("--steps", type=click.IntRange(1), default=60, help="Of a training [60].")
@click.option("--quick", is_flag=True, help="One cell, short rows, few steps.")
@options.output_file_option("json", "Write every time as a record; - is stdout.")
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
    check_output_paths([], [("--json", json_path)])
    err = make_console(stderr=True)
    places = options.parse_places(devices) or list(available_places())
    devices_by_name = {
        engine_key(p)[0]: p for p in places if p.device is not Device.CPU
    }
    sweep = BandSweep(devices_by_name, rounds, kind=signal, steps=steps)
    cells = [BandCell(n, share) for n in lengths or LENGTHS for share in SHARES]
    if quick:
        sweep = BandSweep(devices_by_name, 3, 1 << 12, 5, signal, (1e-2, 1e-3))
        cells = [BandCell(lengths[0] if lengths else 256, 0.1)]
    results: list[BandResult] = []
    with make_progress(err) as progress:
        task = progress.add_task("cells", total=len(cells))
        for result in sweep.run(cells):
            results.append(result)
            progress.update(task, advance=1, description=str(result.cell))
    if json_path is not None:
        sweep_document = json_document(
            SCHEMA,
            versions=library_versions(),
            machine=f"{platform.machine()}, {os.cpu_count()} cores",
            engines=list(devices_by_name),
            signal=signal,
            rounds=sweep.rounds,
            samples=sweep.samples,
            cells=[result.as_json() for result in results],
        )
        write_results([(json_path, partial(write_json, obj=sweep_document))])
    out = err if uses_stdout([json_path]) else make_console()
    for result in results:
        _print_result(out, result)


def _print_result(out: Any, result: BandResult) -> None:
    print_lines(out, f"{result.cell}: {len(result.cell.band)} bins", style="bold")
    print_table(
        out,
        HEADERS,
        map(_table_row, result.timings),
        right_aligned=HEADERS[2:],
        no_wrap=HEADERS,
    )
    for max_error, (active, error) in result.gates.items():
        removable_share = 1 - active / result.gate_count
        gate_text = (
            f"within {max_error:g}: {removable_share:.0%} of "
            f"{result.gate_count:,} gates can go"
        )
        print_lines(
            out,
            f"{gate_text}, error {error:.1e}; "
            f"{1 - result.needed_gates / result.gate_count:.0%} unasked",
        )


def _table_row(timing: BandTiming) -> tuple[str, ...]:
    max_error = f"{timing.asked:g}" if timing.asked else "exact"
    if timing.failed:
        return timing.method, timing.engine, max_error, "", "", timing.failed
    times = f"{timing.ns:.2f}", f"{timing.ratio:.2f}" if timing.ratio else ""
    return timing.method, timing.engine, max_error, f"{timing.error:.1e}", *times
