"""`./dev bench sweep`: predictions of the cost model against every candidate,
measured.
"""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.console import (
    format_count,
    make_console,
    make_progress,
    print_lines,
    print_table,
)
from rlxweb.cli.json_documents import json_document, library_versions
from rlxweb.cli.output_files import (
    ResultWriter,
    check_output_paths,
    uses_stdout,
    write_results,
)
from rlxweb.core.errors import RlxError, UsageError
from rlxweb.cost.decision import format_ns
from rlxweb.io import write_json
from rlxweb.select.calibration.engine_calibration_lookup import (
    is_measuring_allowed,
    record_for,
)
from rlxweb.select.device_and_adapter import DevicePlace, available_places, engine_key
from tests.benchmarks.band_sweep_command import band
from tests.benchmarks.placement_sweep import (
    PlacementSweep,
    SweepCell,
    SweepCellResult,
    SweepSummary,
    as_json,
    make_welch_cells,
    summarize_sweep,
)

FULL_GRID = {
    "n_fft": (64, 256, 1024, 4096),
    "batch": (1, 8, 32, 256, 1024, 8192),
    "k": (4, 16),
    "segments": (2, 8),
}
FIGURE_HEADERS = "pick predicted measured best regret devices".split()
MAX_SIZE = 1 << 40
QUICK_GRID = {"n_fft": (64, 1024), "batch": (1, 32, 256), "k": (4,), "segments": (2, 8)}


class SweepFormat(NamedTuple):
    """Output format of a sweep: the schema of its document, the headers of its
    table.
    """

    schema: str
    headers: Sequence[str]


WELCH_FORMAT = SweepFormat(
    "rlxweb.bench.picker/1", ["n", "batch", "k", "S", *FIGURE_HEADERS]
)
GRAPHS_FORMAT = SweepFormat(
    "rlxweb.bench.graphs/1", ["graph", "shape", *FIGURE_HEADERS]
)


@click.group(name="sweep")
def command() -> None:
    """Benchmarks of rlxweb's decisions."""


def _parse_sizes(name: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        sizes = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        sizes = ()
    if not sizes or not 1 <= min(sizes) <= max(sizes) <= MAX_SIZE:
        raise UsageError(
            f"--{name}", f"{text!r}", f"whole numbers from 1 to {MAX_SIZE}, with commas"
        )
    return tuple(dict.fromkeys(sizes))


def _check_positive(
    context: click.Context, option: click.Parameter, value: float
) -> float:
    if not value > 0:  # NaN is not either
        raise click.BadParameter(f"{value} is not above 0")
    return value


def _positive_option(flag: str, default: float, text: str) -> options.Decorator:
    return click.option(
        flag, type=float, default=default, callback=_check_positive, help=text
    )


@command.command(name="picker", short_help="Welch jobs, done in every way.")
@click.option("--n-fft", metavar="N,N", help="[64,256,1024,4096]")
@click.option("--batch", metavar="N,N", help="[1,8,32,256,1024,8192]")
@click.option("--k", metavar="N,N", help="[4,16]")
@click.option("--segments", metavar="N,N", help="[2,8]")
@options.devices_option("all")
@click.option(
    "--rounds", type=click.IntRange(3), help="Samples per way [7; 3 with --quick]."
)
@_positive_option("--budget-s", 60.0, "Seconds per cell [60].")
@_positive_option("--max-gib", 1.5, "Memory per cell [1.5].")
@options.MIN_SEGMENTS
@click.option("--quick", is_flag=True, help="A few small cells.")
@click.option("--graphs", "of_graphs", is_flag=True, help="As `bench graphs`.")
@options.output_file_option("json", "All of it; - is stdout.")
def picker(
    json_path: str | None,
    quick: bool,
    of_graphs: bool,
    **option_values: Any,
) -> None:
    """Run every way to do every Welch job and compare with what was predicted.

    Regret is the time of the pick over the time of the best: 1 is perfect. Losing cells
    are listed. Ctrl-C ends the sweep and keeps what was measured; the exit code is 130.
    """
    if of_graphs:
        common = {
            name: option_values[name] for name in ("devices", "rounds", "max_gib")
        }
        _reject_welch_options(option_values)
        files = {"json_path": json_path}
        click.get_current_context().invoke(graphs, **common, **files, quick=quick)
        return
    check_output_paths([], [("--json", json_path)])
    grid = QUICK_GRID if quick else FULL_GRID
    axes = [
        _parse_sizes(name.replace("_", "-"), option_values[name]) or default
        for name, default in grid.items()
    ]
    cells = make_welch_cells(*axes)
    for cell in cells:
        bins = cell.n_fft // 2 + 1
        if cell.k > bins:
            raise UsageError(
                "--k", f"k is {cell.k}", f"n_fft {cell.n_fft} has {bins} bins"
            )
    min_segments, fewest_segments = option_values["min_segments"], min(axes[3])
    if min_segments is not None and min_segments > fewest_segments:
        raise UsageError(
            "--min-segments",
            f"it is {min_segments}",
            f"at most {fewest_segments}, the fewest of --segments",
        )
    places = _calibrated_places(option_values["devices"])
    limits = {
        name: option_values[name] for name in ("budget_s", "max_gib", "min_segments")
    }
    sweep = PlacementSweep(
        places, rounds=option_values["rounds"] or (3 if quick else 7), **limits
    )
    _run_sweep(sweep, cells, WELCH_FORMAT, json_path)


def _reject_welch_options(option_values: Mapping[str, Any]) -> None:
    """Raise UsageError for an option that only Welch jobs have."""
    for name in (*FULL_GRID, "min_segments"):
        if option_values[name] is not None:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag}", "graphs have none", hint="leave it out")


