"""`./dev bench sweep`: predictions of the cost model against every way, measured."""

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

from rlxweb.calibration.known import may_measure, record_for
from rlxweb.cli import options
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import counted, progress_on, say, screen, show_table
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.decision.terms import human_ns
from rlxweb.devices.place import Place, available_places, engine_key
from rlxweb.errors import RlxError, UsageError
from rlxweb.io import write_json
from tests.benchmarks.band import band
from tests.benchmarks.picker_sweep import (
    AnyCell,
    Measured,
    Summary,
    Sweep,
    as_json,
    cells_of,
    summary_of,
)

FULL = {
    "n_fft": (64, 256, 1024, 4096),
    "batch": (1, 8, 32, 256, 1024, 8192),
    "k": (4, 16),
    "segments": (2, 8),
}
FIGURES = "pick predicted measured best regret devices".split()
LARGEST = 1 << 40
QUICK = {"n_fft": (64, 1024), "batch": (1, 32, 256), "k": (4,), "segments": (2, 8)}


class Form(NamedTuple):
    """How a sweep is told: the schema of its record, the heads of its table."""

    schema: str
    heads: Sequence[str]


WELCH = Form("rlxweb.bench.picker/1", ["n", "batch", "k", "S", *FIGURES])
GRAPHS = Form("rlxweb.bench.graphs/1", ["graph", "shape", *FIGURES])


@click.group(name="sweep")
def command() -> None:
    """Benchmarks of rlxweb's decisions."""


def _numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = ()
    if not found or not 1 <= min(found) <= max(found) <= LARGEST:
        raise UsageError(
            f"--{name}", f"{text!r}", f"whole numbers from 1 to {LARGEST}, with commas"
        )
    return tuple(dict.fromkeys(found))


def _positive(context: click.Context, option: click.Parameter, value: float) -> float:
    if not value > 0:  # NaN is not either
        raise click.BadParameter(f"{value} is not above 0")
    return value


def _above_0(flag: str, default: float, text: str) -> options.Decorator:
    return click.option(
        flag, type=float, default=default, callback=_positive, help=text
    )


@command.command(name="picker", short_help="Welch jobs, done in every way.")
@click.option("--n-fft", metavar="N,N", help="[64,256,1024,4096]")
@click.option("--batch", metavar="N,N", help="[1,8,32,256,1024,8192]")
@click.option("--k", metavar="N,N", help="[4,16]")
@click.option("--segments", metavar="N,N", help="[2,8]")
@options.devices("all")
@click.option(
    "--rounds", type=click.IntRange(3), help="Samples per way [7; 3 with --quick]."
)
@_above_0("--budget-s", 60.0, "Seconds per cell [60].")
@_above_0("--max-gib", 1.5, "Memory per cell [1.5].")
@options.MIN_SEGMENTS
@click.option("--quick", is_flag=True, help="A few small cells.")
@click.option("--graphs", "of_graphs", is_flag=True, help="As `bench graphs`.")
@options.file_path("json", "All of it; - is stdout.")
def picker(
    json_path: str | None,
    quick: bool,
    of_graphs: bool,
    **asked: Any,
) -> None:
    """Run every way to do every Welch job and compare with what was predicted.

    Regret is the time of the pick over the time of the best: 1 is perfect. Losing cells
    are listed. Ctrl-C ends the sweep and keeps what was measured; the exit code is 130.
    """
    if of_graphs:
        common = {name: asked[name] for name in ("devices", "rounds", "max_gib")}
        _refuse_sizes(asked)
        files = {"json_path": json_path}
        click.get_current_context().invoke(graphs, **common, **files, quick=quick)
        return
    check_targets([], [("--json", json_path)])
    grid = QUICK if quick else FULL
    axes = [
        _numbers(name.replace("_", "-"), asked[name]) or usual
        for name, usual in grid.items()
    ]
    cells = cells_of(*axes)
    for cell in cells:
        bins = cell.n_fft // 2 + 1
        if cell.k > bins:
            raise UsageError(
                "--k", f"k is {cell.k}", f"n_fft {cell.n_fft} has {bins} bins"
            )
    least, fewest = asked["min_segments"], min(axes[3])
    if least is not None and least > fewest:
        raise UsageError(
            "--min-segments",
            f"it is {least}",
            f"at most {fewest}, the fewest of --segments",
        )
    places = _measured_places(asked["devices"])
    limits = {name: asked[name] for name in ("budget_s", "max_gib", "min_segments")}
    sweep = Sweep(places, rounds=asked["rounds"] or (3 if quick else 7), **limits)
    _sweep(sweep, cells, WELCH, json_path)


def _refuse_sizes(asked: Mapping[str, Any]) -> None:
    """Errors  UsageError for what Welch jobs alone have."""
    for name in (*FULL, "min_segments"):
        if asked[name] is not None:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag}", "graphs have none", hint="leave it out")


