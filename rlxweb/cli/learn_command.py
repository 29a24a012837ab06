"""`rlxweb learn FILE…`: train a transform for recordings and a frequency band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console

from rlxweb.batch.run_record_entries import path_text
from rlxweb.batch.settings import requested_device
from rlxweb.cli import options
from rlxweb.cli.bands_options import parse_frequency_range
from rlxweb.cli.batch import SkippedChannels
from rlxweb.cli.console import (
    Cell,
    format_count,
    make_console,
    make_progress,
    print_lines,
    print_table,
)
from rlxweb.cli.json_documents import json_document, library_versions
from rlxweb.cli.learn_plot import write_learning_picture
from rlxweb.cli.output_files import (
    ResultWriter,
    check_output_paths,
    uses_stdout,
    write_results,
)
from rlxweb.cli.plot_options import DARK_OPTION
from rlxweb.cli.recording_paths import resolve_recordings
from rlxweb.cli.remote_storage_option import STORAGE_OPTION
from rlxweb.cli.welch_plot import check_plot, picture_format
from rlxweb.core.errors import NotFinite, RlxError, UsageError
from rlxweb.core.function_options import options_of
from rlxweb.core.message_text import Advice
from rlxweb.io import Group, check_finite, open_recording, write_json
from rlxweb.io.storage_options import StorageAccess
from rlxweb.signal.learned.gated_fft import stage_count
from rlxweb.signal.learned.learn import (
    DEFAULT_PRICE,
    DEFAULT_STEPS,
    Learned,
    learn_welch,
)
from rlxweb.signal.learned.pruning import Pruning, pareto_front
from rlxweb.signal.welch_peaks import welch_peaks
from rlxweb.signal.welch_request import DETREND_FROM_PRESET

SCHEMA = "rlxweb.learn/1"
SUFFIX = ".rlxl"
OUTPUT_OPTIONS = ("out", "json", "plot", "resume")
HEADS = ("", "gates", "transforms", "error", "peaks found", "arithmetic")
_POSITIVE = options.FiniteFloatRange(0, min_open=True)


def _check_power_of_two(ctx: click.Context, param: click.Parameter, value: int) -> int:
    """Raise BadParameter for a segment length that is no power of two."""
    try:
        stage_count(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{error}; every butterfly combines two values"
        ) from None
    return value


@click.command(name="learn")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--n-fft",
    "--nperseg",
    "nperseg",
    type=int,
    default=256,
    show_default=True,
    callback=_check_power_of_two,
    help="Samples per segment; a power of two, at least 4.",
)
@click.option(
    "--band",
    metavar="LOW:HIGH",
    required=True,
    callback=parse_frequency_range,
    help="Frequency band of the output bins, in Hz (0.5:45).",
)
@options.value_option("--k", click.IntRange(1), options_of(welch_peaks)["k"].help)
@options.declared_options(welch_peaks, "preset", "window")
@options.value_option(
    "--error",
    options.FiniteFloatRange(0, 1, min_open=True, max_open=True),
    "Maximum relative error of the power of a bin (root mean square).",
    1e-3,
)
@options.output_file_option(
    "out",
    f"Write the transform ({SUFFIX}); pass its path to rlx.welch_peaks as `model`.",
    required=True,
)
@options.choice_option(
    "--detrend",
    ["none", "constant"],
    "Trend to remove from each segment; default: from the preset.",
)
@options.declared_options(open_recording)
@STORAGE_OPTION
@options.value_option(
    "--steps", click.IntRange(0), "Number of training steps.", DEFAULT_STEPS
)
@options.value_option(
    "--seed", click.IntRange(0), "Seed of the random numbers in training.", 0
)
@options.value_option(
    "--price",
    options.FiniteFloatRange(0),
    "Weight of the open gates in the training loss, relative to the error.",
    DEFAULT_PRICE,
)
@options.AUTO_DEVICE
@options.ADAPTER
@options.output_file_option(
    "resume",
    "Save the training state in this file; after Ctrl-C, the next run continues from "
    "it.",
)
@options.output_file_option("json", "Write the report; - is stdout.")
@options.output_file_option(
    "plot", "Plot the tested prunings and the training loss (.png, .svg, .pdf)."
)
@DARK_OPTION
@click.option("--quiet", "-q", is_flag=True, help="Do not print the table.")
def command(files: tuple[str, ...], quiet: bool, **option_values: Any) -> None:
    """Train a spectral transform for your recordings and frequency band.

    Training starts from the exact FFT with a gate on every butterfly and uses the first
    part of each recording. It closes gates that your spectra do not need. The pruned
    transforms are tested on the last part; the cheapest one within --error is written,
    or the exact transform of the band if there is none. Pruning removes most of the
    arithmetic if the spectra fall steeply outside the band, and none for white spectra.

    Example  rlxweb learn night/*.edf --band 0.5:45 --error 1e-3 --out eeg.rlxl
    """
    _check_file_names(option_values["out_path"], option_values["plot_path"])
    outputs = {f"--{name}": option_values[f"{name}_path"] for name in OUTPUT_OPTIONS}
    paths = [path for path in outputs.values() if path is not None]
    access: StorageAccess = option_values["storage"]
    reading = options.pop_open_arguments(option_values)
    err = make_console(stderr=True)
    notify = partial(print_lines, err, style="dim")
    recordings = resolve_recordings(files, paths, notify, _raise_error, access)
    check_output_paths(recordings, outputs.items())
    started = perf_counter()
    rows, fs = _read_recordings(recordings, reading, err, quiet)
    learned = _train(rows, fs, option_values, quiet)
    elapsed_s = perf_counter() - started
    write_results(_output_writers(learned, recordings, option_values, elapsed_s))
    if option_values["plot_path"] is not None:
        print_lines(err, f"picture: {option_values['plot_path']}")
    if not quiet:
        _print_result(
            err if uses_stdout(paths) else make_console(),
            learned,
            option_values,
            elapsed_s,
        )


def _check_file_names(out: str, plot: str | None) -> None:
    """Check the names of output files before the work. Raises UsageError,
    Unsupported.
    """
    if Path(out).suffix.lower() != SUFFIX:
        problem = f"the name of a transform file must end in {SUFFIX}"
        raise UsageError(f"--out {out!r}", problem, hint=f"name it {out}{SUFFIX}")
    if plot is not None:
        check_plot(plot)


def _raise_error(name: str, error: RlxError) -> None:
    """Raise the error of a name that stands for no recording."""
    raise error


def _read_recordings(
    files: Sequence[str], reading: dict[str, Any], err: Console, quiet: bool
) -> tuple[list[Any], float]:
    """Read all channels of all recordings, in pieces without a gap, and return them
    with their rate.
    """
    rows: list[Any] = []
    rates: dict[float, str] = {}
    skipped_channels = SkippedChannels()
    with make_progress(err, enabled=not quiet) as bar:
        task = bar.add_task("read", total=len(files))
        for path in files:
            bar.update(task, description=path)
            with open_recording(path, **reading) as recording:
                skipped_channels.add(recording)
                for group in recording.signals:
                    rates.setdefault(group.fs, path)
                    if len(rates) > 1:
                        raise _rate_conflict_error(rates)
                    rows += map(_read_finite_samples, group.pieces)
            bar.advance(task)
    skipped_channels.report(err, len(files))
    return rows, next(iter(rates))


def _read_finite_samples(piece: Group) -> Any:
    """Read samples (C, T). Raises NotFinite with the file, the channel and the
    sample.
    """
    samples = piece.read()
    try:
        check_finite(samples, piece)
    except NotFinite as error:
        error.hint = "repair the file, or exclude the channel with -x"
        raise
    return samples


def _rate_conflict_error(rates: dict[float, str]) -> UsageError:
    """Return the error for channels of different sampling rates."""
    a, b = rates
    files = " and ".join(map(repr, dict.fromkeys(rates.values())))
    return UsageError(
        "learn a transform",
        f"the channels have different sampling rates, {a:g} and {b:g} Hz, in {files}",
        "a transform requires a single sampling rate",
        Advice(
            "resample all channels with {}, or select channels of one rate with -c",
            resample=f"{a:g}",
        ),
    )


def _train(
    rows: list[Any], fs: float, option_values: dict[str, Any], quiet: bool
) -> Learned:
    """Train the transform and show its progress."""
    adapter = option_values["adapter"]
    device = requested_device(option_values["device"], adapter)
    names = "nperseg", "k", "preset", "window", "steps", "price", "seed"
    low, high = option_values["band"]
    with make_progress(make_console(stderr=True), enabled=not quiet) as bar:
        task = bar.add_task("train", total=max(1, option_values["steps"]))

        def show_step(step: int, loss: float) -> None:
            label = "prune and test" if step == option_values["steps"] else "train"
            bar.update(task, description=f"{label}, loss {loss:.3g}", completed=step)

        return learn_welch(
            rows,
            fs,
            **{name: option_values[name] for name in names},
            fmin=low,
            fmax=high,
            max_error=option_values["error"],
            detrend=option_values["detrend"] or DETREND_FROM_PRESET,
            device=device,
            adapter=adapter,
            save_to=option_values["resume_path"],
            told=show_step,
            progress=False,
        )


def _output_writers(
    learned: Learned,
    files: Sequence[str],
    option_values: dict[str, Any],
    elapsed_s: float,
) -> Iterator[tuple[str, ResultWriter]]:
    """Yield each requested output path with the function that writes the file."""
    yield option_values["out_path"], learned.save
    if option_values["json_path"] is not None:
        names = "nperseg", "preset", "window", "detrend", "steps", "seed", "price"
        settings = {"band": list(option_values["band"])} | {
            name: option_values[name] for name in names
        }
        record = json_document(
            SCHEMA,
            versions=library_versions(),
            settings=settings,
            files=[path_text(path) for path in files],
            out=path_text(option_values["out_path"]),
            **learned.as_json(),
            wall_s=elapsed_s,
        )
        yield option_values["json_path"], lambda file: write_json(file, record)
    if option_values["plot_path"] is not None:
        file_format = picture_format(option_values["plot_path"])
        dark = option_values["dark"]
        yield (
            option_values["plot_path"],
            lambda file: write_learning_picture(file, learned, file_format, dark),
        )


def _print_result(
    out: Console, learned: Learned, option_values: dict[str, Any], elapsed_s: float
) -> None:
    """Print the exact transform, the prunings on the Pareto front, and the next call to
    type.
    """
    exact = learned.tried[0]
    prunings = [
        exact,
        *(pruning for pruning in pareto_front(learned.tried) if pruning is not exact),
    ]
    rows = [_pruning_row(learned, pruning) for pruning in prunings]
    print_table(out, HEADS, rows, right_aligned=HEADS[1:], no_wrap=HEADS)
    run = learned.trained.run
    engine = f" on {run.engine}" if run.engine else ""
    print_lines(
        out,
        f"{format_count(run.steps, 'step')}{engine}, "
        f"{len(learned.examples.training_segments):,} "
        f"training segments, {len(learned.examples.test_rows):,} test rows: "
        f"{elapsed_s:.2f} s",
    )
    if learned.is_exact:
        max_error = learned.transform.asked
        message = f"no pruning has an error of at most {max_error:g}"
        print_lines(
            out, f"{message}; the file contains the exact transform of the band"
        )
    print_lines(out, f"in Python: {_usage_example(learned, option_values)}")


def _usage_example(learned: Learned, option_values: dict[str, Any]) -> str:
    """Return a Python call that uses the transform."""
    model, (low, high) = learned.transform, option_values["band"]
    options: dict[str, Any] = {"fs": model.fs, "nperseg": model.n}
    if option_values["preset"] != "rlx":
        options["preset"] = option_values["preset"]
    if option_values["window"] is not None:
        options["window"] = option_values["window"]
    if option_values["detrend"] is not None:
        options["detrend"] = model.detrend or False
    options |= {"fmin": low, "fmax": high, "k": model.k}
    options |= {"strategy": "learned", "model": option_values["out_path"]}
    words = (
        f"{name}={value:.15g}" if isinstance(value, float) else f"{name}={value!r}"
        for name, value in options.items()
    )
    return f"rlx.welch_peaks(x, {', '.join(words)})"


def _pruning_row(learned: Learned, pruning: Pruning) -> tuple[Cell, ...]:
    """Return the table row of a pruning."""
    name, style = "exact" if pruning is learned.tried[0] else "pruned", ""
    if pruning is learned.chosen:
        name, style = f"{name}, chosen", "bold"
    cells = (
        name,
        f"{pruning.active:,}",
        f"{len(pruning.program.phases)} of {pruning.program.m}",
        f"{pruning.error:.2g}",
        f"{pruning.recall:.1%}",
        f"{pruning.program.relative_cost:.1%}",
    )
    return tuple((cell, style) for cell in cells)
