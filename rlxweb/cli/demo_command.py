"""`rlxweb demo [FILE]`: the main job on a recording with known rhythms, or on yours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rlxweb.cli.welch_command import run_job
from rlxweb.errors import RecordingError
from rlxweb.io import DemoTruth, write_demo_recording

# Two seconds per segment at the demo's 256 Hz: half a hertz per bin.
NPERSEG = 512


@click.command(name="demo")
@click.argument("file", required=False)
@click.option("--out", default="rlxweb-demo", show_default=True, help="Output folder.")
@click.option("--device", default="auto", show_default=True)
@click.option("--fs", type=float, help="Rate in Hz, for files that carry none.")
def command(file: str | None, out: str, device: str, fs: float | None) -> None:
    """Peaks of a made recording with known rhythms (or of FILE), table and picture."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(
            f"demo in {out!r}", f"the folder cannot be made ({error.strerror})"
        ) from None
    console = Console()
    truth = None
    if file is None:
        file = str(folder / "demo.edf")
        truth = write_demo_recording(file)
        console.print(f"made {file}: {len(truth.rhythms)} EEG channels", markup=False)
    picture = str(folder / f"{Path(file).stem}.png")
    run_job([file], _options(picture, device, fs))
    if truth is not None:
        _print_truth(console, truth)


def _print_truth(console: Console, truth: DemoTruth) -> None:
    for name, rhythms in truth.rhythms.items():
        put = ", ".join(f"{r.hz:g} Hz ({r.amplitude_uv:g} uV)" for r in rhythms)
        console.print(f"put into {name}: {put}", markup=False, style="dim")


def _options(picture: str, device: str, fs: float | None) -> dict[str, Any]:
    return {
        "fs": fs,
        "nperseg": NPERSEG,
        "k": 5,
        "noverlap": None,
        "nsegments": None,
        "preset": "scipy",
        "mode": "peaks",
        "window": None,
        "detrend": None,
        "channels": (),
        "array": None,
        "layout": None,
        "device": device,
        "adapter": "",
        "precision": "auto",
        "nan": "raise",
        "prominence": None,
        "csv_path": None,
        "npz_path": None,
        "json_path": None,
        "plot_path": picture,
        "explain": True,
        "quiet": False,
    }
