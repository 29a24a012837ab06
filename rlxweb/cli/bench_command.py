"""`rlxweb bench`: what each engine of this machine reaches."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.bench_compare import HEADS, SCHEMA, comparison, read_record
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import progress_on, say, screen, show_table
from rlxweb.cli.targets import check_targets, goes_to_stdout, write_all
from rlxweb.decision.terms import human_ns
from rlxweb.devices.place import available_places
from rlxweb.errors import UsageError
from rlxweb.io import write_json

COLUMNS = (
    *("engine", "median", "spread", "GB/s", "TFLOP/s", "of the roof"),
    *("predicted", "measured / predicted"),
)
LEAST_ROUNDS: Final = 7


@click.command(name="bench")
@options.devices("every engine of this machine")
@click.option("--quick", is_flag=True, help="Small cases; no figures to publish.")
@click.option("--rounds", type=click.IntRange(LEAST_ROUNDS), help="Samples [7].")
@options.file_path("json", "All of it, after each case; - is stdout.")
@click.option(
    "--compare", nargs=2, metavar="A B", help="Two files of --json, side by side."
)
def command(
    devices: Sequence[str],
    quick: bool,
    rounds: int | None,
    json_path: str | None,
    compare: tuple[str, str] | None,
) -> int:
    """Measure what each engine of this machine reaches, beside what is predicted.

    Copy, reduction, FFT, matrix product and Welch peaks on data in the engine's memory;
    Welch peaks of samples in the host's memory. Medians of runs in turns. Ctrl-C keeps
    what was measured, marked partial.

    Exit codes: 0 all was measured; 1 an engine failed; 130 stopped.
    """
    if compare is not None:
        if devices or quick or rounds or json_path is not None:
            raise UsageError("--compare", "it measures nothing", "it stands alone")
        _compare(*compare)
        return 0
    check_targets([], [("--json", json_path)])
    return _measure(devices, quick, rounds or LEAST_ROUNDS, json_path)


def _measure(
    devices: Sequence[str], quick: bool, rounds: int, json_path: str | None
) -> int:
    from rlxweb.cli.bench_cases import cases  # loads the vocabulary
    from rlxweb.cli.bench_engines import Bench, engine_facts

    err = screen(stderr=True)
    out = err if goes_to_stdout([json_path]) else screen()
    places = options.places_of(devices) or list(available_places())
    work, started = cases(quick), monotonic()
    record = document(
        SCHEMA,
        versions=versions(),
        machine={
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
        quick=quick,
        rounds=rounds,
        predicted="device memory: the kernels alone; host memory: the whole call",
        partial=True,
        seconds=0.0,
        engines=[],
        cases=[],
    )
    stopped = False

    def write() -> None:
        record["seconds"] = round(monotonic() - started, 3)
        if json_path is not None:
            write_all([(json_path, partial(write_json, obj=record))])

    try:
        with progress_on(err) as bar:
            task = bar.add_task("engines", total=len(places) + len(work))
            for place in places:
                bar.update(task, description=f"open and calibrate {place}")
                record["engines"].append(engine_facts(place))
                bar.advance(task)
            bench = Bench(
                record["engines"],
                places,
                rounds,
                begun=lambda text: bar.update(task, description=text),
            )
            for entry in bench.run(work):
                record["cases"].append(entry)
                bar.advance(task)
                if not err.is_terminal:
                    say(err, f"measured: {entry['case']}, {entry['data']} memory")
                if not goes_to_stdout([json_path]):
                    write()
        record["partial"] = False
    except KeyboardInterrupt:
        stopped = True
    write()
    _show(out, record)
    if stopped:
        raise KeyboardInterrupt
    return int(any(row["why"] for entry in record["cases"] for row in entry["rows"]))


def _show(console: Console, record: dict[str, Any]) -> None:
    for facts in record["engines"]:
        told = facts["why"] or f"{facts['engine']}, {facts['driver'] or 'no version'}"
        note = f" ({facts['note']})" if facts["note"] else ""
        say(console, f"{facts['place']}: {told}{note}")
    for entry in record["cases"]:
        title = f"{entry['case']} {entry['shape']}, {entry['data']} memory"
        counts = f"{entry['bytes']:,} bytes, {entry['operations']:,} operations"
        say(console, "", f"{title}: {counts}", style="bold")
        rows = [_cells(row) for row in entry["rows"]]
        show_table(console, COLUMNS, rows, right=COLUMNS[1:], whole=COLUMNS[2:])
    if record["partial"]:
        say(console, "partial: stopped before all cases were measured")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["why"]:
        return row["engine"], row["why"], *[""] * (len(COLUMNS) - 2)
    shares = [row[name] for name in ("of_memory", "of_arithmetic") if row[name]]
    predicted, ratio = row["predicted_ns"], row["measured_over_predicted"]
    return (
        row["engine"],
        human_ns(row["ns"]),
        f"{row['spread']:.0%}",
        f"{row['gb_s']:.1f}",
        f"{row['tflop_s']:.3g}",
        f"{max(shares):.0%}" if shares else "not known",
        human_ns(predicted) if predicted else "not calibrated",
        f"{ratio:.2f}" if ratio else "",
    )


def _compare(first: str, second: str) -> None:
    a, b = read_record(first), read_record(second)
    rows = []
    for case, engine, left, right in comparison(a, b):
        ratio = f"{left / right:.2f}" if left and right else ""
        times = ("no time" if ns is None else human_ns(ns) for ns in (left, right))
        rows.append((case, engine, *times, ratio))
    console = screen()
    for name, path, record in (("A", first, a), ("B", second, b)):
        part = ", partial" if record.get("partial") else ""
        say(console, f"{name}: {path}{part}")
    show_table(console, HEADS, rows, right=HEADS[2:], whole=HEADS[1:])
