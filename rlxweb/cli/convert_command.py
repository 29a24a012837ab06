"""`rlxweb convert FILE…`: write recordings as files of another format.

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

from rlxweb.batch.recording_conversion import (
    ConversionJob,
    ConversionResult,
    output_exists_error,
)
from rlxweb.batch.run_record_entries import path_text, timing_entry
from rlxweb.cli import options
from rlxweb.cli.batch import BatchResult, make_file_runner, run_files
from rlxweb.cli.console import format_count, make_console, print_lines
from rlxweb.cli.json_documents import json_run_document
from rlxweb.cli.output_files import check_output_paths, uses_stdout, write_results
from rlxweb.cli.remote_storage_option import STORAGE_OPTION
from rlxweb.cli.resumable_results import ResultRetention, list_names
from rlxweb.core.errors import UsageError
from rlxweb.core.function_options import options_of
from rlxweb.core.message_text import printable
from rlxweb.core.output_streams import is_stream
from rlxweb.io import open_recording, write_json
from rlxweb.io.formats import WRITERS
from rlxweb.io.recording_writer import Written, check_format_options, choose_format
from rlxweb.io.url_parsing_and_redaction import is_url, url_file_name
from rlxweb.io.write_job import WrittenChannel

SCHEMA = "rlxweb.convert/1"
_TARGETS_PER_CHECK = 100
_MAX_SHOWN = 32
"""Largest number of recordings for which each file gets a line."""


@click.command(name="convert")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.choice_option(
    "--to", tuple(WRITERS), "Output format; default: from the file name of --output."
)
@click.option(
    "--output",
    "-o",
    "output_path",
    metavar="OUT",
    callback=options.check_local_path,
    help="Output file or existing folder; default: the current folder; - is stdout.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace existing output files. A file given with -o is replaced in any case.",
)
@options.value_option(
    "--bits",
    int,
    "Bits per sample: "
    + "; ".join(
        f"{kind.upper()} {', '.join(map(str, own.bits))}"
        for kind, own in WRITERS.items()
        if len(own.bits) > 1
    )
    + ". The first is the default; 32 and 64 mean float.",
)
@options.value_option(
    "--full-scale",
    float,
    "Sample value that is stored as the largest integer; default: 1 in WAV and FLAC, "
    "from the range of each channel in EDF and BDF.",
)
@options.declared_options(open_recording)
@STORAGE_OPTION
@options.JOBS
@options.output_file_option("json", "Write the run record as JSON; - is stdout.")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
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
    **option_values: Any,
) -> None:
    """Convert recordings to EDF+, BDF+, NPZ, WAV, FLAC or Parquet files.

    Files are read and written in blocks and may be larger than memory. The output
    contains the samples after all selection and filter options were applied. Only edf
    and bdf files support several sampling rates; in the other formats, one file per
    rate is written, with the rate in its name. Omitted parts of the recording and the
    rounding error are reported.

    Example  rlxweb convert 'nights/*.bdf' --to parquet -o tables/ --jobs 4
    """
    file_format = _output_format(to, output_path)
    check_format_options(file_format, bits, full_scale, f"--to {file_format}")
    access = option_values["storage"]
    settings = {"to": file_format, "bits": bits, "full_scale": full_scale} | {
        name: None if option_values[name] == () else option_values[name]
        for name in options_of(open_recording)
    }
    reading = options.pop_open_arguments(option_values)
    err = make_console(stderr=True)
    conversions: list[ConversionJob] = []

    def prepare_outputs(recordings: Sequence[str]) -> ResultRetention:
        targets = _target_paths(
            recordings, file_format, output_path, json_path, overwrite
        )
        overwrite_options = _is_file_name(output_path), overwrite
        record_paths = () if json_path is None else (json_path,)
        conversion = ConversionJob(
            file_format,
            targets,
            *overwrite_options,
            reading,
            bits,
            full_scale,
            record_paths,
        )
        conversions.append(conversion)
        conversion.check_outputs()
        return ResultRetention()

    def runner(recordings: Sequence[str], progress: Any) -> Any:
        return make_file_runner(conversions[0], jobs)(recordings, progress)

    outputs = [path for path in (output_path, json_path) if path is not None]
    batch: BatchResult[ConversionResult] = run_files(
        files,
        access,
        runner,
        err,
        outputs=outputs,
        keep_going=keep_going,
        prepare_outputs=prepare_outputs,
    )
    if json_path is not None:
        write_results([(json_path, lambda f: _write_record(f, batch, settings))])
    if not quiet:
        _print_result(err if uses_stdout(outputs) else make_console(), err, batch)
    click.get_current_context().exit(batch.exit_code)


# --- which files ----------------------------------------------------------------------


def _output_format(to: str | None, output: str | None) -> str:
    """Return the output format. Raises UsageError for none, or for an output name of
    another format.
    """
    if not _is_file_name(output) or (output and to and is_stream(output)):
        if to is None:
            raise UsageError(
                "rlxweb convert",
                "the output format is missing",
                f"supported: {', '.join(WRITERS)}",
                "add --to, or -o with a file name",
            )
        return choose_format("", to, "--to")
    assert output is not None
    named_format = choose_format(output, None, f"-o {output!r}")
    if to is not None and to != named_format:
        problem = f"the file name of -o {output!r} means format {named_format}"
        hint = "omit --to, or change the file name"
        raise UsageError(f"--to {to}", problem, hint=hint)
    return named_format


def _is_file_name(output: str | None) -> bool:
    """Return whether the output names a file, not a folder."""
    if output is None or output.endswith(("/", os.sep)):
        return False
    return not os.path.isdir(output)


def _target_paths(
    files: Sequence[str],
    file_format: str,
    output: str | None,
    json: str | None,
    overwrite: bool,
) -> dict[str, str]:
    """Return the output file of each recording.

    Errors   UsageError for two in one file, for one over a recording, and for one that
             is there and was not named; RecordingError where nothing can be written
    """
    if _is_file_name(output):
        assert output is not None
        if len(files) > 1:
            raise UsageError(
                f"-o {output!r}",
                f"one output file was given for {len(files)} recordings",
                hint="pass an existing folder instead",
            )
        target_by_file = dict.fromkeys(files, output)
    else:
        names = _file_names(files, file_format)
        target_by_file = {
            file: os.path.join(output or "", name)
            for file, name in zip(files, names, strict=True)
        }
    is_named = overwrite or _is_file_name(output)
    for file, target in target_by_file.items():
        if os.path.lexists(target) and not is_named:
            check_output_paths(files, [("--output", target)])  # is it one of them?
            raise output_exists_error(f"converting {file!r}", target)
    all_targets = [("--output", target) for target in target_by_file.values()]
    # A thousand need not be open at once.
    for start in range(0, len(all_targets), _TARGETS_PER_CHECK):
        check_output_paths(
            files, [("--json", json), *all_targets[start : start + _TARGETS_PER_CHECK]]
        )
    return target_by_file


def _file_names(files: Sequence[str], file_format: str) -> list[str]:
    """Return an output name for each recording; names that would clash keep the old
    suffix.
    """
    names = [url_file_name(f) if is_url(f) else Path(f).name for f in files]
    stems = [Path(name).stem for name in names]
    if len({stem.casefold() for stem in stems}) != len(stems):
        stems = [name.replace(".", "-") for name in names]
    if len({stem.casefold() for stem in stems}) != len(stems):
        raise UsageError(
            "rlxweb convert",
            "two recordings have the same name, so their output files would overwrite "
            "each other",
            hint="convert them one folder at a time",
        )
    return [f"{stem}.{file_format}" for stem in stems]


# --- what is told ---------------------------------------------------------------------


def _write_record(
    file: IO[bytes], batch: BatchResult[ConversionResult], settings: dict[str, Any]
) -> None:
    """Write the run record as JSON."""
    files = [
        {
            "path": path_text(result.path),
            "format": result.format,
            "left_out": [
                {"channel": n, "reason": reason} for n, reason in result.left_out
            ],
            "warnings": list(result.warnings),
            "written": [
                {**written.as_json(), "path": path_text(written.path)}
                for written in result.written_files
            ],
            **timing_entry(result.wall_s, result.stages),
        }
        for result in batch.results
    ]
    record = json_run_document(SCHEMA, settings, files, batch.failures, batch.wall_s)
    write_json(file, record)


def _print_result(
    out: Console, err: Console, batch: BatchResult[ConversionResult]
) -> None:
    """Print a line for each file, and on stderr what the formats could not hold."""
    if len(batch.results) <= _MAX_SHOWN:
        for result in batch.results:
            for written in result.written_files:
                print_lines(
                    out, f"{printable(written.path)}: {_written_summary(written)}"
                )
    else:
        count = sum(len(result.written_files) for result in batch.results)
        print_lines(
            out,
            f"{format_count(count, 'file')} from "
            f"{format_count(len(batch.results), 'recording')}",
        )
    paths_by_loss: dict[str, list[str]] = {}
    for result in batch.results:
        for written in result.written_files:
            for loss in written.lost:
                paths_by_loss.setdefault(loss, []).append(written.path)
    for loss, paths in paths_by_loss.items():
        print_lines(err, f"{list_names(paths)}: {loss}", style="dim")


def _written_summary(written: Written) -> str:
    """Describe a written file: channels, duration, annotations and exactness."""
    parts = [
        f"{format_count(len(group.channels), 'channel')} at {group.fs:g} Hz, "
        f"{group.n_samples / group.fs:.6g} s"
        for group in written.groups
    ]
    if written.annotations:
        parts.append(format_count(written.annotations, "annotation"))
    channels = [channel for group in written.groups for channel in group.channels]
    return f"{'; '.join(parts)}, {_error_summary(channels)}"


def _error_summary(channels: Sequence[WrittenChannel]) -> str:
    """Describe the largest rounding error of the channels."""
    worst = max(channels, key=lambda channel: channel.error)
    if not worst.error:
        return "exact"
    unit = f" {worst.unit.replace('uV', 'µV')}" if worst.unit else ""
    location = (
        f" (largest in channel {printable(worst.name)})" if len(channels) > 1 else ""
    )
    return f"rounding error up to {worst.error:.2g}{unit}{location}"
