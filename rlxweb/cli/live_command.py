"""`rlxweb live SOURCE`: show spectra, peaks and bands of a running signal."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from rlxweb.cli import options
from rlxweb.cli.console import make_console, print_lines
from rlxweb.cli.live_terminal_view import format_line, render_status, render_view
from rlxweb.cli.live_web import (
    PAGE_UPDATE_INTERVAL_S,
    check_page_options,
    open_live_page,
    throttle_updates,
)
from rlxweb.core.errors import RlxWarning, UsageError
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.live.continuous_analysis import LiveUpdate, watch_signal
from rlxweb.live.file_source import GrowingFile, RecordingReplay
from rlxweb.live.live_page_server import LivePageServer
from rlxweb.live.raw_pipe_source import SAMPLE_FORMATS, RawPipeSource
from rlxweb.live.source import SignalSource, SourceListener
from rlxweb.signal.band_power import BAND_PRESETS, warn_skipped_bands
from rlxweb.signal.frequency_bins import FrequencyLimit
from rlxweb.signal.welch_stream import WelchStream

_TERMINAL_INTERVAL_S, _LINE_INTERVAL_S = 0.15, 1.0
_PIPE_OPTIONS = ("raw", "channels", "fs")
"""Between two updates on a terminal, and elsewhere."""


@click.command(name="live")
@click.argument("source", metavar="SOURCE")
@options.choice_option(
    "--raw",
    tuple(SAMPLE_FORMATS),
    "Sample type of a pipe (little-endian, interleaved).",
)
@options.value_option(
    "--channels", click.IntRange(1), "Number of channels of a pipe or microphone."
)
@options.value_option(
    "--fs",
    options.FiniteFloatRange(0, min_open=True),
    "Sampling rate in Hz, for a pipe, a microphone or a file that states no rate.",
)
@click.option(
    "--pick",
    "-c",
    multiple=True,
    metavar="C",
    help="Use only this channel of a file; repeatable.",
)
@options.value_option("--replay", options.FiniteFloatRange(0, min_open=True),
                "Replay a file at this speed; 2 is twice as fast as "
                "recorded.")  # fmt: skip
@click.option(
    "--all", "since_begin", is_flag=True, help="Read a growing file from its start."
)
@options.value_option("--idle-s", options.FiniteFloatRange(0, min_open=True),
                "Stop when a file has not grown for this many seconds.")  # fmt: skip
@options.value_option("--segment-s", options.FiniteFloatRange(0, min_open=True),
                "Seconds per segment.", 2.0)  # fmt: skip
@options.value_option("--k", click.IntRange(1), "Peaks per channel.", 3)
@options.value_option("--fmin", float, "Lowest frequency, in Hz.", 0.5)
@options.value_option(
    "--fmax", float, "Highest frequency, in Hz; default: half the sampling rate."
)
@options.choice_option("--average", ("exponential", "last", "all", "none"),
                "How segments are averaged.", "exponential")  # fmt: skip
@options.value_option("--half-life", options.FiniteFloatRange(0, min_open=True),
                "Half-life of a segment's weight for --average "
                "exponential, in seconds.", 4.0)  # fmt: skip
@options.value_option(
    "--last", click.IntRange(1), "Number of segments for --average last.", 8
)
@options.choice_option(
    "--bands",
    (*BAND_PRESETS, "none"),
    "Frequency bands whose power shares are shown.",
    "eeg",
)
@options.value_option(
    "--show", str, "Channel whose spectrum is drawn; default: the first."
)
@options.value_option("--duration-s", options.FiniteFloatRange(0, min_open=True),
                "Stop after this many seconds of signal.")  # fmt: skip
@options.value_option(
    "--every-s", options.FiniteFloatRange(0.02), "Seconds between updates."
)
@click.option(
    "--json-lines", is_flag=True, help="Print each update as one line of JSON."
)
@click.option("--spectra", is_flag=True, help="With --json-lines: include the spectra.")
@click.option("--web", is_flag=True, help="Show the result on a local web page.")
@options.value_option(
    "--port", click.IntRange(1, 65535), "Port of the page; default: any free port."
)
@click.option(
    "--no-open", is_flag=True, help="Print the address of the page; do not open it."
)
def command(source: str, json_lines: bool, spectra: bool, **option_values: Any) -> None:
    """Show spectra, peaks and bands of a live signal; Ctrl-C stops.

    SOURCE is a microphone (mic, mic:NAME), a stream of the Lab Streaming Layer (lsl,
    lsl:NAME), the path of a recording that is being written, or - for samples from a
    pipe.

    Example  rlxweb live lsl:EEG
             amplifier | rlxweb live - --raw f32 --channels 8 --fs 256
             rlxweb live night.edf --replay 1 --web
    """
    if spectra and not json_lines:
        raise UsageError(
            "--spectra", "it requires --json-lines", hint="add --json-lines"
        )
    check_page_options(option_values)
    console = make_console()
    # A dumb terminal cannot go back to a line: it gets lines, as a file does.
    is_drawn = not json_lines and console.is_terminal and not console.is_dumb_terminal
    interval_s = option_values["every_s"] or (
        _TERMINAL_INTERVAL_S if is_drawn else _LINE_INTERVAL_S
    )
    with SourceListener(_find_source(source, option_values)) as listener:
        stream_info = listener.source.stream_info
        stream = _make_stream(listener.source, option_values)
        bands = None if option_values["bands"] == "none" else option_values["bands"]
        covered_bands = _covered_bands(bands, stream)
        note_console = console if is_drawn else make_console(stderr=True)
        with open_live_page(
            stream_info, stream, covered_bands, option_values, note_console
        ) as page:
            updates = watch_signal(
                listener,
                stream,
                every_s=interval_s
                if page is None
                else option_values["every_s"] or PAGE_UPDATE_INTERVAL_S,
                bands=covered_bands,
                until_s=option_values["duration_s"],
            )
            row = _channel_row(option_values["show"], stream_info.channels)
            due_updates = throttle_updates(updates, page, interval_s)
            if json_lines:
                _write_json_lines(due_updates, spectra)
            elif is_drawn:
                _draw_terminal(console, due_updates, row, page)
            else:
                for update in due_updates:
                    print_lines(console, format_line(update))


def _write_json_lines(updates: Iterable[LiveUpdate], spectra: bool) -> None:
    """Write each update as a JSON line on standard output."""
    for update in updates:
        entry = update.as_json(spectra)
        sys.stdout.write(json.dumps(entry, allow_nan=False) + "\n")
        sys.stdout.flush()


def _draw_terminal(
    console: Console,
    updates: Iterable[LiveUpdate],
    row: int,
    page: LivePageServer | None,
) -> None:
    """Redraw the view on a terminal with each update."""
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for update in updates:
            width, height = console.size
            if page is not None:
                rendered = render_status(update, width, page.board.n_viewers)
            else:
                view_height, colour = max(3, height - 1), not console.no_color
                rendered = render_view(update, width, view_height, row, colour)
            live.update(rendered, refresh=True)


def _find_source(name: str, option_values: dict[str, Any]) -> SignalSource:
    """Return the source, and show a status while streams are searched on the
    network.
    """
    if name.partition(":")[0] != "lsl":
        return _open_source(name, option_values)
    with make_console(stderr=True).status("looking for streams on the network"):
        return _open_source(name, option_values)


def _open_source(name: str, option_values: dict[str, Any]) -> SignalSource:
    """Open the source. Raises UsageError for options that do not apply to it."""
    kind, _, source_name = name.partition(":")
    is_file = name != "-" and kind not in ("mic", "lsl")
    _refuse_option("--raw", option_values["raw"], name == "-", name)
    _refuse_option(
        "--channels", option_values["channels"], name == "-" or kind == "mic", name
    )
    _refuse_option("--fs", option_values["fs"], kind != "lsl", name)
    for flag in ("replay", "idle_s", "since_begin", "pick"):
        _refuse_option(
            f"--{flag.replace('_', '-')}", option_values[flag] or None, is_file, name
        )
    if name == "-":
        if None in (option_values[n] for n in _PIPE_OPTIONS):
            flags = (f"--{n}" for n in _PIPE_OPTIONS if option_values[n] is None)
            problem = f"missing options: {', '.join(flags)}"
            rule = "a pipe has no header"
            hint = "add the missing options, as in --raw f32 --channels 8 --fs 256"
            raise UsageError("rlxweb live -", problem, rule, hint)
        pipe = sys.stdin.buffer
        return RawPipeSource(
            pipe, option_values["raw"], option_values["channels"], option_values["fs"]
        )
    if kind == "mic":
        from rlxweb.live.microphone_source import MicrophoneSource

        return MicrophoneSource(
            source_name, option_values["fs"], option_values["channels"] or 1
        )
    if kind == "lsl":
        from rlxweb.live.lsl_source import LslSource

        return LslSource(source_name)
    recording_options = {
        "fs": option_values["fs"],
        "channels": option_values["pick"] or None,
    }
    if option_values["replay"] is not None:
        return RecordingReplay(name, option_values["replay"], **recording_options)
    return GrowingFile(
        name,
        since_begin=option_values["since_begin"],
        idle_s=option_values["idle_s"],
        **recording_options,
    )


def _refuse_option(flag: str, value: object, is_applicable: bool, source: str) -> None:
    """Raise UsageError for an option that does not apply to the source."""
    if value is not None and not is_applicable:
        raise UsageError(flag, f"it does not apply to {source!r}", hint="omit it")


def _make_stream(source: SignalSource, option_values: dict[str, Any]) -> WelchStream:
    """Return the Welch stream for a source with the requested settings."""
    stream_info = source.stream_info
    nperseg = max(1, round(option_values["segment_s"] * stream_info.fs))
    average = option_values["average"]
    bins = nperseg // 2 + 1
    return WelchStream(
        stream_info.fs,
        nperseg,
        min(option_values["k"], bins),
        len(stream_info.channels),
        fmin=option_values["fmin"],
        fmax=option_values["fmax"],
        average=average,
        half_life=option_values["half_life"] if average == "exponential" else None,
        last=option_values["last"] if average == "last" else None,
        nan="skip",
    )


def _covered_bands(bands: str | None, stream: WelchStream) -> Any:
    """Return the bands of a preset that lie wholly in the spectrum; None without any.

    Warns of the others.
    """
    if bands is None:
        return None
    limit, low = FrequencyLimit.from_bins(stream.f, stream.fs), float(stream.f[0])
    bin_width = stream.fs / stream.nperseg
    preset = BAND_PRESETS[bands]
    covered = {
        name: edges
        for name, edges in preset.items()
        if edges[0] >= low and limit.allows(edges[1])
    }
    resolved = {
        name: edges
        for name, edges in covered.items()
        if edges[1] - edges[0] >= bin_width
    }
    if len(covered) < len(preset):
        uncovered = {
            name: edges for name, edges in preset.items() if name not in covered
        }
        warn_skipped_bands(uncovered, low, limit)
    if len(resolved) < len(covered):
        narrow = ", ".join(name for name in covered if name not in resolved)
        message = (
            f"--bands: skipped {narrow}, narrower than the bin width of "
            f"{bin_width:g} Hz"
        )
        warnings.warn(RlxWarning(message), stacklevel=caller_stacklevel())
    return resolved or None


def _channel_row(name: str | None, names: tuple[str, ...]) -> int:
    """Return the row of the channel whose spectrum is drawn."""
    if name is None:
        return 0
    if name not in names:
        first_names = ", ".join(names[:16])
        raise UsageError(
            "--show", f"there is no channel {name!r}", f"known channels: {first_names}"
        )
    return names.index(name)
