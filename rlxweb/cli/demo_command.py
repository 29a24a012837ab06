"""`rlxweb demo [FILE]`: the main job on a recording with known rhythms, or on yours."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from rlxweb.cli import options
from rlxweb.cli.look import AXIS, DARK, WAY, look_of
from rlxweb.cli.screen import say, screen
from rlxweb.cli.targets import goes_to_stdout
from rlxweb.cli.wanted import Wanted
from rlxweb.cli.welch_command import run_job
from rlxweb.errors import RecordingError
from rlxweb.io import open_recording, write_demo_recording
from rlxweb.jobs.analysis import check_device
from rlxweb.jobs.settings import Settings
from rlxweb.whole_file import reason

# Two seconds per segment: half a hertz per bin at any rate.
SEGMENT_S = 2.0
PEAKS = 5


@click.command(name="demo")
@click.argument("file", required=False)
@click.option(
    "--out", default="rlxweb-demo", show_default=True, help="Folder for the picture."
)
@options.AUTO_DEVICE
@options.FS
@options.file_path("json", "The run record; - is stdout.")
@AXIS
@WAY
@DARK
def command(
    file: str | None,
    out: str,
    device: str,
    fs: float | None,
    json_path: str | None,
    **asked: Any,
) -> None:
    """Peaks of a made recording with known rhythms (or of FILE), table and picture."""
    folder = Path(out)
    settings = Settings(
        fs=fs, segment_s=SEGMENT_S, k=PEAKS, preset="scipy", mode="peaks", device=device
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
            f"demo in {out!r}", f"the folder cannot be made ({reason(error)})"
        ) from None
    console = screen(stderr=goes_to_stdout([json_path]))
    truth = None
    if file is None:
        file = str(folder / "demo.edf")
        truth = write_demo_recording(file)
        say(console, f"made {file}: {len(truth.rhythms)} EEG channels")
    picture = str(folder / f"{Path(file).stem}.png")
    look = look_of(asked)
    wanted = Wanted(json=json_path, plot=picture, explain=True, look=look)
    run_job([file], settings, wanted)
    for name, rhythms in truth.rhythms.items() if truth is not None else ():
        put = ", ".join(f"{r.hz:g} Hz ({r.amplitude_uv:g} µV)" for r in rhythms)
        say(console, f"put into {name}: {put}", style="dim")
