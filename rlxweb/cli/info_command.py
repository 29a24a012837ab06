"""`rlxweb info FILE…`: describe recordings before anything is computed from them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import IO, Any

import click
from rich.console import Console

from rlxweb.batch.recording_description import file_description
from rlxweb.batch.results import Failure
from rlxweb.batch.run_record_entries import RecordEntry, path_text
from rlxweb.cli import options
from rlxweb.cli.console import format_count, make_console, print_lines, print_table
from rlxweb.cli.error_messages import format_error
from rlxweb.cli.json_documents import json_document
from rlxweb.cli.output_files import (
    ResultWriter,
    check_output_paths,
    uses_stdout,
    write_results,
)
from rlxweb.cli.recording_paths import resolve_recordings
from rlxweb.cli.remote_storage_option import STORAGE_OPTION
from rlxweb.cli.resumable_results import list_names
from rlxweb.core.errors import RecordingWarning, RlxError
from rlxweb.core.message_text import abbreviate, printable
from rlxweb.io import Annotation, open_recording, write_csv, write_json
from rlxweb.io.storage_options import StorageAccess

SCHEMA = "rlxweb.info/1"
CSV_COLUMNS = ("file", "onset_s", "duration_s", "text")
# What a terminal shows; a pipe gets all.
_MAX_TEXTS = 24
_MAX_NAMES = 64
_MAX_NAME_LENGTH = 40
_DAY_S = 86_400


@click.command(name="info")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.declared_options(open_recording, "fs", "array", "layout")
@STORAGE_OPTION
@options.output_file_option("csv", "Write one CSV row per annotation; - is stdout.")
@options.output_file_option("json", "Write the description as JSON; - is stdout.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing.")
@click.option(
    "--keep-going", is_flag=True, help="Continue with the other files after an error."
)
def command(
    files: tuple[str, ...],
    csv_path: str | None,
    json_path: str | None,
    quiet: bool,
    keep_going: bool,
    storage: StorageAccess,
    **reading: Any,
) -> None:
    """Show what recordings contain: format, rates, channels, annotations, times.

    Also shows skipped channels with the reason, and problems of a file. Other
    commands accept the annotation texts for --start, --stop and --epochs.

    Example  rlxweb info night.edf
    """
    err = make_console(stderr=True)
    outputs = [path for path in (csv_path, json_path) if path is not None]
    failures: list[Failure] = []

    def handle_failure(name: str, error: RlxError) -> None:
        if not keep_going:
            raise error
        failures.append(Failure(name, "; ".join(format_error(error).split("\n"))))
        print_lines(err, f"rlxweb: {failures[-1].error}")

    notify = partial(print_lines, err, style="dim")
    recordings = resolve_recordings(files, outputs, notify, handle_failure, storage)
    check_output_paths(recordings, [("--csv", csv_path), ("--json", json_path)])
    descriptions: list[tuple[RecordEntry, tuple[Annotation, ...]]] = []
    out = err if uses_stdout(outputs) else make_console()
    for index, file in enumerate(recordings):
        try:
            descriptions.append(_describe_file(file, reading, storage))
        except RlxError as error:
            handle_failure(file, error)
            continue
        if not quiet:
            if index:
                print_lines(out, "")
            _print_description(out, descriptions[-1][0])
    write_results(_output_writers(csv_path, json_path, descriptions, failures))
    if failures:
        summary = f"{len(failures)} of {format_count(len(recordings), 'recording')}"
        print_lines(
            err,
            f"rlxweb: {summary} failed: "
            f"{list_names([failure.path for failure in failures])}",
        )
    click.get_current_context().exit(1 if failures else 0)


def _describe_file(
    file: str, reading: dict[str, Any], storage: StorageAccess
) -> tuple[RecordEntry, tuple[Annotation, ...]]:
    """Return the description and the annotations of a recording."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordingWarning)  # they are listed
        with open_recording(file, **reading, storage_options=storage) as recording:
            return file_description(recording), recording.annotations


def _output_writers(
    csv_path: str | None,
    json_path: str | None,
    descriptions: Sequence[tuple[RecordEntry, tuple[Annotation, ...]]],
    failures: Sequence[Failure],
) -> Iterator[tuple[str, ResultWriter]]:
    """Yield each output path with the function that writes the file."""
    if csv_path is not None:
        yield csv_path, partial(_write_annotations_csv, descriptions=descriptions)
    if json_path is not None:
        record = json_document(
            SCHEMA,
            files=[entry for entry, _ in descriptions],
            failed=[{"path": path_text(f.path), "error": f.error} for f in failures],
        )
        yield json_path, partial(write_json, obj=record)


