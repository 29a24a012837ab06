"""`rlxweb spectrogram FILE…`: compute how the spectra of recordings change with
time.
"""

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

from rlxweb.batch.channel_group_spectrogram import (
    GroupSpectrogram,
    SpectrogramSettings,
)
from rlxweb.batch.epoch_options import EPOCH_COLUMNS as OF_EPOCHS
from rlxweb.batch.epoch_spectrogram import DEFAULT_SEGMENT_DIVISOR
from rlxweb.batch.file_job_protocol import RunProgress
from rlxweb.batch.recording_spectrogram import FileSpectrogram, SpectrogramJob
from rlxweb.batch.run_record_entries import epochs_entry, path_text, timing_entry
from rlxweb.cli import options
from rlxweb.cli.bands_options import parse_frequency_range
from rlxweb.cli.batch import BatchResult, FileRunnerFactory, make_file_runner, run_files
from rlxweb.cli.console import format_count, make_console, print_lines, print_table
from rlxweb.cli.epochs_options import EPOCH_OPTIONS, pop_epoching
from rlxweb.cli.json_documents import json_run_document
from rlxweb.cli.output_files import (
    ResultWriter,
    check_output_paths,
    open_output_files,
    uses_stdout,
)
from rlxweb.cli.plot_options import AXIS_OPTION, DARK_OPTION, PlotStyle, pop_plot_style
from rlxweb.cli.remote_storage_option import STORAGE_OPTION
from rlxweb.cli.resumable_results import ResultRetention
from rlxweb.cli.spectrogram_plot import MAX_PANELS, write_spectrogram_picture
from rlxweb.cli.welch_output_options import picture_paths
from rlxweb.cli.welch_plot import PLOT_SUFFIXES, check_plot, picture_format
from rlxweb.core.atomic_file import AtomicFiles
from rlxweb.core.errors import RlxError, UsageError
from rlxweb.core.message_text import printable
from rlxweb.io import open_recording, write_csv, write_json, write_npz
from rlxweb.results.power_units import frequency_decimals

SCHEMA = "rlxweb.spectrogram/2"
"""Schema of the JSON record; version 1 counted times from the start of the selected
stretch.
"""
DEFAULT_SEGMENT_S = 2.0
CSV_COLUMNS = ("file", "channel", "unit", "fs", "hz", "s", "power")


@click.command(name="spectrogram")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.declared_options(SpectrogramSettings, without=options.COMPUTE_NAMES)
@options.declared_options(open_recording)
@EPOCH_OPTIONS
@click.option(
    "--baseline",
    metavar="A:B",
    callback=parse_frequency_range,
    help="Show power in dB relative to its mean from A to B, in seconds from the "
    "annotation.",
)
@STORAGE_OPTION
@options.declared_options(SpectrogramSettings, *options.COMPUTE_NAMES)
@options.output_file_option(
    "plot", "Draw one panel per channel (.png, .svg, .pdf, .html)."
)
@AXIS_OPTION
@DARK_OPTION
@options.output_file_option(
    "csv", "Write one CSV row per channel with its maximum; - is stdout."
)
@options.output_file_option(
    "npz", "Write the arrays f, t and power as NPZ; - is stdout."
)
@options.output_file_option("json", "Write the run record as JSON; - is stdout.")
@options.JOBS
@click.option("--quiet", "-q", is_flag=True, help="Do not print the table.")
@options.KEEP_GOING
def command(files: tuple[str, ...], quiet: bool, **option_values: Any) -> None:
    """Compute spectra over time for each channel of recordings.

    The Welch density is computed per segment, in blocks. If there are more segments
    than --columns, adjacent segments are averaged. The table shows the time and
    frequency of each channel's maximum. Times count from the start of the file, like
    the onsets of annotations, regardless of --start. With --epochs the spectra are
    averaged over epochs and times count from the annotation.

    Example  rlxweb spectrogram night.edf -c 'EEG*' --fmax 40 --plot night.png
    """
    outputs = SpectrogramOutputs(
        *(option_values.pop(f"{n}_path") for n in SpectrogramOutputs.__slots__)
    )
    style = pop_plot_style(option_values)
    jobs, keep_going = option_values.pop("jobs"), option_values.pop("keep_going")
    access = option_values["storage"]
    reading = options.pop_open_arguments(option_values)
    epochs, baseline = pop_epoching(option_values), option_values.pop("baseline")
    if baseline is not None and epochs is None:
        raise UsageError("--baseline", "it requires --epochs", hint="add --epochs TEXT")
    if option_values["segment_s"] is None:
        max_segment_s = (
            DEFAULT_SEGMENT_S
            if epochs is None
            else epochs.seconds / DEFAULT_SEGMENT_DIVISOR
        )
        option_values["segment_s"] = min(DEFAULT_SEGMENT_S, max_segment_s)
    settings = SpectrogramSettings(**option_values)
    keeps_power = outputs.plot is not None or outputs.npz is not None
    job = SpectrogramJob(settings, reading, epochs, baseline, keeps_power=keeps_power)
    err = make_console(stderr=True)
    paths = [path for path in outputs.paths if path is not None]

    def begin(recordings: Sequence[str]) -> ResultRetention:
        outputs.check(recordings)
        return ResultRetention()

    with open_output_files() as output_files:
        batch = run_files(
            files,
            access,
            partial(
                _analyse_and_write,
                outputs,
                style,
                output_files,
                make_file_runner(job, jobs),
            ),
            err,
            outputs=paths,
            keep_going=keep_going,
            prepare_outputs=begin,
        )
        for path, write_result in outputs.writers(batch, job):
            write_result(output_files.open(path))
    for picture in outputs.written_pictures(batch).values():
        print_lines(err, f"picture: {picture}")
    if not quiet:
        _print_summary(err if uses_stdout(paths) else make_console(), batch.results)
    click.get_current_context().exit(batch.exit_code)


