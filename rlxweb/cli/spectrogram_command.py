"""`rlxweb spectrogram FILE…`: how the spectra of recordings change with time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from math import log10
from typing import IO, Any

import click
import numpy as np
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.bands_options import stretch
from rlxweb.cli.batch import Came, How, how_of, run_files
from rlxweb.cli.epochs_options import EPOCHS, epochs_asked
from rlxweb.cli.keeping import Keeping
from rlxweb.cli.look import AXIS, DARK, Look, look_of
from rlxweb.cli.plot import PAGES, check_plot, picture_format
from rlxweb.cli.record import run_document
from rlxweb.cli.screen import counted, say, screen, show_table
from rlxweb.cli.spectrogram_plot import PANELS, put_picture
from rlxweb.cli.storage import STORAGE
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, whole_files
from rlxweb.cli.wanted import pictures_of
from rlxweb.errors import RlxError, UsageError
from rlxweb.io import write_csv, write_json, write_npz
from rlxweb.jobs.entries import epochs_entry, ran_entry, text_of
from rlxweb.jobs.epoch_spectrogram import QUARTER
from rlxweb.jobs.epoching import COLUMNS as OF_EPOCHS
from rlxweb.jobs.settings import OF_FILES, reading_of
from rlxweb.jobs.spectrogram import (
    COLUMNS,
    GroupSpectrogram,
    SpectrogramSettings,
)
from rlxweb.jobs.spectrogram_file import FileSpectrogram, SpectrogramOfFile
from rlxweb.jobs.spreading import Told
from rlxweb.printable import printable
from rlxweb.results.units import decimals
from rlxweb.whole_file import WholeFiles

SCHEMA = "rlxweb.spectrogram/2"
"""Before, times counted from the stretch that was taken."""
USUAL_S = 2.0
CSV_COLUMNS = ("file", "channel", "unit", "fs", "hz", "s", "power")


@click.command(name="spectrogram")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.FS
@options.valued(
    "--segment-s",
    click.FloatRange(0, min_open=True),
    "Seconds per segment [2; of epochs at most a quarter of one].",
)
@options.valued(
    "--overlap",
    click.FloatRange(0, 1, max_open=True),
    "Share of a segment that the next one has too [half; more in short recordings].",
)
@options.valued(
    "--columns", click.IntRange(1), "Moments in time that are kept, at most.", COLUMNS
)
@options.valued("--fmin", float, "Lowest frequency that is shown, in Hz.", 0.0)
@options.valued("--fmax", float, "Highest frequency that is shown, in Hz.")
@options.SAMPLES
@EPOCHS
@click.option(
    "--baseline",
    metavar="A:B",
    callback=stretch,
    help="Powers over their mean between these seconds of an epoch, in dB.",
)
@STORAGE
@options.COMPUTING
@options.file_path("plot", "Draw a panel per channel (.png, .svg, .pdf, .html).")
@AXIS
@DARK
@options.file_path(
    "csv", "Write a line per channel: where it is strongest; - is stdout."
)
@options.file_path("npz", "Write f, t and power as NPZ; - is stdout.")
@options.file_path("json", "Write what was done; - is stdout.")
@options.JOBS
@click.option("--quiet", "-q", is_flag=True, help="No table.")
@options.KEEP_GOING
def command(files: tuple[str, ...], quiet: bool, **asked: Any) -> None:
    """Spectra over time, per channel, of recordings.

    Welch's density segment by segment, read in blocks; where there are more segments
    than --columns, neighbours are averaged. The table says where in time and frequency
    each channel is strongest. Times are those of the file, as onsets of annotations
    are, wherever --start is. With --epochs it is the average of these, and time counts
    from their annotations.

    Example  rlxweb spectrogram night.edf -c 'EEG*' --fmax 40 --plot night.png
    """
    outputs = Outputs(*(asked.pop(f"{n}_path") for n in Outputs.__slots__))
    look = look_of(asked)
    access, jobs, keep_going = (asked.pop(n) for n in ("storage", "jobs", "keep_going"))
    reading = reading_of(asked, access)
    for name in OF_FILES:
        del asked[name]
    epochs, baseline = epochs_asked(asked), asked.pop("baseline")
    if baseline is not None and epochs is None:
        raise UsageError("--baseline", "it is of epochs", hint="give --epochs TEXT")
    if asked["segment_s"] is None:
        most = USUAL_S if epochs is None else epochs.seconds / QUARTER
        asked["segment_s"] = min(USUAL_S, most)
    how = SpectrogramSettings(**asked)
    shown = outputs.plot is not None or outputs.npz is not None
    job = SpectrogramOfFile(how, reading, epochs, baseline, keeps_power=shown)
    err = screen(stderr=True)
    paths = [path for path in outputs.paths if path is not None]

    def begin(meant: Sequence[str]) -> Keeping:
        outputs.check(meant)
        return Keeping()

    with whole_files() as whole:
        came = run_files(
            files,
            access,
            partial(_drawn, outputs, look, whole, how_of(job, jobs)),
            err,
            outputs=paths,
            keep_going=keep_going,
            begin=begin,
        )
        for path, put in outputs.puts(came, job):
            put(whole.open(path))
    for picture in outputs.pictures(came).values():
        say(err, f"picture: {picture}")
    if not quiet:
        _show(err if goes_to_stdout(paths) else screen(), came.results)
    click.get_current_context().exit(came.exit_code)


def _drawn(
    outputs: Outputs,
    look: Look,
    whole: WholeFiles,
    how: How[FileSpectrogram],
    files: Sequence[str],
    progress: Told,
) -> Iterator[tuple[str, FileSpectrogram | RlxError]]:
    """What comes of files, without the powers: who wants them has them at once, so that
    no two recordings' are held.
    """
    pictures = outputs.pictures_of(files)
    with closing(iter(how(files, progress))) as came:  # type: ignore[type-var]
        for file, outcome in came:
            if isinstance(outcome, RlxError):
                yield file, outcome
                continue
            if file in pictures:
                path = pictures[file]
                put_picture(
                    whole.open(path), file, outcome.groups, picture_format(path), look
                )
            if outputs.npz is not None:
                _put_npz(whole.open(outputs.npz), outcome.groups)
            yield file, outcome.without_power()


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files that a run should leave behind; None where not asked for."""

    plot: str | None
    csv: str | None
    npz: str | None
    json: str | None

    @property
    def paths(self) -> tuple[str | None, ...]:
        return self.plot, self.csv, self.npz, self.json

    def check(self, files: Sequence[str]) -> None:
        """Refuse now what would be refused after the work is done."""
        named = [("--csv", self.csv), ("--npz", self.npz), ("--json", self.json)]
        if self.npz is not None and len(files) > 1:
            raise UsageError(
                f"--npz {self.npz!r}",
                f"it holds one recording, and {len(files)} are meant",
                hint="name one file, or use --plot or --csv",
            )
        if self.plot is not None:
            check_plot(self.plot, PAGES)
            named += [("--plot", path) for path in pictures_of(self.plot, files)]
        check_targets(files, named)

    def pictures_of(self, files: Sequence[str]) -> dict[str, str]:
        """The path of every picture, by the recording it is of."""
        if self.plot is None:
            return {}
        return dict(zip(files, pictures_of(self.plot, files), strict=True))

    def pictures(self, came: Came[FileSpectrogram]) -> dict[str, str]:
        """Those of the recordings that were done."""
        every = self.pictures_of(came.files)
        return {p.path: every[p.path] for p in came.results if p.path in every}

    def puts(
        self, came: Came[FileSpectrogram], job: SpectrogramOfFile
    ) -> Iterator[tuple[str, Put]]:
        """The files of all recordings together, and what writes each."""
        if self.csv is not None:
            yield self.csv, partial(_put_csv, came=came, job=job)
        if self.json is not None:
            yield self.json, partial(_put_json, came=came, job=job)