@command.command(name="graphs", short_help="Graphs, run at every place.")
@click.option("-k", "pattern", default="", help="Families with this in their name.")
@options.devices_option("all")
@click.option(
    "--rounds", type=click.IntRange(3), help="Samples per way [7; 3 with --quick]."
)
@_positive_option("--budget-s", 20.0, "Seconds per cell [20].")
@_positive_option("--max-gib", 1.5, "Memory per cell [1.5].")
@click.option("--quick", is_flag=True, help="Without the largest graphs.")
@options.output_file_option("json", "All of it; - is stdout.")
def graphs(json_path: str | None, quick: bool, **option_values: Any) -> None:
    """Run graphs of every family of ops at every place and compare with the prices.

    From single ops to whole layers, small to large. Regret is the time of the pick over
    the time of the best: 1 is perfect. Ctrl-C ends the sweep and keeps what was
    measured; the exit code is 130.
    """
    from tests.benchmarks.graph_cells import (  # loads the vocabulary
        FAMILIES,
        graph_cells,
    )

    check_output_paths([], [("--json", json_path)])
    cells = graph_cells(option_values["pattern"], quick)
    if not cells:
        raise UsageError(
            "-k",
            f"no family has {option_values['pattern']!r} in its name",
            ", ".join(FAMILIES),
        )
    places = _calibrated_places(option_values["devices"])
    limits = {name: option_values[name] for name in ("budget_s", "max_gib")}
    sweep = PlacementSweep(
        places, rounds=option_values["rounds"] or (3 if quick else 7), **limits
    )
    _run_sweep(sweep, cells, GRAPHS_FORMAT, json_path)


command.add_command(band)


def _calibrated_places(devices: Sequence[str]) -> list[DevicePlace]:
    """Return the places of a sweep, whose engines are measured now if they never
    were.
    """
    places = options.parse_places(devices) or list(available_places())
    for place in places:
        engine_key(place)
        if is_measuring_allowed():
            record_for(place.device, place.adapter)
    return places


def _run_sweep(
    sweep: PlacementSweep,
    cells: Sequence[SweepCell],
    output_format: SweepFormat,
    json_path: str | None,
) -> None:
    err_console = make_console(stderr=True)
    results, is_interrupted = _measure_cells(sweep, cells, err_console)
    _report_results(results, sweep, output_format, json_path, err_console)
    if is_interrupted:
        raise KeyboardInterrupt


