"""`rlxweb demo [FILE]`: run the main analysis on a recording with known rhythms, or on
yours.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from rlxweb.batch.recording_analysis import check_device
from rlxweb.batch.settings import Settings
from rlxweb.cli import options
from rlxweb.cli.console import make_console, print_lines
from rlxweb.cli.output_files import uses_stdout
from rlxweb.cli.plot_options import (
    AXIS_OPTION,
    DARK_OPTION,
    LINES_OPTION,
    pop_plot_style,
)
from rlxweb.cli.welch_command import run_welch_job
from rlxweb.cli.welch_output_options import WelchOutputOptions
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RecordingError
from rlxweb.io import open_recording, write_demo_recording

# Two seconds per segment: half a hertz per bin at any rate.
SEGMENT_S = 2.0
N_PEAKS = 5


@click.command(name="demo")
@click.argument("file", required=False)
@click.option(
    "--out", default="rlxweb-demo", show_default=True, help="Folder for the plot."
)
@options.AUTO_DEVICE
@options.declared_options(open_recording, "fs")
@options.output_file_option("json", "Write the run record as JSON; - is stdout.")
@AXIS_OPTION
@LINES_OPTION
@DARK_OPTION
def command(
    file: str | None,
    out: str,
    device: str,
    fs: float | None,
    json_path: str | None,
    **option_values: Any,
) -> None:
    """Show the peaks of a generated recording, or of FILE, as a table and a plot."""
    folder = Path(out)
    settings = Settings(
        fs=fs,
        segment_s=SEGMENT_S,
        k=N_PEAKS,
        preset="scipy",
        mode="peaks",
        device=device,
    )
    # What is wrong with the device or the file should not leave a folder behind.
    check_device(settings)
    if file is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is opened again, and told then
            open_recording(file, fs=fs).close()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise RecordingError(
            f"write the demo to {out!r}",
            f"the folder cannot be created ({error_reason(error)})",
        ) from None
    console = make_console(stderr=uses_stdout([json_path]))
    truth = None
    if file is None:
        file = str(folder / "demo.edf")
        truth = write_demo_recording(file)
        print_lines(console, f"created {file}: {len(truth.rhythms)} EEG channels")
    picture = str(folder / f"{Path(file).stem}.png")
    style = pop_plot_style(option_values)
    run_outputs = WelchOutputOptions(
        json=json_path, plot=picture, explain=True, style=style
    )
    run_welch_job([file], settings, run_outputs)
    for name, rhythms in truth.rhythms.items() if truth is not None else ():
        rhythms_text = ", ".join(
            f"{r.hz:g} Hz ({r.amplitude_uv:g} µV)" for r in rhythms
        )
        print_lines(console, f"rhythms in {name}: {rhythms_text}", style="dim")