def _analyse_and_write(
    outputs: SpectrogramOutputs,
    style: PlotStyle,
    output_files: AtomicFiles,
    analyse_files: FileRunnerFactory[FileSpectrogram],
    files: Sequence[str],
    progress: RunProgress,
) -> Iterator[tuple[str, FileSpectrogram | RlxError]]:
    """Analyse the files, write picture and NPZ of each at once, and yield the results
    without their power, so that never two recordings' powers are held.
    """
    pictures = outputs.picture_paths(files)
    with closing(iter(analyse_files(files, progress))) as outcomes:  # type: ignore[type-var]
        for file, outcome in outcomes:
            if isinstance(outcome, RlxError):
                yield file, outcome
                continue
            if file in pictures:
                path = pictures[file]
                write_spectrogram_picture(
                    output_files.open(path),
                    file,
                    outcome.groups,
                    picture_format(path),
                    style,
                )
            if outputs.npz is not None:
                _write_npz(output_files.open(outputs.npz), outcome.groups)
            yield file, outcome.without_power()


@dataclass(frozen=True, slots=True)
class SpectrogramOutputs:
    """Output files requested from a run; None where not requested."""

    plot: str | None
    csv: str | None
    npz: str | None
    json: str | None

    @property
    def paths(self) -> tuple[str | None, ...]:
        return self.plot, self.csv, self.npz, self.json

    def check(self, files: Sequence[str]) -> None:
        """Refuse invalid outputs before the work instead of after it."""
        output_paths = [("--csv", self.csv), ("--npz", self.npz), ("--json", self.json)]
        if self.npz is not None and len(files) > 1:
            raise UsageError(
                f"--npz {self.npz!r}",
                f"an NPZ file contains only one recording, but there are {len(files)}",
                hint="pass one recording, or use --plot or --csv",
            )
        if self.plot is not None:
            check_plot(self.plot, PLOT_SUFFIXES)
            output_paths += [
                ("--plot", path) for path in picture_paths(self.plot, files)
            ]
        check_output_paths(files, output_paths)

    def picture_paths(self, files: Sequence[str]) -> dict[str, str]:
        """Return the path of every picture by its recording."""
        if self.plot is None:
            return {}
        return dict(zip(files, picture_paths(self.plot, files), strict=True))

    def written_pictures(self, batch: BatchResult[FileSpectrogram]) -> dict[str, str]:
        """Return the picture paths of the recordings that were completed."""
        paths_by_file = self.picture_paths(batch.files)
        return {
            result.path: paths_by_file[result.path]
            for result in batch.results
            if result.path in paths_by_file
        }

    def writers(
        self, batch: BatchResult[FileSpectrogram], job: SpectrogramJob
    ) -> Iterator[tuple[str, ResultWriter]]:
        """Yield the files that cover all recordings and the function that writes
        each.
        """
        if self.csv is not None:
            yield self.csv, partial(_write_csv, batch=batch, job=job)
        if self.json is not None:
            yield self.json, partial(_write_json, batch=batch, job=job)


