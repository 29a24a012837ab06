"""`rlxweb info FILE…`: what recordings hold, before anything is computed of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import IO, Any

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.inputs import recordings_of
from rlxweb.cli.keeping import listed
from rlxweb.cli.record import document
from rlxweb.cli.screen import counted, say, screen, show_table
from rlxweb.cli.storage import STORAGE
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.cli.wording import told
from rlxweb.errors import RecordingWarning, RlxError
from rlxweb.io import Annotation, open_recording, write_csv, write_json
from rlxweb.io.access import Access
from rlxweb.jobs.description import file_description
from rlxweb.jobs.entries import Entry, text_of
from rlxweb.jobs.results import Failure
from rlxweb.printable import abridged, printable

SCHEMA = "rlxweb.info/1"
COLUMNS = ("file", "onset_s", "duration_s", "text")
# What a terminal shows; a pipe gets all.
_TEXTS = 24
_NAMES = 64
_MOST_NAME = 40
_DAY_S = 86_400


@click.command(name="info")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.FS
@options.ARRAY
@options.LAYOUT
@STORAGE
@options.file_path("csv", "Write a line per annotation; - is stdout.")
@options.file_path("json", "Write what is shown; - is stdout.")
@click.option("--quiet", "-q", is_flag=True, help="Show nothing.")
@click.option("--keep-going", is_flag=True, help="A bad file costs itself alone.")
def command(
    files: tuple[str, ...],
    csv_path: str | None,
    json_path: str | None,
    quiet: bool,
    keep_going: bool,
    storage: Access,
    **reading: Any,
) -> None:
    """What recordings hold: format, rates, channels, units, annotations, times.

    Also what is left out and why, and what is wrong with a file. The words of
    annotations are those that --start, --stop and --epochs take.

    Example  rlxweb info night.edf
    """
    err = screen(stderr=True)
    outputs = [path for path in (csv_path, json_path) if path is not None]
    failed: list[Failure] = []

    def refused(name: str, error: RlxError) -> None:
        if not keep_going:
            raise error
        failed.append(Failure(name, "; ".join(told(error).split("\n"))))
        say(err, f"rlxweb: {failed[-1].error}")

    tell = partial(say, err, style="dim")
    meant = recordings_of(files, outputs, tell, refused, storage)
    check_targets(meant, [("--csv", csv_path), ("--json", json_path)])
    found: list[tuple[Entry, tuple[Annotation, ...]]] = []
    out = err if goes_to_stdout(outputs) else screen()
    for at, file in enumerate(meant):
        try:
            found.append(_looked_at(file, reading, storage))
        except RlxError as error:
            refused(file, error)
            continue
        if not quiet:
            if at:
                say(out, "")
            _show(out, found[-1][0])
    write_all(_puts(csv_path, json_path, found, failed))
    if failed:
        of = f"{len(failed)} of {counted(len(meant), 'recording')}"
        say(err, f"rlxweb: {of} failed: {listed([one.path for one in failed])}")
    click.get_current_context().exit(1 if failed else 0)


def _looked_at(
    file: str, reading: dict[str, Any], storage: Access
) -> tuple[Entry, tuple[Annotation, ...]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordingWarning)  # they are listed
        with open_recording(file, **reading, storage_options=storage) as recording:
            return file_description(recording), recording.annotations


def _puts(
    csv_path: str | None,
    json_path: str | None,
    found: Sequence[tuple[Entry, tuple[Annotation, ...]]],
    failed: Sequence[Failure],
) -> Iterator[tuple[str, Put]]:
    if csv_path is not None:
        yield csv_path, partial(_put_csv, found=found)
    if json_path is not None:
        record = document(
            SCHEMA,
            files=[entry for entry, _ in found],
            failed=[{"path": text_of(f.path), "error": f.error} for f in failed],
        )
        yield json_path, partial(write_json, obj=record)


def _put_csv(
    file: IO[bytes], found: Sequence[tuple[Entry, tuple[Annotation, ...]]]
) -> None:
    rows = (
        (entry["path"], one.onset, one.duration, one.text)
        for entry, notes in found
        for one in notes
    )
    write_csv(file, COLUMNS, rows)


# --- for people -----------------------------------------------------------------------


def _show(out: Console, entry: Entry) -> None:
    begun, day = entry["begun_s"], entry["date"]
    said = [f"on {day}"] if day else []
    said += [] if begun is None else [f"at {_clock(begun % _DAY_S)}"]
    since = f", begins {' '.join(said)}" if said else ""
    lasts = f"lasts {_clock(entry['seconds'])} ({entry['seconds']:.10g} s)"
    lines = [f"{printable(entry['path'])}: {entry['format']}{since}, {lasts}"]
    for group in entry["groups"]:
        lines += _group_lines(out, group)
    lines += [f"  warning: {text}" for text in entry["warnings"]]
    for one in entry["left_out"]:
        name = abridged(one["channel"], _MOST_NAME)
        lines.append(f"  left out {name!r}: {one['reason']}")
    texts = entry["annotations"]
    count = sum(one["count"] for one in texts)
    of = f" of {counted(len(texts), 'text')}" if texts else ""
    lines.append(f"  {counted(count, 'annotation') if count else 'no annotations'}{of}")
    say(out, *lines)
    if texts:
        _show_texts(out, texts)


def _group_lines(out: Console, group: Entry) -> Iterator[str]:
    channels = group["channels"]
    yield (
        f"  {counted(len(channels), 'channel')} at {group['fs']:.10g} Hz, "
        f"{group['n_samples']:,} samples each, read as {group['samples']}"
    )
    by_unit: dict[str, list[str]] = {}
    for one in channels:
        by_unit.setdefault(one["unit"], []).append(one["name"])
    for unit, names in by_unit.items():
        most = _NAMES if out.is_terminal else len(names)
        some = ", ".join(abridged(name, _MOST_NAME) for name in names[:most])
        more = f", … and {len(names) - most} more" if len(names) > most else ""
        of = f"in {printable(unit).replace('uV', 'µV')}" if unit else "without a unit"
        line = f"    {of}: {some}{more}"
        if out.is_terminal:
            yield from wrap(line, out.width, subsequent_indent=" " * 6)
        else:
            yield line


def _show_texts(out: Console, texts: Sequence[Entry]) -> None:
    shown = texts[:_TEXTS] if out.is_terminal else texts
    rows = [
        (
            abridged(one["text"], _MOST_NAME) if out.is_terminal else one["text"],
            str(one["count"]),
            f"{one['first_s']:.10g}",
            f"{one['last_s']:.10g}",
            _span(one["least_duration_s"], one["most_duration_s"]),
        )
        for one in shown
    ]
    heads = ("annotation", "count", "first (s)", "last (s)", "lasts (s)")
    show_table(out, heads, rows, right=heads[1:], whole=heads)
    if len(shown) < len(texts):
        left = counted(len(texts) - len(shown), "more text")
        say(out, f"  … and {left}; a pipe (| cat) and --json have all")


def _span(least: float, most: float) -> str:
    if most == 0:
        return "–"
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def _clock(seconds: float) -> str:
    """`7:58:20`, with what is left of a second."""
    whole, ms = divmod(round(1000 * seconds), 1000)
    rest = f".{ms:03}".rstrip("0").rstrip(".")
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}{rest}"
