"""`rlxweb welch FILE…`: spectra and peaks of recordings.

Owns the options and the order of things: look at the outputs, read and average, write
the files, print. Standard output comes last, so a reader that leaves loses no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rlxweb.cli.explain_command import print_decision
from rlxweb.cli.job import FileResult, Settings, analyse
from rlxweb.cli.outputs import check_outputs, save_csv, save_json, save_npz
from rlxweb.cli.plot import check_plot, save_plot
from rlxweb.cli.table import print_peaks
from rlxweb.errors import UsageError
from rlxweb.io import Recording, open_recording

# Shorter work ends before a bar could be read.
BAR_FROM_SAMPLES = 20_000_000

OPTIONS = [
    click.option("--fs", type=float, help="Rate in Hz, for files that carry none."),
    click.option(
        "--nperseg",
        type=int,
        default=256,
        show_default=True,
        help="Samples per segment.",
    ),
    click.option(
        "--noverlap",
        type=int,
        help="Samples two segments share; default: the preset's.",
    ),
    click.option("--nsegments", type=int, help="Average only the first so many."),
    click.option("--k", type=int, default=16, show_default=True, help="Peaks to keep."),
    click.option(
        "--preset",
        type=click.Choice(["rlx", "scipy", "mne"]),
        default="rlx",
        show_default=True,
        help="rlx: symmetric Hann, |X|² unscaled; scipy, mne: their density.",
    ),
    click.option(
        "--mode",
        type=click.Choice(["bins", "peaks"]),
        default="bins",
        show_default=True,
        help="Strongest bins, or true local maxima with refined frequency.",
    ),
    click.option("--window", help="Window name; default: the preset's."),
    click.option(
        "--detrend",
        type=click.Choice(["none", "constant", "linear"]),
        help="Removed from each segment; default: the preset's.",
    ),
    click.option("--prominence", type=float, help="Least prominence (mode peaks)."),
    click.option(
        "--channels",
        "-c",
        multiple=True,
        help="Channel names or patterns ('EEG*'), repeatable or comma-separated.",
    ),
    click.option("--array", help="Member of an NPZ file."),
    click.option(
        "--layout",
        type=click.Choice(["channels-first", "samples-first"]),
        help="Of a 2-D NPY or NPZ array; default: channels-first.",
    ),
    click.option(
        "--device",
        default="auto",
        show_default=True,
        help="auto, or a name of `rlxweb devices`.",
    ),
    click.option(
        "--adapter", default="", help="Part of an adapter's name; implies a GPU."
    ),
    click.option(
        "--precision",
        type=click.Choice(["auto", "f32", "f64"]),
        default="auto",
        show_default=True,
        help="auto: the file's on the CPU, float32 on a device asked for by name.",
    ),
    click.option(
        "--nan",
        type=click.Choice(["raise", "propagate"]),
        default="raise",
        show_default=True,
        help="What to do about samples that are not finite.",
    ),
    click.option("--csv", "csv_path", metavar="F", help="Write the peaks as CSV."),
    click.option(
        "--npz", "npz_path", metavar="F", help="Write spectra and peaks as NPZ."
    ),
    click.option(
        "--json", "json_path", metavar="F", help="Write the run record; - is stdout."
    ),
    click.option(
        "--plot",
        "plot_path",
        metavar="F",
        help="Draw spectra with their peaks, or a heatmap (.png, .svg, .pdf).",
    ),
    click.option("--explain", is_flag=True, help="Say where it ran and why."),
    click.option("--quiet", "-q", is_flag=True, help="No table."),
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run should leave behind; paths are None where not asked for."""

    csv: str | None = None
    npz: str | None = None
    json: str | None = None
    plot: str | None = None
    explain: bool = False
    quiet: bool = False

    def check(self, files: Sequence[str]) -> None:
        """Refuse now what would be refused after the work is done."""
        paths = (("--csv", self.csv), ("--npz", self.npz), ("--json", self.json))
        named = [(option, path) for option, path in paths if path is not None]
        if self.plot is not None:
            check_plot(Path(self.plot))
            named += [("--plot", picture) for picture in pictures_of(self.plot, files)]
        check_outputs(files, named)


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
    paths = {n: options.pop(f"{n}_path") for n in ("csv", "npz", "json", "plot")}
    wanted = Wanted(**paths, explain=options.pop("explain"), quiet=options.pop("quiet"))
    listed = options.pop("channels")
    names = tuple(c.strip() for one in listed for c in one.split(",") if c.strip())
    if listed and not names:
        raise UsageError("--channels", "no channel is named", hint="leave it out")
    run_job(files, Settings(channels=names, **options), wanted)