def _write_csv(
    file: IO[bytes], batch: BatchResult[FileSpectrogram], job: SpectrogramJob
) -> None:
    """Write a line for each channel: where it is strongest."""
    epoch_columns = () if job.epochs is None else OF_EPOCHS
    write_csv(file, (*CSV_COLUMNS, *epoch_columns), _csv_rows(batch))


def _csv_rows(batch: BatchResult[FileSpectrogram]) -> Iterator[tuple[Any, ...]]:
    for result in batch.results:
        for group in result.groups:
            cells = () if group.epochs is None else group.epochs.table_cells
            for peak in group.channel_maxima:
                channel_cells = peak["name"], peak["unit"], float(group.fs)
                peak_cells = (peak[name] for name in ("hz", "s", "power"))
                yield path_text(result.path), *channel_cells, *peak_cells, *cells


def _write_npz(file: IO[bytes], groups: Sequence[GroupSpectrogram]) -> None:
    """Write the arrays of each group, prefixed `g0_` only when there is more than one
    group.
    """
    arrays: dict[str, Any] = {}
    for index, group in enumerate(groups):
        prefix = f"g{index}_" if len(groups) > 1 else ""
        arrays |= {
            f"{prefix}f": group.f,
            f"{prefix}t": group.t,
            f"{prefix}power": group.power,
            f"{prefix}channels": np.array(group.names),
            f"{prefix}units": np.array(group.units),
            f"{prefix}fs": np.array(group.fs),
        }
        if group.epochs is not None:
            cells = zip(OF_EPOCHS, group.epochs.table_cells, strict=True)
            arrays |= {f"{prefix}{name}": np.array(cell) for name, cell in cells}
        if group.baseline is not None:
            arrays[f"{prefix}baseline"] = np.array(group.baseline)
    write_npz(file, **arrays)


def _write_json(
    file: IO[bytes], batch: BatchResult[FileSpectrogram], job: SpectrogramJob
) -> None:
    settings = {
        name: getattr(job.settings, name) for name in SpectrogramSettings.__slots__
    }
    if job.epochs is not None:
        settings |= {"epochs": asdict(job.epochs), "baseline": job.baseline}
    files = [
        {
            "path": path_text(result.path),
            "groups": [
                {
                    "fs": float(group.fs),
                    "n_samples": group.n_samples,
                    "nperseg": group.nperseg,
                    "columns": len(group.t),
                    "segments_per_column": group.segments_per_column,
                    **epochs_entry(group),
                    "channels": list(group.channel_maxima),
                }
                for group in result.groups
            ],
            **timing_entry(result.wall_s, result.stages),
        }
        for result in batch.results
    ]
    record = json_run_document(SCHEMA, settings, files, batch.failures, batch.wall_s)
    write_json(file, record)


def _format_power(group: GroupSpectrogram, channel_index: int, power: float) -> str:
    if group.baseline is not None:
        return f"{10.0 * log10(power):+.1f} dB" if power > 0 else "–"
    unit = group.units[channel_index].replace("uV", "µV")
    return f"{power:.3g} {unit}²/Hz" if unit else f"{power:.3g} 1/Hz"


def _print_summary(console: Console, results: Sequence[FileSpectrogram]) -> None:
    for result in results:
        for group in result.groups:
            step = group.fs / group.nperseg
            segments_text = format_count(group.segments_per_column, "segment")
            title = (
                f"{printable(result.path)}: "
                f"{format_count(len(group.names), 'channel')} at "
                f"{group.fs:g} Hz, {format_count(len(group.t), 'column')} of "
                f"{segments_text}, one column every "
                f"{group.column_s:.3g} s, {step:.3g} Hz per bin"
            )
            print_lines(console, title)
            if group.epochs is not None:
                print_lines(console, str(group.epochs))
            rows = []
            for channel_index, peak in enumerate(group.channel_maxima):
                if peak["hz"] is None:
                    rows.append(
                        [group.names[channel_index], peak["state"] or "–", "–", "–"]
                    )
                    continue
                density = _format_power(group, channel_index, peak["power"])
                hz = f"{peak['hz']:.{frequency_decimals(step)}f} Hz"
                rows.append(
                    [group.names[channel_index], hz, f"{peak['s']:.2f} s", density]
                )
            has_baseline = group.baseline is not None
            headers = (
                "channel",
                "strongest",
                "at",
                "relative to baseline" if has_baseline else "power",
            )
            print_table(
                console, headers, rows, right_aligned=headers[1:], no_wrap=headers
            )
            if len(group.names) > MAX_PANELS:
                print_lines(
                    console,
                    f"--plot draws at most {MAX_PANELS} channels; use -c to select "
                    "channels",
                )
