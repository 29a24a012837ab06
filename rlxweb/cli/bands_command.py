"""`rlxweb bands FILE…`: the power of recordings in frequency bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rlxweb.batch.recording_analysis import check_device
from rlxweb.batch.recording_band_power import (
    BandRequest,
    FileBands,
    compute_bands,
    lowest_edge,
)
from rlxweb.batch.settings import Settings
from rlxweb.cli import options
from rlxweb.cli.bands_options import VALUE_OPTIONS, pop_bands_request
from rlxweb.cli.bands_outputs import BandsOutputs
from rlxweb.cli.bands_table import print_bands
from rlxweb.cli.batch import analyze_recordings
from rlxweb.cli.console import make_console, print_lines
from rlxweb.cli.epochs_options import EPOCH_OPTIONS, pop_epoching
from rlxweb.cli.output_files import uses_stdout, write_results
from rlxweb.cli.plot_options import DARK_OPTION, pop_plot_style
from rlxweb.cli.remote_storage_option import STORAGE_OPTION
from rlxweb.cli.resumable_results import ResultRetention
from rlxweb.core.errors import UsageError
from rlxweb.io import open_recording
from rlxweb.signal.band_power import BAND_PRESETS, MIN_CYCLES, BandsLike
from rlxweb.signal.welch_peaks import welch_peaks

MIN_SEGMENT_S = 4.0


def _parse_bands(ctx: click.Context, param: click.Parameter, text: str) -> BandsLike:
    """Parse a preset's name, or bands written as `name=low:high` and separated by
    commas.
    """
    if "=" not in text:
        if text in BAND_PRESETS:
            return text
        raise click.BadParameter(
            f"expected {', '.join(BAND_PRESETS)}, or custom bands such as "
            f"mu=8:12,beta=13:30; got {text!r}"
        )
    custom_bands: dict[str, tuple[float, float]] = {}
    for part in text.split(","):
        name, _, edges = part.partition("=")
        low, _, high = edges.partition(":")
        options.check_not_repeated("--bands", name.strip(), custom_bands)
        try:
            custom_bands[name.strip()] = (float(low), float(high))
        except ValueError:
            raise click.BadParameter(
                f"{part.strip()!r} is not a band; expected NAME=LOW:HIGH, such as "
                "mu=8:12"
            ) from None
    return custom_bands


@click.command(name="bands")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--bands",
    default="eeg",
    show_default=True,
    callback=_parse_bands,
    help="eeg, hrv, or custom bands in Hz (mu=8:12,beta=13:30).",
)
@VALUE_OPTIONS
@click.option(
    "--segment-s",
    type=options.FiniteFloatRange(0, min_open=True),
    help="Seconds per segment; default: the duration of two cycles at the lowest band "
    "edge, but at least 4 s; with --epochs, one epoch.",
)
@options.declared_options(open_recording)
@EPOCH_OPTIONS
@STORAGE_OPTION
@options.declared_options(welch_peaks, *options.COMPUTE_NAMES)
@options.output_file_option(
    "csv", "Write one CSV row per channel and band; - is stdout."
)
@options.output_file_option(
    "parquet", "Write one row per channel and band as Parquet (.parquet)."
)
@options.output_file_option("json", "Write the run record as JSON; - is stdout.")
@options.output_file_option(
    "plot",
    "Draw the share of the power in each band per channel, and scalp maps if channel "
    "names are from the 10-20 system (.png, .svg, .pdf, .html).",
)
@DARK_OPTION
@options.JOBS
@click.option("--quiet", "-q", is_flag=True, help="Do not print the table.")
@options.KEEP_GOING
def command(
    files: tuple[str, ...],
    bands: BandsLike,
    quiet: bool,
    keep_going: bool,
    **option_values: Any,
) -> None:
    """Compute the power in frequency bands for each channel of recordings.

    The Welch density (periodic Hann window, 50 % overlap, mean removed) is integrated
    between the edges of each band. A share is relative to the power between the lowest
    and the highest edge; a peak is the strongest local maximum in a band. --aperiodic
    splits the density into its 1/f part and the peaks above it, as specparam does.

    Example  rlxweb bands night/*.edf --bands eeg --csv bands.csv --plot bands.png
    """
    request = pop_bands_request(bands, option_values)
    style = pop_plot_style(option_values)
    paths = {
        name: option_values.pop(f"{name}_path")
        for name in ("csv", "parquet", "json", "plot")
    }
    outputs = BandsOutputs(**paths, style=style)
    jobs = option_values.pop("jobs")
    settings = _density_settings(request, option_values)
    err = make_console(stderr=True)

    def prepare_outputs(recordings: Sequence[str]) -> ResultRetention:
        outputs.check(recordings)
        check_device(settings)
        return ResultRetention()

    output_paths = [path for path in outputs.paths if path is not None]
    batch = analyze_recordings(
        files,
        settings,
        err,
        outputs=output_paths,
        keep_going=keep_going,
        prepare_outputs=prepare_outputs,
        jobs=jobs,
    )
    band_results = [
        FileBands(result, compute_bands(result, request)) for result in batch.results
    ]
    write_results(outputs.writers(batch, band_results, request))
    for picture in outputs.picture_paths(batch).values():
        print_lines(err, f"picture: {picture}")
    if not quiet:
        print_bands(err if uses_stdout(output_paths) else make_console(), band_results)
    click.get_current_context().exit(batch.exit_code)


def _density_settings(request: BandRequest, option_values: dict[str, Any]) -> Settings:
    """Return the settings of the density that is integrated. Raises UsageError for a
    band without a name or with edges that do not rise.
    """
    bands = request.bands
    edges_by_band = bands if not isinstance(bands, str) else BAND_PRESETS[bands]
    for name, (low, high) in edges_by_band.items():
        if not name or not 0 <= low < high:
            raise UsageError(
                "--bands",
                f"band {name!r} is {low:g}:{high:g}",
                "a band needs a name and two edges in Hz, 0 ≤ low < high",
            )
    epochs = option_values["epochs"] = pop_epoching(option_values)
    if option_values["segment_s"] is None and epochs is None:
        option_values["segment_s"] = max(
            MIN_SEGMENT_S, MIN_CYCLES / lowest_edge(edges_by_band)
        )
    return Settings(**option_values, preset="scipy", k=1)
