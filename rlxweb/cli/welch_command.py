"""`rlxweb welch FILE…`: spectra and peaks of recordings.

Owns the options and the order of things: look at the outputs, read and average, write
the files, print. Standard output comes last, so a reader that leaves loses no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.explain_command import print_decision
from rlxweb.cli.job import FileResult, Settings, analyse
from rlxweb.cli.outputs import check_outputs, save_csv, save_json, save_npz
from rlxweb.cli.plot import check_plot, save_plot
from rlxweb.cli.screen import progress_on, say
from rlxweb.cli.table import print_peaks
from rlxweb.errors import UsageError
from rlxweb.io import Recording, open_recording

# Shorter work ends before a bar could be read.
BAR_FROM_SAMPLES = 20_000_000


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
        named = [("--csv", self.csv), ("--npz", self.npz), ("--json", self.json)]
        if self.plot is not None:
            check_plot(Path(self.plot))
            named += [("--plot", picture) for picture in pictures_of(self.plot, files)]
        check_outputs(files, named)


@click.command(name="welch")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.FS
@options.valued("--nperseg", int, "Samples per segment.", 256)
@options.valued("--noverlap", int, "Samples two segments share; default: the preset's.")
@options.valued("--nsegments", int, "Average only the first so many.")
@options.valued("--k", int, "Peaks to keep.", 16)
@options.one_of(
    "--preset",
    ["rlx", "scipy", "mne"],
    "rlx: symmetric Hann, |X|² unscaled; scipy, mne: their density.",
    "rlx",
)
@options.one_of(
    "--mode",
    ["bins", "peaks"],
    "Strongest bins, or true local maxima with refined frequency.",
    "bins",
)
@click.option("--window", help="Window name; default: the preset's.")
@options.one_of(
    "--detrend",
    ["none", "constant", "linear"],
    "Removed from each segment; default: the preset's.",
)
@click.option("--prominence", type=float, help="Least prominence (mode peaks).")
@click.option(
    "--channels",
    "-c",
    multiple=True,
    help="Channel names or patterns ('EEG*'), repeatable or comma-separated.",
)
@click.option("--array", help="Member of an NPZ file.")
@options.one_of(
    "--layout",
    ["channels-first", "samples-first"],
    "Of a 2-D NPY or NPZ array; default: channels-first.",
)
@options.AUTO_DEVICE
@click.option("--adapter", default="", help="Part of an adapter's name; implies a GPU.")
@options.PRECISION
@options.one_of(
    "--nan",
    ["raise", "propagate"],
    "What to do about samples that are not finite.",
    "raise",
)
@options.file_path("csv", "Write the peaks as CSV.")
@options.file_path("npz", "Write spectra and peaks as NPZ.")
@options.file_path("json", "Write the run record; - is stdout.")
@options.file_path(
    "plot", "Draw spectra with their peaks, or a heatmap (.png, .svg, .pdf)."
)
@click.option("--explain", is_flag=True, help="Say where it ran and why.")
@click.option("--quiet", "-q", is_flag=True, help="No table.")
def command(files: tuple[str, ...], **asked: Any) -> None:
    """Welch spectra and their strongest peaks, per channel, of recordings.

    Reads EDF/EDF+/BDF, WAV, NPY/NPZ and CSV in blocks, so files may be larger than
    memory.
    """
    paths = {n: asked.pop(f"{n}_path") for n in ("csv", "npz", "json", "plot")}
    wanted = Wanted(**paths, explain=asked.pop("explain"), quiet=asked.pop("quiet"))
    listed = asked.pop("channels")
    names = tuple(c.strip() for one in listed for c in one.split(",") if c.strip())
    if listed and not names:
        raise UsageError("--channels", "no channel is named", hint="leave it out")
    run_job(files, Settings(channels=names, **asked), wanted)


def run_job(
    files: Sequence[str], settings: Settings, wanted: Wanted
) -> list[FileResult]:
    """Analyse, save, print: what `welch` and `demo` share."""
    wanted.check(files)
    err = Console(stderr=True)
    results = []
    for file in files:
        with open_recording(
            file,
            fs=settings.fs,
            channels=settings.channels or None,
            array=settings.array,
            layout=settings.layout,  # type: ignore[arg-type]
        ) as recording:
            _tell_left_out(err, recording)
            work = sum(g.n_samples * len(g.channels) for g in recording.groups)
            with progress_on(err, shown=work >= BAR_FROM_SAMPLES) as bar:
                task = bar.add_task(Path(file).name, total=work)
                results.append(analyse(recording, settings, partial(bar.advance, task)))
    _save(results, settings, wanted, err)
    out = err if wanted.json == "-" else Console()
    if not wanted.quiet:
        print_peaks(out, results)
    for result in results if wanted.explain else ():
        for group in result.groups:
            where = f"{group.engine} in {group.dtype}"
            title = f"{result.path} at {group.fs:g} Hz ran on {where}"
            print_decision(out, group.decision, title)
    if wanted.json == "-":
        save_json("-", results, settings)
    return results


def _tell_left_out(console: Console, recording: Recording) -> None:
    """One line per reason, so that 30 status channels are not 30 lines."""
    reasons: dict[str, list[str]] = {}
    for name, why in recording.left_out:
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        rest = f" and {len(names) - 6} more" if len(names) > 6 else ""
        listed = ", ".join(f"'{name}'" for name in names[:6])
        say(console, f"left out {listed}{rest}: {why}", style="dim")


def _save(
    results: Sequence[FileResult], settings: Settings, wanted: Wanted, err: Console
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
            say(err, f"picture: {picture}")


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
