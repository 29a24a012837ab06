"""`rlxweb notes FILE`: the notes that are played in a sound file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import click

from rlxweb.cli import options
from rlxweb.cli.look import DARK
from rlxweb.cli.plot import PAGES, check_plot, new_figure, picture_format, put_figure
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import counted, say, screen, show_table
from rlxweb.cli.sound_files import FILE, model, panels, progress
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.cli.text_files import where
from rlxweb.io import write_csv, write_json, write_npz
from rlxweb.jobs.entries import text_of
from rlxweb.models.basic_pitch import BasicPitch
from rlxweb.models.note_events import NoteSettings
from rlxweb.models.notes import Notes
from rlxweb.plot.lettering import Lettering
from rlxweb.plot.notes import draw_roll, roll
from rlxweb.plot.page import picture_page

SCHEMA = "rlxweb.notes/1"
HEADS = ("note", "midi", "starts", "lasts", "amplitude")
CSV_COLUMNS = ("start_s", "end_s", "pitch_midi", "note", "amplitude", "pitch_bend")
_SHOWN = 40
_USUAL = NoteSettings()
_ASKED = (
    *("onset_threshold", "frame_threshold", "minimum_note_length"),
    *("minimum_frequency", "maximum_frequency"),
)
_SHARE = click.FloatRange(0, 1, min_open=True)
_HZ = click.FloatRange(0, min_open=True)


@click.command(name="notes")
@FILE
@options.FS
@options.valued(
    "--onset-threshold",
    _SHARE,
    "How sure it must be that a note begins.",
    _USUAL.onset_threshold,
)
@options.valued(
    "--frame-threshold",
    _SHARE,
    "How sure it must be that a note sounds.",
    _USUAL.frame_threshold,
)
@options.valued(
    "--minimum-note-length",
    click.FloatRange(0),
    "Shortest note, in ms.",
    _USUAL.minimum_note_length,
)
@options.valued("--minimum-frequency", _HZ, "Lowest pitch, in Hz.")
@options.valued("--maximum-frequency", _HZ, "Highest pitch, in Hz.")
@model("basic-pitch")
@options.AUTO_DEVICE
@options.ADAPTER
@options.file_path("midi", "Write the notes as a MIDI file.")
@options.valued("--tempo", click.FloatRange(4, 1000), "Of the MIDI file.", 120.0)
@click.option(
    "--multiple-pitch-bends",
    is_flag=True,
    help="In MIDI notes that overlap are bent too, each on a channel of its own.",
)
@options.file_path("csv", "A line for each note; - is stdout.")
@options.file_path("npz", "The notes as arrays.")
@options.file_path("json", "The notes, and how they came about; - is stdout.")
@options.file_path("plot", "Draw a piano roll (.png, .svg, .pdf, .html).")
@DARK
@click.option("--quiet", "-q", is_flag=True, help="No table.")
def command(file: str, quiet: bool, **asked: Any) -> None:
    """The notes that are played in a sound file, whatever instruments play.

    Pitch, begin, length, loudness and bends of each, by Basic Pitch. The file may have
    any rate and length. Nothing leaves this machine.

    Example  rlxweb notes song.wav --midi song.mid --plot song.html
    """
    targets = [(f"--{n}", asked[f"{n}_path"]) for n in ("midi", "csv", "npz", "json")]
    plot = asked["plot_path"]
    if plot is not None:
        check_plot(plot, PAGES)
    check_targets([file], [*targets, ("--plot", plot)], "sound file")
    settings = NoteSettings(**{name: asked[name] for name in _ASKED}).checked("notes")
    device, adapter = where(asked)
    begun = perf_counter()
    with progress(file, quiet) as tell, BasicPitch.load(asked["model"]) as own:
        notes = own.transcribe(
            *(file, asked["fs"]),
            settings=settings,
            device=device,
            adapter=adapter,
            tell=tell,
        )
    took = perf_counter() - begun
    write_all(_puts(notes, file, asked, took))
    if not quiet:
        paths = [path for _, path in targets]
        out = screen(stderr=goes_to_stdout([*paths, plot]))
        rows = [_row(one) for one in notes.notes[:_SHOWN]]
        show_table(out, HEADS, rows, right=HEADS[1:], whole=HEADS)
        if len(notes) > _SHOWN:
            more = counted(len(notes) - _SHOWN, "note")
            say(out, f"and {more} more, which --csv writes")
        say(
            out, f"{counted(len(notes), 'note')} in {notes.seconds:.1f} s: {took:.2f} s"
        )


def _row(note: Any) -> tuple[str, ...]:
    lasts = note.end - note.start
    start, loud = f"{note.start:.2f} s", f"{note.amplitude:.2f}"
    return note.name, str(note.pitch), start, f"{lasts:.2f} s", loud


def _puts(
    notes: Notes, path: str, asked: dict[str, Any], took: float
) -> list[tuple[str, Put]]:
    how = asked["tempo"], asked["multiple_pitch_bends"]
    every: dict[str, Put] = {
        "midi": lambda f: f.write(notes.midi(how[0], multiple_pitch_bends=how[1])),
        "csv": lambda f: write_csv(f, CSV_COLUMNS, map(_line, notes)),
        "npz": lambda f: write_npz(f, **notes.arrays()),
        "json": partial(_put_json, notes=notes, path=path, took=took),
        "plot": partial(_put_plot, notes=notes, asked=asked),
    }
    named = ((asked[f"{name}_path"], put) for name, put in every.items())
    return [(target, put) for target, put in named if target is not None]


def _line(note: Any) -> tuple[Any, ...]:
    bends = " ".join(map(str, note.bends))
    return note.start, note.end, note.pitch, note.name, note.amplitude, bends


def _put_json(file: IO[bytes], notes: Notes, path: str, took: float) -> None:
    entries = [{"name": one.name, **one._asdict()} for one in notes]
    facts = {"file": text_of(path), "seconds": notes.seconds, "notes": entries}
    write_json(file, document(SCHEMA, versions=versions(), **facts, wall_s=took))


def _put_plot(file: IO[bytes], notes: Notes, asked: dict[str, Any]) -> None:
    name, dark = Path(notes.name).name, asked["dark"]
    facts = f"{counted(len(notes), 'note')} in {notes.seconds:.1f} s"
    how = picture_format(asked["plot_path"])
    if how == "html":
        page = picture_page(name, "", [roll(notes, facts)], log=False, dark=dark)
        file.write(page.encode())
        return
    letters = Lettering.of([name])

    def draw() -> Any:
        spans = panels(notes.seconds)
        figure = new_figure(11, 0.9 + 2.8 * len(spans))
        title = f"{letters.shown(name, 48)}: {facts}"
        figure.suptitle(title, x=0.008, ha="left")
        axes = figure.subplots(len(spans), 1, squeeze=False)[:, 0]
        for axis, span in zip(axes, spans, strict=True):
            bars = draw_roll(axis, notes, span)
            if axis is not axes[-1]:
                axis.set_xlabel("")
        bar = figure.colorbar(bars, ax=list(axes), pad=0.01, aspect=20 * len(spans))
        bar.set_label("amplitude")
        bar.outline.set_visible(False)
        return figure

    put_figure(file, draw, how, letters, f"drawing {notes.name!r}", dark)
