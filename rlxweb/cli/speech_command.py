"""`rlxweb speech FILE`: where somebody talks in a sound file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import click

from rlxweb.cli import options
from rlxweb.cli.look import DARK
from rlxweb.cli.plot import check_plot, new_figure, picture_format, put_figure
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import counted, say, screen, show_table
from rlxweb.cli.sound_files import FILE, model, panels, progress
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.cli.text_files import where
from rlxweb.io import write_csv, write_json, write_npz
from rlxweb.jobs.entries import text_of
from rlxweb.models.silero import VoiceActivity
from rlxweb.models.speech import Speech, SpeechSettings
from rlxweb.plot.lettering import Lettering
from rlxweb.plot.speech_segments import draw_speech

SCHEMA = "rlxweb.speech/1"
HEADS = ("from", "to", "lasts")
CSV_COLUMNS = ("start_s", "end_s")
_USUAL = SpeechSettings()
_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
_MS = click.FloatRange(0)


@click.command(name="speech")
@FILE
@options.FS
@options.valued(
    "--threshold", _SHARE, "How sure it must be that somebody talks.", _USUAL.threshold
)
@options.valued(
    "--min-speech", _MS, "Shortest speech, in ms.", _USUAL.min_speech_duration_ms
)
@options.valued(
    "--min-silence",
    _MS,
    "Shortest silence between speech, in ms.",
    _USUAL.min_silence_duration_ms,
)
@options.valued(
    "--max-speech",
    click.FloatRange(0, min_open=True),
    "Cut speech that is longer, in s, where it pauses.",
)
@options.valued(
    "--pad", _MS, "Add so many ms at both ends of speech.", _USUAL.speech_pad_ms
)
@model("silero-vad")
@options.AUTO_DEVICE
@options.ADAPTER
@options.file_path("csv", "A line for each segment; - is stdout.")
@options.file_path("npz", "Segments, and the probability of each frame, as arrays.")
@options.file_path("json", "Segments, and how they came about; - is stdout.")
@options.file_path("plot", "Draw it (.png, .svg, .pdf).")
@DARK
@click.option("--quiet", "-q", is_flag=True, help="No table.")
def command(file: str, quiet: bool, **asked: Any) -> None:
    """Where somebody talks in a sound file.

    Segments of speech, by Silero VAD, in frames of 32 ms. The file may have any rate
    and length. Nothing leaves this machine.

    Example  rlxweb speech interview.wav --csv speech.csv --plot speech.png
    """
    targets = [(f"--{n}", asked[f"{n}_path"]) for n in ("csv", "npz", "json", "plot")]
    plot = asked["plot_path"]
    if plot is not None:
        check_plot(plot)
    check_targets([file], targets, "sound file")
    settings = _settings(asked)
    device, adapter = where(asked)
    begun = perf_counter()
    with progress(file, quiet) as tell, VoiceActivity.load(asked["model"]) as own:
        found = own.speech(
            *(file, asked["fs"]),
            settings=settings,
            device=device,
            adapter=adapter,
            tell=tell,
        )
    took = perf_counter() - begun
    write_all(_puts(found, file, asked, took))
    if not quiet:
        out = screen(stderr=goes_to_stdout(path for _, path in targets))
        rows = [(f"{a:.2f} s", f"{b:.2f} s", f"{b - a:.2f} s") for a, b in found]
        show_table(out, HEADS, rows, right=HEADS, whole=HEADS)
        said = f"{found.spoken:.1f} of {found.seconds:.1f} s is speech"
        say(out, f"{said}, in {counted(len(found), 'segment')}: {took:.2f} s")


def _settings(asked: dict[str, Any]) -> SpeechSettings:
    most = asked["max_speech"]
    return SpeechSettings(
        threshold=asked["threshold"],
        min_speech_duration_ms=asked["min_speech"],
        min_silence_duration_ms=asked["min_silence"],
        max_speech_duration_s=_USUAL.max_speech_duration_s if most is None else most,
        speech_pad_ms=asked["pad"],
    ).checked("speech")


def _puts(
    found: Speech, path: str, asked: dict[str, Any], took: float
) -> list[tuple[str, Put]]:
    every: dict[str, Put] = {
        "csv": lambda file: write_csv(file, CSV_COLUMNS, found),
        "npz": lambda file: write_npz(
            file,
            start=[one.start for one in found],
            end=[one.end for one in found],
            probability=found.probabilities,
            frame_s=found.frame_s,
        ),
        "json": partial(_put_json, found=found, path=path, took=took),
        "plot": partial(_put_plot, found=found, asked=asked),
    }
    named = ((asked[f"{name}_path"], put) for name, put in every.items())
    return [(target, put) for target, put in named if target is not None]


def _put_json(file: IO[bytes], found: Speech, path: str, took: float) -> None:
    segments = [one._asdict() for one in found]
    facts = {
        "file": text_of(path),
        "seconds": found.seconds,
        "spoken_s": found.spoken,
        "segments": segments,
        "frame_s": found.frame_s,
        "probabilities": found.probabilities,
    }
    write_json(file, document(SCHEMA, versions=versions(), **facts, wall_s=took))


def _put_plot(file: IO[bytes], found: Speech, asked: dict[str, Any]) -> None:
    name = Path(found.name).name
    letters = Lettering.of([name])

    def draw() -> Any:
        spans = panels(found.seconds)
        figure = new_figure(11, 0.8 + 1.7 * len(spans))
        said = f"{found.spoken:.1f} of {found.seconds:.1f} s is speech"
        figure.suptitle(f"{letters.shown(name, 48)}: {said}", x=0.008, ha="left")
        axes = figure.subplots(len(spans), 1, squeeze=False)[:, 0]
        for axis, span in zip(axes, spans, strict=True):
            draw_speech(axis, found, span)
            if axis is not axes[-1]:
                axis.set_xlabel("")
        return figure

    how = picture_format(asked["plot_path"])
    put_figure(file, draw, how, letters, f"drawing {found.name!r}", asked["dark"])
