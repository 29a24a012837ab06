"""`rlxweb bench picker`: how good the picks are, on this machine, now."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rlxweb.calibration.known import may_measure, record_for
from rlxweb.cli.bench_picker import (
    Cell,
    Measured,
    Summary,
    Sweep,
    as_json,
    cells_of,
    summary_of,
)
from rlxweb.cli.bench_plot import save_picker_plot
from rlxweb.cli.outputs import check_outputs
from rlxweb.cli.plot import check_plot
from rlxweb.cli.versions import rlxweb_version, versions
from rlxweb.decision.terms import human_ns
from rlxweb.devices.place import Place, available_places, engine_key, parse_place
from rlxweb.errors import UsageError
from rlxweb.io import write_json

SCHEMA = "rlxweb.bench.picker/1"
FULL = {
    "n_fft": (64, 256, 1024, 4096),
    "batch": (1, 8, 32, 256, 1024, 8192),
    "k": (4, 16),
    "segments": (2, 8),
}
LARGEST = 1 << 40
WIDEST = 1000
QUICK = {"n_fft": (64, 1024), "batch": (1, 32, 256), "k": (4,), "segments": (2, 8)}


@click.group(name="bench")
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


@command.command(name="picker")
@click.option("--n-fft", metavar="N,N", help="[64,256,1024,4096]")
@click.option("--batch", metavar="N,N", help="[1,8,32,256,1024,8192]")
@click.option("--k", metavar="N,N", help="[4,16]")
@click.option("--segments", metavar="N,N", help="[2,8]")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="D",
    help="A device, or device:part of an adapter's name; repeatable. Default: all.",
)
@click.option(
    "--rounds", type=click.IntRange(3), help="Samples per way [7; 3 with --quick]."
)
@click.option(
    "--budget-s",
    type=float,
    default=60.0,
    callback=_positive,
    help="Seconds per cell [60].",
)
@click.option(
    "--max-gib",
    type=float,
    default=1.5,
    callback=_positive,
    help="Memory per cell [1.5].",
)
@click.option("--min-segments", type=click.IntRange(1), help="1 allows 'ultra'.")
@click.option("--quick", is_flag=True, help="A few small cells.")
@click.option("--json", "json_path", metavar="F", help="All of it; - is stdout.")
@click.option("--plot", "plot_path", metavar="F", help="A picture (.png, .svg, .pdf).")
def picker(
    json_path: str | None, plot_path: str | None, quick: bool, **options: Any
) -> None:
    """Run every way to do every Welch job and compare with what was predicted.

    Regret is the time of the pick over the time of the best: 1 is perfect. Losing cells
    are listed. Ctrl-C ends the sweep and keeps what was measured; the exit code is 130.
    """
    _check_outputs(json_path, plot_path)
    grid = QUICK if quick else FULL
    axes = [
        _numbers(flag, options[name]) or grid[name]
        for name, flag in (
            ("n_fft", "n-fft"),
            ("batch", "batch"),
            ("k", "k"),
            ("segments", "segments"),
        )
    ]
    cells = cells_of(*axes)
    too_many = [c for c in cells if c.k > c.n_fft // 2 + 1]
    if too_many:
        cell = too_many[0]
        raise UsageError(
            "--k",
            f"k is {cell.k}",
            f"n_fft {cell.n_fft} has {cell.n_fft // 2 + 1} bins",
        )
    asked = dict.fromkeys(parse_place(d) for d in options["devices"])
    _check_least(options["min_segments"], axes[3])
    places = list(asked) or list(available_places())
    _calibrate(places)
    sweep = Sweep(
        places,
        rounds=options["rounds"] or (3 if quick else 7),
        budget_s=options["budget_s"],
        max_gib=options["max_gib"],
        min_segments=options["min_segments"],
    )
    say = Console(stderr=True)
    found, stopped = _run(sweep, cells, say)
    _finish(found, sweep, places, json_path, plot_path, say)
    if stopped:
        raise KeyboardInterrupt


def _check_least(least: int | None, segments: Sequence[int]) -> None:
    if least is not None and least > min(segments):
        raise UsageError(
            "--min-segments",
            f"it is {least}",
            f"at most {min(segments)}, the fewest of --segments",
        )


def _check_outputs(json_path: str | None, plot_path: str | None) -> None:
    named = [("--json", json_path)] if json_path is not None else []
    if plot_path is not None:
        check_plot(Path(plot_path))
        named.append(("--plot", plot_path))
    check_outputs([], named)


def _calibrate(places: Sequence[Place]) -> None:
    """Every engine measured before the sweep; what is not known is measured now."""
    for place in places:
        engine_key(place)
        if may_measure():
            record_for(place.device, place.adapter)


def _run(
    sweep: Sweep, cells: Sequence[Cell], say: Console
) -> tuple[list[Measured], bool]:
    """What was measured, and whether Ctrl-C ended it."""
    found: list[Measured] = []
    with _progress(cells, say) as advance:
        try:
            for one in sweep.run(cells):
                found.append(one)
                advance(one.cell)
        except KeyboardInterrupt:
            sweep.left_out.append(
                f"{len(cells) - len(found) - len(sweep.left_out)} cells: stopped"
            )
            return found, True
    return found, False


@contextmanager
def _progress(cells: Sequence[Cell], console: Console) -> Iterator[Any]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    if not console.is_terminal:
        yield lambda cell: None
        return

    def work(cell: Cell) -> float:
        return 1.0 + cell.n_fft * cell.batch * cell.segments / 1e5

    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("cells", total=sum(work(c) for c in cells))

        def advance(cell: Cell) -> None:
            bar.update(task, advance=work(cell), description=str(cell))

        yield advance


def _finish(
    found: Sequence[Measured],
    sweep: Sweep,
    places: Sequence[Place],
    json_path: str | None,
    plot_path: str | None,
    say: Console,
) -> None:
    summary = summary_of(found)
    if json_path is not None:
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        write_json(
            json_path,
            {
                "schema": SCHEMA,
                "rlxweb": rlxweb_version(),
                "versions": versions(),
                "machine": machine,
                "engines": [" ".join(engine_key(p)) for p in places],
                "rounds": sweep.rounds,
                "left_out": sweep.left_out,
                **as_json(found, summary),
            },
        )
    if plot_path is not None and found:
        save_picker_plot(Path(plot_path), found)
        text = f"picture: {plot_path}"
        say.print(text, markup=False, highlight=False, soft_wrap=True)
    out = say if json_path == "-" else Console()
    _print_cells(out, found)
    _print_summary(out, summary, sweep)


def _print_cells(console: Console, found: Sequence[Measured]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("n", "batch", "k", "S"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("pick", no_wrap=True)
    for head in ("predicted", "measured"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("best", no_wrap=True)
    for head in ("regret", "devices"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in found:
        cell = one.cell
        sizes = [f"{v:,}" for v in (cell.n_fft, cell.batch, cell.k, cell.segments)]
        if all(r.error for r in one.rows):
            table.add_row(*sizes, "nothing ran", "", "", "", "", "")
            continue
        pick, best = one.pick, one.best
        better = f"{_short(best.candidate)} {human_ns(best.measured_ns)}"
        table.add_row(
            *sizes,
            _short(pick.candidate),
            human_ns(pick.candidate.predicted_ns),
            human_ns(pick.measured_ns),
            "the pick" if best is pick else better,
            f"{one.overall_regret:.2f}",
            "" if math.isnan(one.device_regret) else f"{one.device_regret:.2f}",
        )
    # Wider than a narrow terminal, rather than with its figures cut off.
    roomy = console.options.update(max_width=WIDEST)
    width = console.measure(table, options=roomy).maximum
    Console(file=console.file, width=max(width, console.width)).print(table)


def _short(candidate: Any) -> str:
    how = {"fused_op": "", "block_fft_host": " block"}.get(candidate.how, "")
    return f"{candidate.strategy}{how} {candidate.device.label}"


def _print_summary(console: Console, summary: Summary, sweep: Sweep) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if summary.cells:
        say(
            f"regret over {summary.cells} cell{'s' * (summary.cells != 1)}: "
            f"median {summary.median_regret:.3f}, "
            f"90 % {summary.p90_regret:.3f}, worst {summary.worst_regret:.3f}"
        )
    else:
        say("no cell was measured, so there is no regret to tell and no picture")
    if not math.isnan(summary.device_median_regret):
        say(
            f"devices alone, CPU left out: median {summary.device_median_regret:.3f}, "
            f"90 % {summary.device_p90_regret:.3f}, "
            f"worst {summary.device_worst_regret:.3f}"
        )
    for engine, miss in sorted(summary.model_error.items()):
        say(f"model of {engine}: off by {miss:.0%} (median)")
    for one in summary.losing:
        say(
            f"losing: {one.cell}: {_short(one.pick.candidate)} took "
            f"{one.overall_regret:.2f} times {_short(one.best.candidate)}"
        )
    for why in sweep.left_out:
        say(f"left out: {why}")
