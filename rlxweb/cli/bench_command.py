"""`rlxweb bench`: measure the throughput of each engine of this machine."""

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
from rlxweb.cli.bench_compare import HEADS, SCHEMA, compare_times, read_benchmark_result
from rlxweb.cli.console import make_console, make_progress, print_lines, print_table
from rlxweb.cli.json_documents import json_document, library_versions
from rlxweb.cli.output_files import check_output_paths, uses_stdout, write_results
from rlxweb.core.errors import UsageError
from rlxweb.cost.decision import format_ns
from rlxweb.io import write_json
from rlxweb.select.device_and_adapter import available_places

COLUMNS = (
    *("engine", "median", "spread", "GB/s", "TFLOP/s", "of the roof"),
    *("predicted", "measured / predicted"),
)
MIN_ROUNDS: Final = 7


@click.command(name="bench")
@options.devices_option("every engine of this machine")
@click.option(
    "--quick", is_flag=True, help="Run small cases; the results are not representative."
)
@click.option(
    "--rounds", type=click.IntRange(MIN_ROUNDS), help="Number of timing rounds [7]."
)
@options.output_file_option(
    "json", "Write all results, updated after each case; - is stdout."
)
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    help="Compare two files written by --json, side by side.",
)
def command(
    devices: Sequence[str],
    quick: bool,
    rounds: int | None,
    json_path: str | None,
    compare: tuple[str, str] | None,
) -> int:
    """Measure the throughput of each engine and compare it with the prediction.

    Cases: copy, reduction, FFT, matrix product and Welch peaks on data in device
    memory, and Welch peaks of samples in host memory. The engines take turns; medians
    are shown. After Ctrl-C the results so far are reported and marked partial.

    Exit codes: 0 all cases were measured; 1 an engine failed; 130 interrupted.
    """
    if compare is not None:
        if devices or quick or rounds or json_path is not None:
            raise UsageError(
                "--compare",
                "it cannot be combined with --device, --quick, --rounds or --json",
                "--compare only reads existing results",
            )
        _print_comparison(*compare)
        return 0
    check_output_paths([], [("--json", json_path)])
    return _run_benchmark(devices, quick, rounds or MIN_ROUNDS, json_path)


def _run_benchmark(
    devices: Sequence[str], quick: bool, rounds: int, json_path: str | None
) -> int:
    """Run all cases on the engines, write the result after each case and print it."""
    from rlxweb.cli.bench_cases import benchmark_cases  # loads the vocabulary
    from rlxweb.cli.bench_engines import EngineBenchmark, engine_facts

    err = make_console(stderr=True)
    out = err if uses_stdout([json_path]) else make_console()
    places = options.parse_places(devices) or list(available_places())
    selected_cases, started = benchmark_cases(quick), monotonic()
    result = json_document(
        SCHEMA,
        versions=library_versions(),
        machine={
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
        quick=quick,
        rounds=rounds,
        predicted="time of the kernels for data in device memory, of the whole call "
        "for data in host memory",
        partial=True,
        seconds=0.0,
        engines=[],
        cases=[],
    )
    is_interrupted = False

    def write_result() -> None:
        result["seconds"] = round(monotonic() - started, 3)
        if json_path is not None:
            write_results([(json_path, partial(write_json, obj=result))])

    try:
        with make_progress(err) as bar:
            task = bar.add_task("engines", total=len(places) + len(selected_cases))
            for place in places:
                bar.update(task, description=f"open and calibrate {place}")
                result["engines"].append(engine_facts(place))
                bar.advance(task)
            bench = EngineBenchmark(
                result["engines"],
                places,
                rounds,
                on_progress=lambda text: bar.update(task, description=text),
            )
            for entry in bench.run(selected_cases):
                result["cases"].append(entry)
                bar.advance(task)
                if not err.is_terminal:
                    print_lines(
                        err, f"measured: {entry['case']}, {entry['data']} memory"
                    )
                if not uses_stdout([json_path]):
                    write_result()
        result["partial"] = False
    except KeyboardInterrupt:
        is_interrupted = True
    write_result()
    _print_result(out, result)
    if is_interrupted:
        raise KeyboardInterrupt
    return int(any(row["why"] for entry in result["cases"] for row in entry["rows"]))


def _print_result(console: Console, result: dict[str, Any]) -> None:
    """Print the engines and the table of each case."""
    for facts in result["engines"]:
        description = (
            facts["why"] or f"{facts['engine']}, {facts['driver'] or 'unknown version'}"
        )
        note = f" ({facts['note']})" if facts["note"] else ""
        print_lines(console, f"{facts['place']}: {description}{note}")
    for entry in result["cases"]:
        title = f"{entry['case']} {entry['shape']}, {entry['data']} memory"
        counts = f"{entry['bytes']:,} bytes, {entry['operations']:,} operations"
        print_lines(console, "", f"{title}: {counts}", style="bold")
        rows = [_row_cells(row) for row in entry["rows"]]
        print_table(
            console, COLUMNS, rows, right_aligned=COLUMNS[1:], no_wrap=COLUMNS[2:]
        )
    if result["partial"]:
        print_lines(console, "partial: interrupted before all cases were measured")


def _row_cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one engine's row."""
    if row["why"]:
        return row["engine"], row["why"], *[""] * (len(COLUMNS) - 2)
    roof_shares = [row[name] for name in ("of_memory", "of_arithmetic") if row[name]]
    predicted, ratio = row["predicted_ns"], row["measured_over_predicted"]
    return (
        row["engine"],
        format_ns(row["ns"]),
        f"{row['spread']:.0%}",
        f"{row['gb_s']:.1f}",
        f"{row['tflop_s']:.3g}",
        f"{max(roof_shares):.0%}" if roof_shares else "unknown",
        format_ns(predicted) if predicted else "not calibrated",
        f"{ratio:.2f}" if ratio else "",
    )


def _print_comparison(first_path: str, second_path: str) -> None:
    """Print two result files side by side."""
    a, b = read_benchmark_result(first_path), read_benchmark_result(second_path)
    rows = []
    for case, engine, left, right in compare_times(a, b):
        ratio = f"{left / right:.2f}" if left and right else ""
        times = (
            "not measured" if ns is None else format_ns(ns) for ns in (left, right)
        )
        rows.append((case, engine, *times, ratio))
    console = make_console()
    for name, path, result in (("A", first_path, a), ("B", second_path, b)):
        partial_mark = ", partial" if result.get("partial") else ""
        print_lines(console, f"{name}: {path}{partial_mark}")
    print_table(console, HEADS, rows, right_aligned=HEADS[2:], no_wrap=HEADS[1:])