def _measure_cells(
    sweep: PlacementSweep, cells: Sequence[SweepCell], err_console: Console
) -> tuple[list[SweepCellResult], bool]:
    """Return the measurements of a sweep, and whether Ctrl-C ended it."""
    results: list[SweepCellResult] = []
    with make_progress(err_console) as progress:
        task = progress.add_task("cells", total=sum(c.effort for c in cells))
        try:
            for result in sweep.run(cells):
                results.append(result)
                progress.update(
                    task, advance=result.cell.effort, description=str(result.cell)
                )
        except KeyboardInterrupt:
            sweep.skipped_cells.append(
                f"{len(cells) - len(results) - len(sweep.skipped_cells)} cells: stopped"
            )
            return results, True
    return results, False


def _report_results(
    results: Sequence[SweepCellResult],
    sweep: PlacementSweep,
    output_format: SweepFormat,
    json_path: str | None,
    err_console: Console,
) -> None:
    summary = summarize_sweep(results)
    writers: list[tuple[str, ResultWriter]] = []
    if json_path is not None:
        sweep_document = json_document(
            output_format.schema,
            versions=library_versions(),
            machine=f"{platform.machine()}, {os.cpu_count()} cores",
            engines=[" ".join(engine_key(p)) for p in sweep.places],
            rounds=sweep.rounds,
            left_out=sweep.skipped_cells,
            **as_json(results, summary),
        )
        writers.append((json_path, partial(write_json, obj=sweep_document)))
    write_results(writers)
    out = err_console if uses_stdout([json_path]) else make_console()
    _print_cells(out, results, output_format.headers)
    _print_summary(out, summary, sweep)


def _print_cells(
    console: Console, results: Sequence[SweepCellResult], headers: Sequence[str]
) -> None:
    rows = []
    for result in results:
        sizes = result.cell.labels
        if not result.successful_rows:
            rows.append((*sizes, "nothing ran", "", "", "", "", ""))
            continue
        pick, best = result.pick, result.best
        best_text = f"{_short_name(best.candidate)} {format_ns(best.measured_ns)}"
        device_regret = result.device_regret
        figures = (
            _short_name(pick.candidate),
            format_ns(pick.candidate.predicted_ns),
            format_ns(pick.measured_ns),
            "the pick" if best is pick else best_text,
            f"{result.overall_regret:.2f}",
            "" if math.isnan(device_regret) else f"{device_regret:.2f}",
        )
        rows.append((*sizes, *figures))
    right_aligned = [
        header for header in headers if header not in ("graph", "pick", "best")
    ]
    print_table(console, headers, rows, right_aligned=right_aligned, no_wrap=headers)


def _short_name(candidate: Any) -> str:
    method = {"band_fft_host": " band", "block_fft_host": " block"}.get(
        candidate.how, ""
    )
    return f"{candidate.strategy}{method} {candidate.device.label}"


def _print_summary(
    console: Console, summary: SweepSummary, sweep: PlacementSweep
) -> None:
    lines = ["no cell was measured, so there is no regret to tell"]
    if summary.cells:
        lines = [f"regret over {format_count(summary.cells, 'cell')}: {summary.regret}"]
    if not math.isnan(summary.device_regret.median):
        lines.append(f"devices alone, CPU left out: {summary.device_regret}")
    for engine, typical_error in sorted(summary.model_error.items()):
        lines.append(f"model of {engine}: off by {typical_error:.0%} (median)")
    for result in summary.losing_cells:
        pick = _short_name(result.pick.candidate)
        best = _short_name(result.best.candidate)
        times = f"{result.overall_regret:.2f} times"
        lines.append(f"losing: {result.cell}: {pick} took {times} {best}")
    for line in (*lines, *(f"left out: {reason}" for reason in sweep.skipped_cells)):
        print_lines(console, line)


def main(args: Sequence[str] | None = None) -> None:
    """Run a sweep and exit; an error is one line, as of the command line."""
    try:
        command.main(args, prog_name="./dev bench sweep", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        _exit_with_message("stopped", 130)
    except click.ClickException as error:
        _exit_with_message(error.format_message(), error.exit_code)
    except RlxError as error:
        _exit_with_message(str(error), error.exit_code)
    sys.exit(0)


def _exit_with_message(text: str, code: int) -> NoReturn:
    click.echo("rlxweb: " + "; ".join(text.split("\n")), err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