def _put_csv(
    file: IO[bytes], came: Came[FileSpectrogram], job: SpectrogramOfFile
) -> None:
    """A line for each channel: where it is strongest."""
    more = () if job.epochs is None else OF_EPOCHS
    write_csv(file, (*CSV_COLUMNS, *more), _rows(came))


def _rows(came: Came[FileSpectrogram]) -> Iterator[tuple[Any, ...]]:
    for one in came.results:
        for own in one.groups:
            cells = () if own.epochs is None else own.epochs.cells
            for told in own.strongest:
                where = told["name"], told["unit"], float(own.fs)
                found = (told[name] for name in ("hz", "s", "power"))
                yield text_of(one.path), *where, *found, *cells


def _put_npz(file: IO[bytes], groups: Sequence[GroupSpectrogram]) -> None:
    """Arrays per group, prefixed `g0_` only when there is more than one group."""
    arrays: dict[str, Any] = {}
    for at, one in enumerate(groups):
        head = f"g{at}_" if len(groups) > 1 else ""
        arrays |= {
            f"{head}f": one.f,
            f"{head}t": one.t,
            f"{head}power": one.power,
            f"{head}channels": np.array(one.names),
            f"{head}units": np.array(one.units),
            f"{head}fs": np.array(one.fs),
        }
        if one.epochs is not None:
            cells = zip(OF_EPOCHS, one.epochs.cells, strict=True)
            arrays |= {f"{head}{name}": np.array(cell) for name, cell in cells}
        if one.baseline is not None:
            arrays[f"{head}baseline"] = np.array(one.baseline)
    write_npz(file, **arrays)


