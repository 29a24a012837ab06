"""`rlxweb bands FILE…`: the power of recordings in bands of frequency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rlxweb.cli import options
from rlxweb.cli.bands_options import VALUES, bands_asked
from rlxweb.cli.bands_outputs import Outputs
from rlxweb.cli.bands_table import print_bands
from rlxweb.cli.batch import run_batch
from rlxweb.cli.epochs_options import EPOCHS, epochs_asked
from rlxweb.cli.keeping import Keeping
from rlxweb.cli.look import DARK, look_of
from rlxweb.cli.screen import say, screen
from rlxweb.cli.storage import STORAGE
from rlxweb.cli.targets import goes_to_stdout, write_all
from rlxweb.errors import UsageError
from rlxweb.jobs.analysis import check_device
from rlxweb.jobs.bands import Banded, BandsAsked, bands_of, lowest_edge
from rlxweb.jobs.settings import Settings
from rlxweb.signal.bands import BANDS, CYCLES, Bands

LEAST_SEGMENT_S = 4.0


def _bands(ctx: click.Context, param: click.Parameter, text: str) -> Bands:
    """A preset by name, or `name=low:high` with commas between."""
    if "=" not in text:
        if text in BANDS:
            return text
        raise click.BadParameter(
            f"{text!r} is none of {', '.join(BANDS)}; your own are mu=8:12,beta=13:30"
        )
    own: dict[str, tuple[float, float]] = {}
    for part in text.split(","):
        name, _, edges = part.partition("=")
        low, _, high = edges.partition(":")
        options.check_new("--bands", name.strip(), own)
        try:
            own[name.strip()] = (float(low), float(high))
        except ValueError:
            raise click.BadParameter(
                f"{part.strip()!r} is no band; write it like mu=8:12"
            ) from None
    return own


@click.command(name="bands")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--bands",
    default="eeg",
    show_default=True,
    callback=_bands,
    help="eeg, hrv, or your own: mu=8:12,beta=13:30, in Hz.",
)
@VALUES
@options.FS
@click.option(
    "--segment-s",
    type=click.FloatRange(0, min_open=True),
    help="Seconds per segment; default: two cycles of the lowest edge, at least 4; or "
    "a whole epoch.",
)
@options.SAMPLES
@EPOCHS
@STORAGE
@options.COMPUTING
@options.file_path("csv", "Write a line per channel and band; - is stdout.")
@options.file_path("parquet", "Write the same as a typed table (.parquet).")
@options.file_path("json", "Write the run record; - is stdout.")
@options.file_path(
    "plot",
    "Draw each channel's shares, and maps of the head where names are of the 10-20 "
    "system (.png, .svg, .pdf, .html).",
)
@DARK
@options.JOBS
@click.option("--quiet", "-q", is_flag=True, help="No table.")
@options.KEEP_GOING
def command(
    files: tuple[str, ...], bands: Bands, quiet: bool, keep_going: bool, **asked: Any
) -> None:
    """Power in bands of frequency, per channel, of recordings.

    The density is Welch's (periodic Hann, half overlapped, mean removed), integrated
    between the edges of each band. Shares are of the power between the lowest and the
    highest edge; a peak is a band's strongest local maximum. --aperiodic splits the
    density into its 1/f part and the peaks above that, as specparam does.

    Example  rlxweb bands night/*.edf --bands eeg --csv bands.csv --plot bands.png
    """
    meant_of = bands_asked(bands, asked)
    look = look_of(asked)
    paths = {n: asked.pop(f"{n}_path") for n in ("csv", "parquet", "json", "plot")}
    outputs = Outputs(**paths, look=look)
    jobs = asked.pop("jobs")
    settings = _settings(meant_of, asked)
    err = screen(stderr=True)

    def begin(meant: Sequence[str]) -> Keeping:
        outputs.check(meant)
        check_device(settings)
        return Keeping()

    named = [path for path in outputs.paths if path is not None]
    done = run_batch(
        files,
        settings,
        err,
        outputs=named,
        keep_going=keep_going,
        begin=begin,
        jobs=jobs,
    )
    found = [Banded(one, bands_of(one, meant_of)) for one in done.results]
    write_all(outputs.puts(done, found, meant_of))
    for picture in outputs.pictures(done).values():
        say(err, f"picture: {picture}")
    if not quiet:
        print_bands(err if goes_to_stdout(named) else screen(), found)
    click.get_current_context().exit(done.exit_code)


def _settings(of: BandsAsked, asked: dict[str, Any]) -> Settings:
    """Of the density that is integrated. Errors  UsageError for a band that is none."""
    bands = of.bands
    named = bands if not isinstance(bands, str) else BANDS[bands]
    for name, (low, high) in named.items():
        if not name or not 0 <= low < high:
            raise UsageError(
                "--bands",
                f"band {name!r} is {low:g}:{high:g}",
                "a name and two edges in Hz, 0 ≤ low < high",
            )
    epochs = asked["epochs"] = epochs_asked(asked)
    if asked["segment_s"] is None and epochs is not None:
        asked["nperseg"] = None  # of whole epochs
    elif asked["segment_s"] is None:
        asked["segment_s"] = max(LEAST_SEGMENT_S, CYCLES / lowest_edge(named))
    return Settings(**asked, preset="scipy", k=1)
