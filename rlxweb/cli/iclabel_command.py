"""`rlxweb iclabel FILE`: which components of an EEG are brain, and which are not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import click
import numpy as np

from rlxweb.cli import options
from rlxweb.cli.look import DARK
from rlxweb.cli.plot import check_plot, new_figure, picture_format, put_figure
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import counted, progress_on, say, screen, show_table
from rlxweb.cli.sound_files import model
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.cli.text_files import where
from rlxweb.io import open_recording, write_csv, write_json, write_npz
from rlxweb.jobs.entries import text_of
from rlxweb.models.iclabel import CLASSES, Components, ICLabel
from rlxweb.plot.components import draw_components, height_of
from rlxweb.plot.lettering import Lettering

SCHEMA = "rlxweb.iclabel/1"
HEADS = ("component", "label", "probability", "next", "probability ")
CSV_COLUMNS = ("file", "component", "label", *(c.replace(" ", "_") for c in CLASSES))


@click.command(name="iclabel")
@click.argument("file", metavar="FILE")
@options.FS
@options.valued(
    "--components",
    click.IntRange(1),
    "Components to find [as many as the channels have].",
)
@options.CHANNELS
@options.EXCLUDE
@options.START
@options.STOP
@model("mne-icalabel")
@options.AUTO_DEVICE
@options.ADAPTER
@options.file_path("csv", "A line for each component; - is stdout.")
@options.file_path("npz", "Maps, unmixing and probabilities as arrays.")
@options.file_path("json", "The components, and how they came about; - is stdout.")
@options.file_path("plot", "Draw their maps (.png, .svg, .pdf).")
@DARK
@click.option("--quiet", "-q", is_flag=True, help="No table.")
def command(file: str, quiet: bool, **asked: Any) -> None:
    """Components of an EEG: brain, muscle, eye, heart, mains, a channel, or other.

    The recording is referenced to the average, filtered to 1 to 100 Hz and taken apart
    by extended infomax; ICLabel says what each component is. Channels are placed by
    their names of the 10-20 system (Fp1, Cz, O2), others are left out. Nothing leaves
    this machine.

    Example  rlxweb iclabel night.edf --components 20 --plot components.png
    """
    targets = [(f"--{n}", asked[f"{n}_path"]) for n in ("csv", "npz", "json", "plot")]
    plot = asked["plot_path"]
    if plot is not None:
        check_plot(plot)
    check_targets([file], targets)
    begun = perf_counter()
    found = _found(file, asked, quiet)
    took = perf_counter() - begun
    write_all(_puts(found, file, asked, took))
    if quiet:
        return
    err = screen(stderr=True)
    if found.left_out:
        names = ", ".join(found.left_out[:6])
        more = ", …" if len(found.left_out) > 6 else ""
        say(err, f"left out {counted(len(found.left_out), 'channel')}: {names}{more}")
    out = err if goes_to_stdout(path for _, path in targets) else screen()
    rows = [_row(found, at) for at in range(len(found))]
    show_table(out, HEADS, rows, right=("component", "probability"), whole=HEADS)
    said = f"{counted(len(found), 'component')} of {len(found.names)} channels"
    bad = ", ".join(map(str, found.artifacts())) or "none"
    say(out, f"{said}, artifacts: {bad}: {took:.2f} s")


def _found(file: str, asked: dict[str, Any], quiet: bool) -> Components:
    device, adapter = where(asked)
    reading = {n: asked[n] or None for n in ("fs", "channels", "exclude")}
    reading |= {n: asked[n] for n in ("start", "stop")}
    with (
        progress_on(screen(stderr=True), shown=not quiet) as bar,
        ICLabel.load(asked["model"]) as own,
        open_recording(file, **reading) as recording,
    ):
        task = bar.add_task(file, total=None)

        def tell(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share, total=1.0)

        return own.label_recording(
            recording, asked["components"], device=device, adapter=adapter, tell=tell
        )


def _row(found: Components, at: int) -> tuple[str, ...]:
    chance = found.probabilities[at]
    first, second = np.argsort(-chance, kind="stable")[:2]
    best, then = f"{chance[first]:.2f}", f"{chance[second]:.2f}"
    return str(at), CLASSES[first], best, CLASSES[second], then


def _puts(
    found: Components, path: str, asked: dict[str, Any], took: float
) -> list[tuple[str, Put]]:
    rows = zip(found.labels, found.probabilities, strict=True)
    lines = [(path, at, label, *row) for at, (label, row) in enumerate(rows)]
    every: dict[str, Put] = {
        "csv": lambda file: write_csv(file, CSV_COLUMNS, lines),
        "npz": lambda file: write_npz(
            file,
            mixing=found.mixing,
            unmixing=found.unmixing,
            probabilities=found.probabilities,
            classes=np.array(CLASSES),
            channels=np.array([text_of(one) for one in found.names]),
            positions=found.positions,
        ),
        "json": partial(_put_json, found=found, path=path, took=took),
        "plot": partial(_put_plot, found=found, path=path, asked=asked),
    }
    named = ((asked[f"{name}_path"], put) for name, put in every.items())
    return [(target, put) for target, put in named if target is not None]


def _put_json(file: IO[bytes], found: Components, path: str, took: float) -> None:
    rows = zip(found.labels, found.probabilities.tolist(), strict=True)
    parts = [
        {
            "component": at,
            "label": label,
            "probabilities": dict(zip(CLASSES, row, strict=True)),
            "map": found.mixing[:, at],
        }
        for at, (label, row) in enumerate(rows)
    ]
    facts = {
        "file": text_of(path),
        "channels": [text_of(one) for one in found.names],
        "left_out": [text_of(one) for one in found.left_out],
        "components": parts,
        "artifacts": list(found.artifacts()),
    }
    write_json(file, document(SCHEMA, versions=versions(), **facts, wall_s=took))


def _put_plot(
    file: IO[bytes], found: Components, path: str, asked: dict[str, Any]
) -> None:
    name = Path(path).name
    letters = Lettering.of([name])

    def draw() -> Any:
        figure = new_figure(11, height_of(len(found)))
        said = f"{counted(len(found), 'component')} of {len(found.names)} channels"
        figure.suptitle(f"{letters.shown(name, 48)}: {said}", x=0.008, ha="left")
        draw_components(figure, found)
        return figure

    how = picture_format(asked["plot_path"])
    put_figure(file, draw, how, letters, f"drawing {path!r}", asked["dark"])