@command.command(name="graphs", short_help="Graphs, run at every place.")
@click.option("-k", "pattern", default="", help="Families with this in their name.")
@options.devices("all")
@click.option(
    "--rounds", type=click.IntRange(3), help="Samples per way [7; 3 with --quick]."
)
@_above_0("--budget-s", 20.0, "Seconds per cell [20].")
@_above_0("--max-gib", 1.5, "Memory per cell [1.5].")
@click.option("--quick", is_flag=True, help="Without the largest graphs.")
@options.file_path("json", "All of it; - is stdout.")
def graphs(json_path: str | None, quick: bool, **asked: Any) -> None:
    """Run graphs of every family of ops at every place and compare with the prices.

    From single ops to whole layers, small to large. Regret is the time of the pick over
    the time of the best: 1 is perfect. Ctrl-C ends the sweep and keeps what was
    measured; the exit code is 130.
    """
    from tests.benchmarks.graph_cells import (  # loads the vocabulary
        FAMILIES,
        graph_cells,
    )

    check_targets([], [("--json", json_path)])
    cells = graph_cells(asked["pattern"], quick)
    if not cells:
        raise UsageError(
            "-k",
            f"no family has {asked['pattern']!r} in its name",
            ", ".join(FAMILIES),
        )
    places = _measured_places(asked["devices"])
    limits = {name: asked[name] for name in ("budget_s", "max_gib")}
    sweep = Sweep(places, rounds=asked["rounds"] or (3 if quick else 7), **limits)
    _sweep(sweep, cells, GRAPHS, json_path)


command.add_command(band)


def _measured_places(devices: Sequence[str]) -> list[Place]:
    """The places of a sweep, whose engines are measured now if they never were."""
    places = options.places_of(devices) or list(available_places())
    for place in places:
        engine_key(place)
        if may_measure():
            record_for(place.device, place.adapter)
    return places


def _sweep(
    sweep: Sweep,
    cells: Sequence[AnyCell],
    form: Form,
    json_path: str | None,
) -> None:
    err = screen(stderr=True)
    found, stopped = _run(sweep, cells, err)
    _finish(found, sweep, form, json_path, err)
    if stopped:
        raise KeyboardInterrupt


def _run(
    sweep: Sweep, cells: Sequence[AnyCell], err: Console
) -> tuple[list[Measured], bool]:
    """Measurements of a sweep, and whether Ctrl-C ended it."""
    found: list[Measured] = []
    with progress_on(err) as bar:
        task = bar.add_task("cells", total=sum(c.effort for c in cells))
        try:
            for one in sweep.run(cells):
                found.append(one)
                bar.update(task, advance=one.cell.effort, description=str(one.cell))
        except KeyboardInterrupt:
            sweep.left_out.append(
                f"{len(cells) - len(found) - len(sweep.left_out)} cells: stopped"
            )
            return found, True
    return found, False


def _finish(
    found: Sequence[Measured],
    sweep: Sweep,
    form: Form,
    json_path: str | None,
    err: Console,
) -> None:
    summary = summary_of(found)
    puts: list[tuple[str, Put]] = []
    if json_path is not None:
        record = document(
            form.schema,
            versions=versions(),
            machine=f"{platform.machine()}, {os.cpu_count()} cores",
            engines=[" ".join(engine_key(p)) for p in sweep.places],
            rounds=sweep.rounds,
            left_out=sweep.left_out,
            **as_json(found, summary),
        )
        puts.append((json_path, partial(write_json, obj=record)))
    write_all(puts)
    out = err if goes_to_stdout([json_path]) else screen()
    _print_cells(out, found, form.heads)
    _print_summary(out, summary, sweep)


def _print_cells(
    console: Console, found: Sequence[Measured], heads: Sequence[str]
) -> None:
    rows = []
    for one in found:
        sizes = one.cell.labels
        if not one.ran:
            rows.append((*sizes, "nothing ran", "", "", "", "", ""))
            continue
        pick, best = one.pick, one.best
        better = f"{_short(best.candidate)} {human_ns(best.measured_ns)}"
        devices = one.device_regret
        found_out = (
            _short(pick.candidate),
            human_ns(pick.candidate.predicted_ns),
            human_ns(pick.measured_ns),
            "the pick" if best is pick else better,
            f"{one.overall_regret:.2f}",
            "" if math.isnan(devices) else f"{devices:.2f}",
        )
        rows.append((*sizes, *found_out))
    numbers = [head for head in heads if head not in ("graph", "pick", "best")]
    show_table(console, heads, rows, right=numbers, whole=heads)


def _short(candidate: Any) -> str:
    how = {"band_fft_host": " band", "block_fft_host": " block"}.get(candidate.how, "")
    return f"{candidate.strategy}{how} {candidate.device.label}"


def _print_summary(console: Console, summary: Summary, sweep: Sweep) -> None:
    lines = ["no cell was measured, so there is no regret to tell"]
    if summary.cells:
        lines = [f"regret over {counted(summary.cells, 'cell')}: {summary.regret}"]
    if not math.isnan(summary.device_regret.median):
        lines.append(f"devices alone, CPU left out: {summary.device_regret}")
    for engine, miss in sorted(summary.model_error.items()):
        lines.append(f"model of {engine}: off by {miss:.0%} (median)")
    for one in summary.losing:
        pick, best = _short(one.pick.candidate), _short(one.best.candidate)
        times = f"{one.overall_regret:.2f} times"
        lines.append(f"losing: {one.cell}: {pick} took {times} {best}")
    for line in (*lines, *(f"left out: {why}" for why in sweep.left_out)):
        say(console, line)


def main(args: Sequence[str] | None = None) -> None:
    """Run a sweep and exit; an error is one line, as of the command line."""
    try:
        command.main(args, prog_name="./dev bench sweep", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        _exit("stopped", 130)
    except click.ClickException as error:
        _exit(error.format_message(), error.exit_code)
    except RlxError as error:
        _exit(str(error), error.exit_code)
    sys.exit(0)


def _exit(text: str, code: int) -> NoReturn:
    click.echo("rlxweb: " + "; ".join(text.split("\n")), err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
