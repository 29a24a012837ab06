"""`rlxweb convert FILE…`: recordings as files of another format.

Owns which file each recording goes into, looked at before the work begins, and what is
told of what was lost. Every file appears whole or not at all, when it is done.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.batch import Came, how_of, run_files
from rlxweb.cli.keeping import Keeping, listed
from rlxweb.cli.record import run_document
from rlxweb.cli.screen import counted, say, screen
from rlxweb.cli.storage import STORAGE
from rlxweb.cli.targets import check_targets, goes_to_stdout, write_all
from rlxweb.errors import UsageError
from rlxweb.io import write_json
from rlxweb.io.formats import WRITERS
from rlxweb.io.outgoing import WrittenChannel
from rlxweb.io.urls import file_name, is_url
from rlxweb.io.writing import Written, check_format, format_of
from rlxweb.jobs.conversion import Conversion, Converted, there_already
from rlxweb.jobs.entries import ran_entry, text_of
from rlxweb.jobs.settings import reading_of
from rlxweb.printable import printable
from rlxweb.streams import is_stream

SCHEMA = "rlxweb.convert/1"
_TOGETHER = 100
_SHOWN = 32
"""Of more recordings nobody reads a line each."""


@click.command(name="convert")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.one_of(
    "--to", tuple(WRITERS), "Format; default: that of the name given with --output."
)
@click.option(
    "--output",
    "-o",
    "output_path",
    metavar="OUT",
    callback=options.of_here,
    help="A file, or a folder that is there; default: the folder you are in. "
    "- is stdout.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace files that are there and were not named."
)
@options.valued(
    "--bits",
    int,
    "Of samples: "
    + "; ".join(
        f"{kind.upper()} {', '.join(map(str, own.bits))}"
        for kind, own in WRITERS.items()
        if len(own.bits) > 1
    )
    + ". The first is the default; 32 and 64 are floats.",
)
@options.valued(
    "--full-scale",
    float,
    "The value that the largest integer stands for, of WAV and FLAC [1], EDF and "
    "BDF [each channel's own range].",
)
@options.FS
@options.SAMPLES
@STORAGE
@options.JOBS
@options.file_path("json", "Write the run record; - is stdout.")
@click.option("--quiet", "-q", is_flag=True, help="Tell nothing but errors.")
@options.KEEP_GOING
def command(
    files: tuple[str, ...],
    to: str | None,
    output_path: str | None,
    json_path: str | None,
    overwrite: bool,
    bits: int | None,
    full_scale: float | None,
    jobs: int,
    quiet: bool,
    keep_going: bool,
    **asked: Any,
) -> None:
    """Recordings as EDF+, BDF+, NPZ, WAV, FLAC or Parquet files.

    Read and written in blocks, so files may be larger than memory. What the options
    take and make ready is what is written. A format that holds one rate (all but edf
    and bdf) gets a file for each, with the rate in its name. What a file does not hold
    of the recording is told, and how exact it is.

    Example  rlxweb convert 'nights/*.bdf' --to parquet -o tables/ --jobs 4
    """
    kind = _format(to, output_path)
    check_format(kind, bits, full_scale, f"--to {kind}")
    access = asked.pop("storage")
    reading = reading_of(asked, access)
    err = screen(stderr=True)
    made: list[Conversion] = []

    def begin(meant: Sequence[str]) -> Keeping:
        targets = _targets(meant, kind, output_path, json_path, overwrite)
        named = _is_file(output_path), overwrite
        records = () if json_path is None else (json_path,)
        one = Conversion(kind, targets, *named, reading, bits, full_scale, records)
        made.append(one)
        one.check()
        return Keeping()

    def how(to_do: Sequence[str], tell: Any) -> Any:
        return how_of(made[0], jobs)(to_do, tell)

    outputs = [path for path in (output_path, json_path) if path is not None]
    came: Came[Converted] = run_files(
        files, access, how, err, outputs=outputs, keep_going=keep_going, begin=begin
    )
    settings = {"to": kind, "bits": bits, "full_scale": full_scale, **reading}
    del settings["storage_options"]
    if json_path is not None:
        write_all([(json_path, lambda f: _put_json(f, came, settings))])
    if not quiet:
        _show(err if goes_to_stdout(outputs) else screen(), err, came)
    click.get_current_context().exit(came.exit_code)


# --- which files ----------------------------------------------------------------------


def _format(to: str | None, output: str | None) -> str:
    """Errors  UsageError for none, and for a name that says another one."""
    if not _is_file(output) or (output and to and is_stream(output)):
        if to is None:
            raise UsageError(
                "rlxweb convert",
                "no format is asked for",
                f"written are {', '.join(WRITERS)}",
                "give --to, or -o with the name of a file",
            )
        return format_of("", to, "--to")
    assert output is not None
    own = format_of(output, None, f"-o {output!r}")
    if to is not None and to != own:
        said = f"-o {output!r} is a name for {own}"
        raise UsageError(f"--to {to}", said, hint="leave one of them out")
    return own


def _is_file(output: str | None) -> bool:
    """Does it name a file, not a folder?"""
    if output is None or output.endswith(("/", os.sep)):
        return False
    return not os.path.isdir(output)


def _targets(
    files: Sequence[str],
    kind: str,
    output: str | None,
    json: str | None,
    overwrite: bool,
) -> dict[str, str]:
    """The file of each recording.

    Errors   UsageError for two in one file, for one over a recording, and for one that
             is there and was not named; RecordingError where nothing can be written
    """
    if _is_file(output):
        assert output is not None
        if len(files) > 1:
            raise UsageError(
                f"-o {output!r}",
                f"it names one file, and {len(files)} recordings are meant",
                hint="name a folder that is there",
            )
        found = dict.fromkeys(files, output)
    else:
        names = _names(files, kind)
        found = {
            file: os.path.join(output or "", name)
            for file, name in zip(files, names, strict=True)
        }
    is_named = overwrite or _is_file(output)
    for file, target in found.items():
        if os.path.lexists(target) and not is_named:
            check_targets(files, [("--output", target)])  # is it one of them?
            raise there_already(f"converting {file!r}", target)
    every = [("--output", target) for target in found.values()]
    # A thousand need not be open at once.
    for at in range(0, len(every), _TOGETHER):
        check_targets(files, [("--json", json), *every[at : at + _TOGETHER]])
    return found


def _names(files: Sequence[str], kind: str) -> list[str]:
    """A name for each: its own with another suffix, or with its old one before it."""
    every = [file_name(f) if is_url(f) else Path(f).name for f in files]
    stems = [Path(name).stem for name in every]
    if len({stem.casefold() for stem in stems}) != len(stems):
        stems = [name.replace(".", "-") for name in every]
    if len({stem.casefold() for stem in stems}) != len(stems):
        raise UsageError(
            "rlxweb convert",
            "two of the recordings share a name, so their files would too",
            hint="convert them one folder at a time",
        )
    return [f"{stem}.{kind}" for stem in stems]


# --- what is told ---------------------------------------------------------------------


def _put_json(file: IO[bytes], came: Came[Converted], settings: dict[str, Any]) -> None:
    files = [
        {
            "path": text_of(one.path),
            "format": one.format,
            "left_out": [{"channel": n, "reason": why} for n, why in one.left_out],
            "warnings": list(one.warnings),
            "written": [
                {**own.as_json(), "path": text_of(own.path)} for own in one.written
            ],
            **ran_entry(one.wall_s, one.stages),
        }
        for one in came.results
    ]
    record = run_document(SCHEMA, settings, files, came.failed, came.wall_s)
    write_json(file, record)


def _show(out: Console, err: Console, came: Came[Converted]) -> None:
    """A line for each file; what they do not hold on stderr, once for all alike."""
    if len(came.results) <= _SHOWN:
        for one in came.results:
            for own in one.written:
                say(out, f"{printable(own.path)}: {_told(own)}")
    else:
        count = sum(len(one.written) for one in came.results)
        say(
            out,
            f"{counted(count, 'file')} of {counted(len(came.results), 'recording')}",
        )
    lost: dict[str, list[str]] = {}
    for one in came.results:
        for own in one.written:
            for what in own.lost:
                lost.setdefault(what, []).append(own.path)
    for what, paths in lost.items():
        say(err, f"{listed(paths)}: {what}", style="dim")


def _told(own: Written) -> str:
    parts = [
        f"{counted(len(group.channels), 'channel')} at {group.fs:g} Hz, "
        f"{group.n_samples / group.fs:.6g} s"
        for group in own.groups
    ]
    if own.annotations:
        parts.append(counted(own.annotations, "annotation"))
    every = [channel for group in own.groups for channel in group.channels]
    return f"{'; '.join(parts)}, {_exactness(every)}"


def _exactness(channels: Sequence[WrittenChannel]) -> str:
    worst = max(channels, key=lambda one: one.error)
    if not worst.error:
        return "exact"
    unit = f" {worst.unit.replace('uV', 'µV')}" if worst.unit else ""
    where = f" (largest in {printable(worst.name)})" if len(channels) > 1 else ""
    return f"to ±{worst.error:.2g}{unit}{where}"