def run_job(
    files: Sequence[str], settings: Settings, wanted: Wanted
) -> list[FileResult]:
    """Analyse, save, print: what `welch` and `demo` share."""
    wanted.check(files)
    say = Console(stderr=True)
    results = []
    for file in files:
        with _open(file, settings) as recording:
            _tell_left_out(say, recording)
            with _progress(recording, say) as advance:
                results.append(analyse(recording, settings, advance))
    _save(results, settings, wanted, say)
    out = say if wanted.json == "-" else Console()
    if not wanted.quiet:
        print_peaks(out, results)
    if wanted.explain:
        _explain(out, results)
    if wanted.json == "-":
        save_json("-", results, settings)
    return results


def _open(file: str, settings: Settings) -> Recording:
    return open_recording(
        file,
        fs=settings.fs,
        channels=settings.channels or None,
        array=settings.array,
        layout=settings.layout,  # type: ignore[arg-type]
    )


def _tell_left_out(say: Console, recording: Recording) -> None:
    """One line per reason, so that 30 status channels are not 30 lines."""
    reasons: dict[str, list[str]] = {}
    for name, why in recording.left_out:
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        rest = f" and {len(names) - 6} more" if len(names) > 6 else ""
        listed = ", ".join(f"'{name}'" for name in names[:6])
        say.print(
            f"left out {listed}{rest}: {why}",
            style="dim",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


@contextmanager
def _progress(
    recording: Recording, console: Console
) -> Iterator[Callable[[int], None] | None]:
    """A bar on a terminal, for long recordings; None otherwise."""
    work = sum(g.n_samples * len(g.channels) for g in recording.groups)
    if not console.is_terminal or work < BAR_FROM_SAMPLES:
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(Path(recording.path).name, total=work)
        yield lambda n: bar.advance(task, n)


def _explain(console: Console, results: Sequence[FileResult]) -> None:
    for result in results:
        for group in result.groups:
            title = (
                f"{result.path} at {group.fs:g} Hz ran on {group.engine} in "
                f"{group.spec.dtype}"
            )
            print_decision(console, group.decision, title)


def _save(
    results: Sequence[FileResult], settings: Settings, wanted: Wanted, say: Console
) -> None:
    if wanted.csv is not None:
        save_csv(wanted.csv, results)
    if wanted.npz is not None:
        save_npz(wanted.npz, results)
    if wanted.json not in (None, "-"):
        save_json(str(wanted.json), results, settings)
    if wanted.plot is not None:
        pictures = pictures_of(wanted.plot, [r.path for r in results])
        for result, picture in zip(results, pictures, strict=True):
            save_plot(Path(picture), result)
            say.print(
                f"picture: {picture}", markup=False, highlight=False, soft_wrap=True
            )


def pictures_of(plot: str, files: Sequence[str]) -> list[str]:
    """One picture per file; several files get their stem put into the name."""
    if len(files) == 1:
        return [plot]
    target, stems = Path(plot), [Path(file).stem for file in files]
    if len(set(stems)) != len(stems):
        raise UsageError(
            f"--plot {plot!r}",
            "two of the files share a name, so their pictures would too",
            hint="plot them one at a time",
        )
    return [
        str(target.with_name(f"{target.stem}-{stem}{target.suffix}")) for stem in stems
    ]