def _put_json(
    file: IO[bytes], came: Came[FileSpectrogram], job: SpectrogramOfFile
) -> None:
    settings = {name: getattr(job.how, name) for name in SpectrogramSettings.__slots__}
    if job.epochs is not None:
        settings |= {"epochs": asdict(job.epochs), "baseline": job.baseline}
    files = [
        {
            "path": text_of(one.path),
            "groups": [
                {
                    "fs": float(own.fs),
                    "n_samples": own.n_samples,
                    "nperseg": own.nperseg,
                    "columns": len(own.t),
                    "segments_per_column": own.merged,
                    **epochs_entry(own),
                    "channels": list(own.strongest),
                }
                for own in one.groups
            ],
            **ran_entry(one.wall_s, one.stages),
        }
        for one in came.results
    ]
    record = run_document(SCHEMA, settings, files, came.failed, came.wall_s)
    write_json(file, record)


def _density(own: GroupSpectrogram, at: int, power: float) -> str:
    if own.baseline is not None:
        return f"{10.0 * log10(power):+.1f} dB" if power > 0 else "–"
    unit = own.units[at].replace("uV", "µV")
    return f"{power:.3g} {unit}²/Hz" if unit else f"{power:.3g} 1/Hz"


def _show(console: Console, found: Sequence[FileSpectrogram]) -> None:
    for one in found:
        for own in one.groups:
            step = own.fs / own.nperseg
            each = counted(own.merged, "segment")
            title = (
                f"{printable(one.path)}: {counted(len(own.names), 'channel')} at "
                f"{own.fs:g} Hz, {counted(len(own.t), 'column')} of {each} every "
                f"{own.column_s:.3g} s, {step:.3g} Hz per bin"
            )
            say(console, title)
            if own.epochs is not None:
                say(console, str(own.epochs))
            rows = []
            for at, told in enumerate(own.strongest):
                if told["hz"] is None:
                    rows.append([own.names[at], told["state"] or "–", "–", "–"])
                    continue
                density = _density(own, at, told["power"])
                hz = f"{told['hz']:.{decimals(step)}f} Hz"
                rows.append([own.names[at], hz, f"{told['s']:.2f} s", density])
            rise = own.baseline is not None
            heads = ("channel", "strongest", "at", "over baseline" if rise else "power")
            show_table(console, heads, rows, right=heads[1:], whole=heads)
            if len(own.names) > PANELS:
                say(console, f"a picture shows {PANELS} channels; -c chooses them")