def _write_annotations_csv(
    file: IO[bytes], descriptions: Sequence[tuple[RecordEntry, tuple[Annotation, ...]]]
) -> None:
    """Write a CSV line for each annotation."""
    rows = (
        (entry["path"], annotation.onset, annotation.duration, annotation.text)
        for entry, annotations in descriptions
        for annotation in annotations
    )
    write_csv(file, CSV_COLUMNS, rows)


# --- for people -----------------------------------------------------------------------


def _print_description(out: Console, entry: RecordEntry) -> None:
    """Print what a recording contains."""
    start_s, day = entry["begun_s"], entry["date"]
    start_parts = [f"on {day}"] if day else []
    start_parts += [] if start_s is None else [f"at {_format_clock(start_s % _DAY_S)}"]
    start_text = f", begins {' '.join(start_parts)}" if start_parts else ""
    duration_text = (
        f"lasts {_format_clock(entry['seconds'])} ({entry['seconds']:.10g} s)"
    )
    lines = [
        f"{printable(entry['path'])}: {entry['format']}{start_text}, {duration_text}"
    ]
    for group in entry["groups"]:
        lines += _group_lines(out, group)
    lines += [f"  warning: {text}" for text in entry["warnings"]]
    for item in entry["left_out"]:
        name = abbreviate(item["channel"], _MAX_NAME_LENGTH)
        lines.append(f"  skipped channel {name!r}: {item['reason']}")
    texts = entry["annotations"]
    count = sum(item["count"] for item in texts)
    texts_count = f" with {format_count(len(texts), 'different text')}" if texts else ""
    lines.append(
        "  "
        + (format_count(count, "annotation") if count else "no annotations")
        + texts_count
    )
    print_lines(out, *lines)
    if texts:
        _print_annotation_texts(out, texts)


def _group_lines(out: Console, group: RecordEntry) -> Iterator[str]:
    """Yield the lines of one sampling rate: its channels by unit."""
    channels = group["channels"]
    yield (
        f"  {format_count(len(channels), 'channel')} at {group['fs']:.10g} Hz, "
        f"{group['n_samples']:,} samples each, read as {group['samples']}"
    )
    by_unit: dict[str, list[str]] = {}
    for channel in channels:
        by_unit.setdefault(channel["unit"], []).append(channel["name"])
    for unit, names in by_unit.items():
        max_names = _MAX_NAMES if out.is_terminal else len(names)
        shown_names = ", ".join(
            abbreviate(name, _MAX_NAME_LENGTH) for name in names[:max_names]
        )
        rest_text = (
            f", … and {len(names) - max_names} more" if len(names) > max_names else ""
        )
        unit_text = (
            f"in {printable(unit).replace('uV', 'µV')}" if unit else "without a unit"
        )
        line = f"    {unit_text}: {shown_names}{rest_text}"
        if out.is_terminal:
            yield from wrap(line, out.width, subsequent_indent=" " * 6)
        else:
            yield line


def _print_annotation_texts(out: Console, texts: Sequence[RecordEntry]) -> None:
    """Print a table of the annotation texts, shortened on a terminal."""
    shown = texts[:_MAX_TEXTS] if out.is_terminal else texts
    rows = [
        (
            abbreviate(entry["text"], _MAX_NAME_LENGTH)
            if out.is_terminal
            else entry["text"],
            str(entry["count"]),
            f"{entry['first_s']:.10g}",
            f"{entry['last_s']:.10g}",
            _format_duration_range(entry["least_duration_s"], entry["most_duration_s"]),
        )
        for entry in shown
    ]
    heads = ("annotation", "count", "first (s)", "last (s)", "duration (s)")
    print_table(out, heads, rows, right_aligned=heads[1:], no_wrap=heads)
    if len(shown) < len(texts):
        hidden_count = format_count(len(texts) - len(shown), "more text")
        print_lines(
            out,
            f"  … and {hidden_count}; use --json or a pipe (| cat) to see all",
        )


def _format_duration_range(shortest: float, longest: float) -> str:
    """Format the shortest and the longest duration; a dash for events without one."""
    if longest == 0:
        return "–"
    return f"{shortest:g}" if shortest == longest else f"{shortest:g} to {longest:g}"


def _format_clock(seconds: float) -> str:
    """Format seconds as `7:58:20`, with the fraction of a second if there is one."""
    whole_seconds, ms = divmod(round(1000 * seconds), 1000)
    fraction = f".{ms:03}".rstrip("0").rstrip(".")
    minutes, seconds = divmod(whole_seconds, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}{fraction}"
