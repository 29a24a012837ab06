"""`rlxweb welch FILE…`: spectra and peaks of recordings.

Owns the options and the order of things: look at the outputs and the device, read and
average, write the files, print. Standard output comes last, so a reader that leaves
loses no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.batch import Done, run_batch
from rlxweb.cli.explain_command import print_decision
from rlxweb.cli.job import FileResult, Settings, check_device
from rlxweb.cli.outputs import put_csv, put_json, put_npz
from rlxweb.cli.plot import check_plot, picture_format, put_plot
from rlxweb.cli.screen import say, screen
from rlxweb.cli.table import print_peaks
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.errors import UsageError
from rlxweb.printable import printable
from rlxweb.streams import STDOUT, discard, is_stream


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run should leave behind; paths are None where not asked for.

    all_peaks   show every peak on a terminal, in as many blocks as it takes
    """

    csv: str | None = None
    npz: str | None = None
    json: str | None = None
    plot: str | None = None
    explain: bool = False
    quiet: bool = False
    all_peaks: bool = True
    keep_going: bool = False

    @property
    def paths(self) -> tuple[str | None, ...]:
        return self.csv, self.npz, self.json, self.plot

    def check(self, files: Sequence[str]) -> None:
        """Refuse now what would be refused after the work is done."""
        named = [("--csv", self.csv), ("--npz", self.npz), ("--json", self.json)]
        if self.plot is not None:
            check_plot(self.plot)
            named += [("--plot", picture) for picture in pictures_of(self.plot, files)]
        check_targets(files, named)

    def puts(self, done: Done) -> Iterator[tuple[str, Put]]:
        """Every file that is to be written, and what writes it."""
        if self.csv is not None:
            yield self.csv, partial(put_csv, results=done.results)
        if self.npz is not None:
            yield self.npz, partial(put_npz, results=done.results)
        if self.json is not None:
            yield self.json, partial(put_json, done=done)
        for result, picture in self.pictures(done):
            how = picture_format(picture)
            yield picture, partial(put_plot, result=result, how=how)

    def pictures(self, done: Done) -> list[tuple[FileResult, str]]:
        """The result and the path of every picture."""
        if self.plot is None:
            return []
        named = pictures_of(self.plot, done.files)
        picture = dict(zip(done.files, named, strict=True))
        return [(result, picture[result.path]) for result in done.results]


@click.command(name="welch")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.FS
@options.valued("--nperseg", int, "Samples per segment.", 256)
@options.valued("--noverlap", int, "Samples two segments share; default: the preset's.")
@options.valued("--nsegments", int, "Average only the first so many.")
@options.valued("--k", int, options.K_HELP)
@options.valued("--fmin", float, "Lowest frequency that is looked at, in Hz.")
@options.valued("--fmax", float, "Highest frequency that is looked at, in Hz.")
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
@options.WINDOW
@options.one_of(
    "--detrend",
    ["none", "constant", "linear"],
    "Removed from each segment; default: the preset's.",
)
@click.option("--prominence", type=float, help="Least prominence (mode peaks).")
@options.CHANNELS
@options.ARRAY
@options.LAYOUT
@options.AUTO_DEVICE
@click.option("--adapter", default="", help="Part of an adapter's name; implies a GPU.")
@options.PRECISION
@options.one_of(
    "--nan",
    ["raise", "propagate"],
    "What to do about samples that are not finite.",
    "raise",
)
@options.file_path("csv", "Write the peaks as CSV; - is stdout.")
@options.file_path("npz", "Write spectra and peaks as NPZ; - is stdout.")
@options.file_path("json", "Write the run record; - is stdout.")
@options.file_path(
    "plot", "Draw spectra with their peaks, or a heatmap (.png, .svg, .pdf)."
)
@click.option("--explain", is_flag=True, help="Say where it ran and why.")
@click.option("--quiet", "-q", is_flag=True, help="No table.")
@click.option(
    "--keep-going",
    is_flag=True,
    help="Do the other files when one is bad; the exit code is 1 then.",
)
def command(files: tuple[str, ...], **asked: Any) -> None:
    """Welch spectra and their strongest peaks, per channel, of recordings.

    Reads EDF/EDF+/BDF, WAV, NPY/NPZ and CSV in blocks, so files may be larger than
    memory. A folder stands for the recordings in it, a pattern ('night*/**/*.edf') for
    the files it matches. Outputs are written all or none.
    """
    paths = {n: asked.pop(f"{n}_path") for n in ("csv", "npz", "json", "plot")}
    flags = {n: asked.pop(n) for n in ("explain", "quiet", "keep_going")}
    wanted = Wanted(**paths, **flags, all_peaks=asked["k"] is not None)
    done = run_job(files, Settings(**asked), wanted)
    click.get_current_context().exit(done.exit_code)


def run_job(named: Sequence[str], settings: Settings, wanted: Wanted) -> Done:
    """Analyse, save, print: what `welch` and `demo` share."""
    err = screen(stderr=True)
    outputs = [path for path in wanted.paths if path is not None]

    def check(files: Sequence[str]) -> None:
        wanted.check(files)
        check_device(settings)

    done = run_batch(
        named,
        settings,
        err,
        outputs=outputs,
        keep_going=wanted.keep_going,
        check=check,
    )
    # The table would stand between the lines of what goes to standard output.
    out = err if goes_to_stdout(outputs) else screen()
    write_all(wanted.puts(done))
    for _, picture in wanted.pictures(done):
        say(err, f"picture: {picture}")
    try:
        _show(out, done, wanted)
    except BrokenPipeError:
        # The reader has left (`| head`); that a recording failed is told all the same.
        discard(STDOUT)
    return done


def _show(out: Console, done: Done, wanted: Wanted) -> None:
    if not wanted.quiet:
        print_peaks(out, done.results, wanted.all_peaks)
    if wanted.explain:
        _explain(out, done)


def _explain(out: Console, done: Done) -> None:
    for result in done.results:
        for group in result.groups:
            where = f"{group.engine} in {group.dtype}"
            title = f"{printable(result.path)} at {group.fs:g} Hz ran on {where}"
            print_decision(out, group.decision, title)


def pictures_of(plot: str, files: Sequence[str]) -> list[str]:
    """One picture per file; several files get their stem put into the name."""
    if len(files) == 1 or is_stream(plot):
        return [plot] * len(files)
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
