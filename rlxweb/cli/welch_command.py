"""`rlxweb welch FILE…`: spectra and peaks of recordings.

Owns the options and the order of things: look at the outputs and the device, read and
average, write the files, print. Standard output comes last, so a reader that leaves
loses no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.batch import Done, run_batch
from rlxweb.cli.crowd import DASK, WORKERS, Crowd, crowd
from rlxweb.cli.epochs_options import EPOCHS, epochs_asked
from rlxweb.cli.explain_command import print_decision
from rlxweb.cli.keeping import Keeping, left_behind
from rlxweb.cli.look import AXIS, DARK, WAY, look_of
from rlxweb.cli.record import rlxweb_version, versions
from rlxweb.cli.screen import counted, say, screen
from rlxweb.cli.storage import STORAGE
from rlxweb.cli.table import print_peaks
from rlxweb.cli.targets import goes_to_stdout, write_all
from rlxweb.cli.wanted import Wanted
from rlxweb.io.identity import identity
from rlxweb.jobs.analysis import check_device
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import Spread
from rlxweb.jobs.unfinished import Unfinished
from rlxweb.printable import printable
from rlxweb.streams import STDOUT, discard


@click.command(name="welch")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.FS
@options.valued("--nperseg", int, "Samples per segment [256, or a whole epoch].")
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
@options.SAMPLES
@EPOCHS
@STORAGE
@options.COMPUTING
@options.file_path("out", "Write the peaks as one Parquet file (.parquet).")
@options.file_path("csv", "Write the peaks as CSV; - is stdout.")
@options.file_path("npz", "Write spectra and peaks as NPZ; - is stdout.")
@options.file_path("json", "Write the run record; - is stdout.")
@options.file_path(
    "plot", "Draw spectra with their peaks, or a heatmap (.png, .svg, .pdf, .html)."
)
@AXIS
@WAY
@DARK
@click.option("--explain", is_flag=True, help="Say where it ran and why.")
@click.option("--quiet", "-q", is_flag=True, help="No table.")
@click.option(
    "--keep-going",
    is_flag=True,
    help="Do the other files when one is bad; the exit code is 1 then.",
)
@click.option(
    "--resume/--no-resume",
    default=None,
    help="Do only what an earlier run of the same output has not done; or begin anew.",
)
@options.JOBS
@DASK
@WORKERS
def command(files: tuple[str, ...], **asked: Any) -> None:
    """Welch spectra and their strongest peaks, per channel, of recordings.

    Reads EDF, BDF, FIF, BrainVision, WAV, FLAC, NPZ, CSV, Zarr, Parquet, NWB and more
    in blocks, so files may be larger than memory. A folder stands for the recordings in
    it, a pattern ('night*/**/*.edf') for the files it matches, also behind URLs
    (s3://bucket/night/, https://…/a.edf). Outputs are written all or none. With --out
    what is done is noted beside the output, and --resume goes on after a run that was
    stopped.
    """
    paths = {n: asked.pop(f"{n}_path") for n in ("out", "csv", "npz", "json", "plot")}
    flags = {n: asked.pop(n) for n in ("explain", "quiet", "keep_going", "resume")}
    err = screen(stderr=True)
    jobs = asked.pop("jobs")
    others = crowd(err, asked.pop("scheduler"), asked.pop("workers"), jobs)
    # One of a thousand on a cluster does not cost the rest.
    flags["keep_going"] |= others is not None
    look = look_of(asked)
    all_peaks = asked["k"] is not None
    wanted = Wanted(**paths, **flags, jobs=jobs, all_peaks=all_peaks, look=look)
    asked["epochs"] = epochs_asked(asked)
    if asked["nperseg"] is None and asked["epochs"] is None:
        del asked["nperseg"]
    done = run_job(files, Settings(**asked), wanted, others, err)
    click.get_current_context().exit(done.exit_code)


def run_job(
    named: Sequence[str],
    settings: Settings,
    wanted: Wanted,
    spread: Spread | None = None,
    err: Console | None = None,
) -> Done:
    """Analyse, save, print: what `welch` and `demo` share.

    spread   does the files; None is here, one after another
    err      where is told what happens; None is standard error
    """
    err = err or screen(stderr=True)
    others = spread if isinstance(spread, Crowd) else None
    outputs = [path for path in wanted.paths if path is not None]
    settings = replace(settings, spectra=wanted.spectra)
    with ExitStack() as stack:

        def begin(files: Sequence[str]) -> Keeping:
            wanted.check(files)
            if others is None:
                check_device(settings)
            else:
                others.check(settings)
            notes = None
            if wanted.noted_beside is not None:
                notes = Unfinished(
                    wanted.noted_beside,
                    facts(settings),
                    wanted.resume,
                    partial(identity, access=settings.storage),
                )
                stack.enter_context(notes)
                stack.push(partial(_tell_left_behind, err, notes, len(files)))
            return Keeping(notes, wanted.holds(len(files)))

        done = run_batch(
            named,
            settings,
            err,
            outputs=outputs,
            keep_going=wanted.keep_going,
            begin=begin,
            spread=spread,
            beside=str if others is None else others.__str__,
            jobs=wanted.jobs,
        )
        if others is not None:
            done.shares.extend(others.tally.shares())
        _save(err, done, wanted)
    # The table would stand between the lines of what goes to standard output.
    out = err if goes_to_stdout(outputs) else screen()
    try:
        _show(out, done, wanted)
    except BrokenPipeError:
        # The reader has left (`| head`); that a recording failed is told all the same.
        discard(STDOUT)
    return done


def facts(settings: Settings) -> dict[str, Any]:
    """What makes results of a file what they are, besides the file."""
    made_by = {"rlxweb": rlxweb_version(), **versions()}
    return {"versions": made_by, "settings": settings.as_json()}


def _save(err: Console, done: Done, wanted: Wanted) -> None:
    write_all(wanted.puts(done))
    for _, picture in wanted.pictures(done):
        say(err, f"picture: {picture}")
    for share in () if wanted.quiet else done.shares:
        say(err, str(share), style="dim")
    if wanted.out is not None:
        of = f"{done.n_good} of " if done.failed else ""
        said = counted(len(done.files), "recording")
        say(err, f"{wanted.out}: {of}{said}")
    if done.unfinished is None:
        return
    if not done.failed:
        done.unfinished.finish()
    elif len(done.unfinished):
        say(err, "the others are kept: with --resume only what failed is tried again")


def _tell_left_behind(
    err: Console, notes: Unfinished, n_files: int, kind: object, *rest: object
) -> None:
    if kind is not None and len(notes):
        say(err, f"rlxweb: {left_behind(notes, n_files)}")


def _show(out: Console, done: Done, wanted: Wanted) -> None:
    n_files = len(done.files)
    if wanted.shows_table(n_files):
        print_peaks(out, done.results, wanted.all_peaks)
    if wanted.explain:
        _explain(out, done)


def _explain(out: Console, done: Done) -> None:
    for result in done.results:
        for group in result.groups:
            where = f"{group.engine} in {group.dtype}"
            title = f"{printable(result.path)} at {group.fs:g} Hz ran on {where}"
            print_decision(out, group.decision, title)
