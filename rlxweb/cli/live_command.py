"""`rlxweb live SOURCE`: spectra, peaks and bands of a signal that is still running."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from rlxweb.callers import outside
from rlxweb.cli import options
from rlxweb.cli.live_view import line, status, view
from rlxweb.cli.live_web import PAGE_S, check_page, page_of, told
from rlxweb.cli.screen import say, screen
from rlxweb.errors import RlxWarning, UsageError
from rlxweb.live.file_source import GrowingFile, Replay
from rlxweb.live.raw_source import KINDS, RawSource
from rlxweb.live.source import Listener, Source
from rlxweb.live.watch import Update, watch
from rlxweb.live.web import LivePage
from rlxweb.signal.band import Reach
from rlxweb.signal.bands import BANDS, warn_left_out
from rlxweb.signal.welch_stream import WelchStream

_TERMINAL_S, _LINES_S = 0.15, 1.0
"""Between two updates on a terminal, and elsewhere."""


@click.command(name="live")
@click.argument("source", metavar="SOURCE")
@options.one_of("--raw", tuple(KINDS), "What a pipe gives, little-endian, interleaved.")
@options.valued("--channels", click.IntRange(1), "How many, of a pipe or microphone.")
@options.valued("--fs", click.FloatRange(0, min_open=True), "Rate in Hz, of a pipe.")
@click.option(
    "--pick", "-c", multiple=True, metavar="C", help="Of a file: its channels."
)
@options.valued("--replay", click.FloatRange(0, min_open=True),
                "Play a file so many times as fast as it was recorded.")  # fmt: skip
@click.option(
    "--all", "since_begin", is_flag=True, help="A growing file from its begin."
)
@options.valued("--idle-s", click.FloatRange(0, min_open=True),
                "End when a file did not grow for so long.")  # fmt: skip
@options.valued("--segment-s", click.FloatRange(0, min_open=True),
                "Seconds per segment.", 2.0)  # fmt: skip
@options.valued("--k", click.IntRange(1), "Peaks of a channel.", 3)
@options.valued("--fmin", float, "Look from here, in Hz.", 0.5)
@options.valued("--fmax", float, "Look up to here, in Hz; default: half the rate.")
@options.one_of("--average", ("exponential", "last", "all", "none"),
                "Over which segments.", "exponential")  # fmt: skip
@options.valued("--half-life", click.FloatRange(0, min_open=True),
                "Seconds after which a segment counts half.", 4.0)  # fmt: skip
@options.valued("--last", click.IntRange(1), "Segments of --average last.", 8)
@options.one_of("--bands", (*BANDS, "none"), "Shares that are shown.", "eeg")
@options.valued(
    "--show", str, "The channel whose spectrum is drawn; default: the first."
)
@options.valued("--duration-s", click.FloatRange(0, min_open=True),
                "End after so much signal.")  # fmt: skip
@options.valued("--every-s", click.FloatRange(0.02), "Seconds between two updates.")
@click.option("--json-lines", is_flag=True, help="An update per line on stdout.")
@click.option("--spectra", is_flag=True, help="With --json-lines: the powers too.")
@click.option("--web", is_flag=True, help="On a page in a browser of this machine.")
@options.valued("--port", click.IntRange(1, 65535), "Of the page; default: any free.")
@click.option(
    "--no-open", is_flag=True, help="Tell the page's address, do not open it."
)
def command(source: str, json_lines: bool, spectra: bool, **asked: Any) -> None:
    """Spectra, peaks and bands of a signal while it runs; Ctrl-C ends it.

    SOURCE is a microphone (mic, mic:NAME), a stream of the Lab Streaming Layer (lsl,
    lsl:NAME), a recording that is being written (its path), or - for numbers from a
    pipe.

    Example  rlxweb live lsl:EEG
             amplifier | rlxweb live - --raw f32 --channels 8 --fs 256
             rlxweb live night.edf --replay 1 --web
    """
    if spectra and not json_lines:
        raise UsageError("--spectra", "it goes with --json-lines", hint="give both")
    check_page(asked)
    console = screen()
    # A dumb terminal cannot go back to a line: it gets lines, as a file does.
    drawn = not json_lines and console.is_terminal and not console.is_dumb_terminal
    every = asked["every_s"] or (_TERMINAL_S if drawn else _LINES_S)
    with Listener(_found(source, asked)) as listener:
        about = listener.source.stream
        stream = _stream(listener.source, asked)
        bands = None if asked["bands"] == "none" else asked["bands"]
        reached = _reached(bands, stream)
        beside = console if drawn else screen(stderr=True)
        with page_of(about, stream, reached, asked, beside) as page:
            updates = watch(
                listener,
                stream,
                every_s=every if page is None else asked["every_s"] or PAGE_S,
                bands=reached,
                until_s=asked["duration_s"],
            )
            row = _row(asked["show"], about.channels)
            due = told(updates, page, every)
            if json_lines:
                _write(due, spectra)
            elif drawn:
                _draw(console, due, row, page)
            else:
                for update in due:
                    say(console, line(update))


def _write(updates: Iterable[Update], spectra: bool) -> None:
    for update in updates:
        told = update.as_json(spectra)
        sys.stdout.write(json.dumps(told, allow_nan=False) + "\n")
        sys.stdout.flush()


def _draw(
    console: Console, updates: Iterable[Update], row: int, page: LivePage | None
) -> None:
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for update in updates:
            width, height = console.size
            if page is not None:
                drawn = status(update, width, page.board.viewers)
            else:
                tall, colour = max(3, height - 1), not console.no_color
                drawn = view(update, width, tall, row, colour)
            live.update(drawn, refresh=True)


def _found(name: str, asked: dict[str, Any]) -> Source:
    """The source, looked for while that is told."""
    if name.partition(":")[0] != "lsl":
        return _source(name, asked)
    with screen(stderr=True).status("looking for streams on the network"):
        return _source(name, asked)


def _source(name: str, asked: dict[str, Any]) -> Source:
    """Where it comes from. Errors  UsageError for options that do not go with it."""
    kind, _, which = name.partition(":")
    is_file = name != "-" and kind not in ("mic", "lsl")
    _refuse("--raw", asked["raw"], name == "-", name)
    _refuse("--channels", asked["channels"], name == "-" or kind == "mic", name)
    _refuse("--fs", asked["fs"], kind != "lsl", name)
    for flag in ("replay", "idle_s", "since_begin", "pick"):
        _refuse(f"--{flag.replace('_', '-')}", asked[flag] or None, is_file, name)
    if name == "-":
        if None in (asked["raw"], asked["channels"], asked["fs"]):
            said, rule = "a pipe says nothing of itself", "it is to be told"
            hint = "--raw f32 --channels 8 --fs 256"
            raise UsageError("rlxweb live -", said, rule, hint)
        pipe = sys.stdin.buffer
        return RawSource(pipe, asked["raw"], asked["channels"], asked["fs"])
    if kind == "mic":
        from rlxweb.live.microphone import Microphone

        return Microphone(which, asked["fs"], asked["channels"] or 1)
    if kind == "lsl":
        from rlxweb.live.lsl import LslSource

        return LslSource(which)
    given = {"fs": asked["fs"], "channels": asked["pick"] or None}
    if asked["replay"] is not None:
        return Replay(name, asked["replay"], **given)
    return GrowingFile(
        name, since_begin=asked["since_begin"], idle_s=asked["idle_s"], **given
    )


def _refuse(flag: str, value: object, fits: bool, source: str) -> None:
    if value is not None and not fits:
        raise UsageError(flag, f"it does not go with {source!r}", hint="leave it out")


def _stream(source: Source, asked: dict[str, Any]) -> WelchStream:
    about = source.stream
    nperseg = max(1, round(asked["segment_s"] * about.fs))
    average = asked["average"]
    bins = nperseg // 2 + 1
    return WelchStream(
        about.fs,
        nperseg,
        min(asked["k"], bins),
        len(about.channels),
        fmin=asked["fmin"],
        fmax=asked["fmax"],
        average=average,
        half_life=asked["half_life"] if average == "exponential" else None,
        last=asked["last"] if average == "last" else None,
        nan="skip",
    )


def _reached(bands: str | None, stream: WelchStream) -> Any:
    """Return the bands of a preset that lie wholly in the spectrum; None without any.

    Warns of the others.
    """
    if bands is None:
        return None
    reach, low = Reach.of_bins(stream.f, stream.fs), float(stream.f[0])
    step = stream.fs / stream.nperseg
    preset = BANDS[bands]
    whole = {
        n: own for n, own in preset.items() if own[0] >= low and reach.holds(own[1])
    }
    wide = {n: own for n, own in whole.items() if own[1] - own[0] >= step}
    if len(whole) < len(preset):
        left = {n: own for n, own in preset.items() if n not in whole}
        warn_left_out(left, low, reach)
    if len(wide) < len(whole):
        narrow = ", ".join(n for n in whole if n not in wide)
        said = f"--bands: {narrow} left out, narrower than the bins, {step:g} Hz"
        warnings.warn(RlxWarning(said), stacklevel=outside())
    return wide or None


def _row(name: str | None, names: tuple[str, ...]) -> int:
    if name is None:
        return 0
    if name not in names:
        some = ", ".join(names[:16])
        raise UsageError("--show", f"no channel is called {name!r}", f"there: {some}")
    return names.index(name)
