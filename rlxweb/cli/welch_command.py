"""`rlxweb welch FILE…`: spectra and peaks of recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rlxweb.cli.job import FileResult, Settings, analyse
from rlxweb.cli.outputs import save_csv, save_json, save_npz
from rlxweb.cli.plot import save_plot
from rlxweb.cli.table import print_peaks
from rlxweb.errors import UsageError
from rlxweb.io import Recording, open_recording

# Shorter work ends before a bar could be read.
BAR_FROM_SAMPLES = 20_000_000

OPTIONS = [
    click.option("--fs", type=float, help="Rate in Hz, for files that carry none."),
    click.option("--nperseg", type=int, default=256, show_default=True),
    click.option("--noverlap", type=int, help="Default: the preset's."),
    click.option("--nsegments", type=int, help="Average only the first so many."),
    click.option("--k", type=int, default=16, show_default=True, help="Peaks to keep."),
    click.option(
        "--preset",
        type=click.Choice(["rlx", "scipy", "mne"]),
        default="rlx",
        show_default=True,
    ),
    click.option(
        "--mode",
        type=click.Choice(["bins", "peaks"]),
        default="bins",
        show_default=True,
        help="Strongest bins, or true local maxima with refined frequency.",
    ),
    click.option("--window", help="Window name; default: the preset's."),
    click.option("--detrend", type=click.Choice(["none", "constant", "linear"])),
    click.option("--prominence", type=float, help="Least prominence (mode peaks)."),
    click.option(
        "--channels",
        "-c",
        multiple=True,
        help="Channel names or patterns ('EEG*'), repeatable or comma-separated.",
    ),
    click.option("--array", help="Member of an NPZ file."),
    click.option("--layout", type=click.Choice(["channels-first", "samples-first"])),
    click.option("--device", default="auto", show_default=True),
    click.option("--adapter", default="", help="Part of an adapter's name."),
    click.option(
        "--precision",
        type=click.Choice(["auto", "f32", "f64"]),
        default="auto",
        show_default=True,
        help="auto: float64 on the CPU, float32 on a device that was asked for.",
    ),
    click.option(
        "--nan",
        type=click.Choice(["raise", "propagate"]),
        default="raise",
        show_default=True,
        help="What to do about samples that are not finite.",
    ),
    click.option("--csv", "csv_path", help="Write the peaks as CSV."),
    click.option("--npz", "npz_path", help="Write spectra and peaks as NPZ."),
    click.option("--json", "json_path", help="Write the run record; - is stdout."),
    click.option("--plot", "plot_path", help="Draw spectra with peaks, or a heatmap."),
    click.option("--explain", is_flag=True, help="Say where it ran and why."),
    click.option("--quiet", "-q", is_flag=True, help="No table."),
]


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """All options of the job, in the order of the list."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command(name="welch")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@with_options
def command(files: tuple[str, ...], **options: Any) -> None:
    """Welch spectra and their strongest peaks, per channel, of recordings.

    Reads EDF/EDF+/BDF, WAV, NPY/NPZ and CSV in blocks, so files may be larger than
    memory.
    """
    run_job(files, options)


def run_job(files: Sequence[str], options: dict[str, Any]) -> list[FileResult]:
    """Analyse, print, save: what `welch` and `demo` share."""
    paths = {n: options.pop(n) for n in ("csv_path", "npz_path", "json_path")}
    plot_path = options.pop("plot_path")
    explain, quiet = options.pop("explain"), options.pop("quiet")
    channels = options.pop("channels")
    names = tuple(c.strip() for one in channels for c in one.split(",") if c.strip())
    settings = Settings(channels=names, **options)
    say = Console(stderr=True)
    results = []
    for file in files:
        with _open(file, settings) as recording:
            for name, why in recording.left_out:
                say.print(f"left out '{name}': {why}", style="dim", markup=False)
            with _progress(recording, say) as advance:
                results.append(analyse(recording, settings, advance))
    to_stdout = paths["json_path"] == "-"
    out = say if to_stdout else Console()
    if not quiet:
        print_peaks(out, results)
    if explain:
        _explain(out, results)
    _save(results, settings, paths, plot_path, say)
    return results


def _open(file: str, settings: Settings) -> Recording:
    return open_recording(
        file,
        fs=settings.fs,
        channels=settings.channels or None,
        array=settings.array,
        layout=settings.layout,  # type: ignore[arg-type]
    )


@contextmanager
def _progress(
    recording: Recording, console: Console
) -> Iterator[Callable[[int], None] | None]:
    """A bar on a terminal, for long recordings; None otherwise."""
    total = sum(g.n_samples for g in recording.groups)
    work = sum(g.n_samples * len(g.channels) for g in recording.groups)
    if not console.is_terminal or work < BAR_FROM_SAMPLES:
        yield None
        return
    columns = (
        TextColumn(Path(recording.path).name),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda n: bar.advance(task, n)


def _explain(console: Console, results: Sequence[FileResult]) -> None:
    for result in results:
        for group in result.groups:
            console.print(
                f"{result.path} at {group.fs:g} Hz ran on {group.engine} in "
                f"{group.spec.dtype}: {group.decision.why}",
                markup=False,
            )


def _save(
    results: Sequence[FileResult],
    settings: Settings,
    paths: dict[str, str | None],
    plot_path: str | None,
    say: Console,
) -> None:
    if paths["csv_path"]:
        save_csv(paths["csv_path"], results)
    if paths["npz_path"]:
        save_npz(paths["npz_path"], results)
    if paths["json_path"]:
        save_json(paths["json_path"], results, settings)
    if plot_path:
        for path in _draw(results, plot_path):
            say.print(f"picture: {path}", markup=False)


def _draw(results: Sequence[FileResult], plot_path: str) -> Iterator[str]:
    """One picture per file; several files get their stem put into the name."""
    target = Path(plot_path)
    stems = [Path(r.path).stem for r in results]
    if len(set(stems)) != len(stems):
        raise UsageError(
            f"plot to {plot_path!r}",
            "two of the files share a name",
            hint="plot them one at a time",
        )
    for result, stem in zip(results, stems, strict=True):
        one = target
        if len(results) > 1:
            one = target.with_name(f"{target.stem}-{stem}{target.suffix}")
        save_plot(one, result)
        yield str(one)
