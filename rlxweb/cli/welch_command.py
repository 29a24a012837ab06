"""`rlxweb welch FILE…`: compute spectra and peaks of recordings.

Owns the options and the order of things: look at the outputs and the device, read and
average, write the files, print. Standard output comes last, so a reader that leaves
loses no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import click
from rich.console import Console

from rlxweb.batch.file_job_protocol import FileRunner
from rlxweb.batch.recording_analysis import check_device
from rlxweb.batch.resumable_run import ResumableRun
from rlxweb.batch.settings import Settings
from rlxweb.cli import options
from rlxweb.cli.batch import AnalysisBatchResult, analyze_recordings
from rlxweb.cli.cluster_runner import (
    DASK_OPTION,
    WORKERS_OPTION,
    ClusterRunner,
    make_cluster_runner,
)
from rlxweb.cli.console import format_count, make_console, print_lines
from rlxweb.cli.epochs_options import EPOCH_OPTIONS, pop_epoching
from rlxweb.cli.explain_command import print_decision
from rlxweb.cli.json_documents import library_versions, rlxweb_version
from rlxweb.cli.output_files import uses_stdout, write_results
from rlxweb.cli.peaks_text_table import print_peaks
from rlxweb.cli.plot_options import (
    AXIS_OPTION,
    DARK_OPTION,
    LINES_OPTION,
    pop_plot_style,
)
from rlxweb.cli.remote_storage_option import STORAGE_OPTION
from rlxweb.cli.resumable_results import ResultRetention, resume_hint
from rlxweb.cli.welch_output_options import WelchOutputOptions
from rlxweb.core.message_text import printable
from rlxweb.core.output_streams import STDOUT, discard_output
from rlxweb.io import open_recording
from rlxweb.io.recording_state_fingerprint import state_fingerprint
from rlxweb.signal.welch_peaks import welch_peaks


@click.command(name="welch")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@options.declared_options(welch_peaks, without=options.COMPUTE_NAMES)
@options.declared_options(open_recording)
@EPOCH_OPTIONS
@STORAGE_OPTION
@options.declared_options(welch_peaks, *options.COMPUTE_NAMES)
@options.output_file_option("out", "Write the peaks as one Parquet file (.parquet).")
@options.output_file_option("csv", "Write the peaks as CSV; - is stdout.")
@options.output_file_option("npz", "Write spectra and peaks as NPZ; - is stdout.")
@options.output_file_option("json", "Write the run record as JSON; - is stdout.")
@options.output_file_option(
    "plot", "Draw spectra with their peaks, or a heatmap (.png, .svg, .pdf, .html)."
)
@AXIS_OPTION
@LINES_OPTION
@DARK_OPTION
@click.option("--explain", is_flag=True, help="Show where the job ran and why.")
@click.option("--quiet", "-q", is_flag=True, help="Do not print the table.")
@click.option(
    "--keep-going",
    is_flag=True,
    help="Continue with the other files after an error; the exit code is then 1.",
)
@click.option(
    "--resume/--no-resume",
    default=None,
    help="Continue an unfinished run with the same output, or start over.",
)
@options.JOBS
@DASK_OPTION
@WORKERS_OPTION
def command(files: tuple[str, ...], **option_values: Any) -> None:
    """Compute Welch spectra and their strongest peaks for each channel of recordings.

    Reads EDF, BDF, FIF, BrainVision, WAV, FLAC, NPZ, CSV, Zarr, Parquet, NWB and more
    in blocks, so files may be larger than memory. FILE may also be a folder, a pattern
    ('night*/**/*.edf') or a URL (s3://bucket/night/, https://…/a.edf). Either all
    outputs are written or none. With --out, a journal file next to the
    output records the finished recordings; --resume continues an interrupted run.
    """
    paths = {
        n: option_values.pop(f"{n}_path") for n in ("out", "csv", "npz", "json", "plot")
    }
    flags = {
        n: option_values.pop(n) for n in ("explain", "quiet", "keep_going", "resume")
    }
    err = make_console(stderr=True)
    jobs = option_values.pop("jobs")
    cluster = make_cluster_runner(
        err, option_values.pop("scheduler"), option_values.pop("workers"), jobs
    )
    # One of a thousand on a cluster does not cost the rest.
    flags["keep_going"] |= cluster is not None
    style = pop_plot_style(option_values)
    all_peaks = option_values["k"] is not None
    output_options = WelchOutputOptions(
        **paths, **flags, jobs=jobs, all_peaks=all_peaks, style=style
    )
    option_values["epochs"] = pop_epoching(option_values)
    batch = run_welch_job(
        files, Settings(**option_values), output_options, cluster, err
    )
    click.get_current_context().exit(batch.exit_code)


def run_welch_job(
    names: Sequence[str],
    settings: Settings,
    output_options: WelchOutputOptions,
    distribute: FileRunner | None = None,
    err: Console | None = None,
) -> AnalysisBatchResult:
    """Analyse the recordings, save the outputs and print the results, for `welch` and
    `demo`.

    distribute  does the files; None is here, one after another
    err      where is told what happens; None is standard error
    """
    err = err or make_console(stderr=True)
    cluster = distribute if isinstance(distribute, ClusterRunner) else None
    outputs = [path for path in output_options.paths if path is not None]
    settings = settings.with_changes(spectra=output_options.needs_spectra)
    with ExitStack() as stack:

        def begin(files: Sequence[str]) -> ResultRetention:
            output_options.check(files)
            if cluster is None:
                check_device(settings)
            else:
                cluster.check(settings)
            journal = None
            if output_options.journaled_output is not None:
                journal = ResumableRun(
                    output_options.journaled_output,
                    run_provenance(settings),
                    output_options.resume,
                    partial(state_fingerprint, access=settings.storage),
                )
                stack.enter_context(journal)
                stack.push(partial(_report_unfinished, err, journal, len(files)))
            return ResultRetention(
                journal, output_options.needs_all_results(len(files))
            )

        batch = analyze_recordings(
            names,
            settings,
            err,
            outputs=outputs,
            keep_going=output_options.keep_going,
            prepare_outputs=begin,
            spread=distribute,
            progress_note=str if cluster is None else cluster.__str__,
            jobs=output_options.jobs,
        )
        if cluster is not None:
            batch.worker_decisions.extend(cluster.tally.shares())
        _write_outputs(err, batch, output_options)
    # The table would stand between the lines of what goes to standard output.
    console = err if uses_stdout(outputs) else make_console()
    try:
        _print_results(console, batch, output_options)
    except BrokenPipeError:
        # The reader has left (`| head`); that a recording failed is told all the same.
        discard_output(STDOUT)
    return batch


def run_provenance(settings: Settings) -> dict[str, Any]:
    """Return everything but the file that determines its results: versions and
    settings.
    """
    software_versions = {"rlxweb": rlxweb_version(), **library_versions()}
    return {"versions": software_versions, "settings": settings.as_json()}


def _write_outputs(
    err: Console, batch: AnalysisBatchResult, output_options: WelchOutputOptions
) -> None:
    write_results(output_options.writers(batch))
    for _, picture in output_options.result_pictures(batch):
        print_lines(err, f"picture: {picture}")
    for share in () if output_options.quiet else batch.worker_decisions:
        print_lines(err, str(share), style="dim")
    if output_options.out is not None:
        good_prefix = f"{batch.n_successful} of " if batch.failures else ""
        count_text = format_count(len(batch.files), "recording")
        print_lines(err, f"{output_options.out}: {good_prefix}{count_text}")
    if batch.journal is None:
        return
    if not batch.failures:
        batch.journal.discard_journal()
    elif len(batch.journal):
        print_lines(
            err,
            "the other results are saved; --resume retries only the failed recordings",
        )


def _report_unfinished(
    err: Console,
    journal: ResumableRun,
    n_files: int,
    error_type: object,
    *exit_details: object,
) -> None:
    if error_type is not None and len(journal):
        print_lines(err, f"rlxweb: {resume_hint(journal, n_files)}")


def _print_results(
    console: Console, batch: AnalysisBatchResult, output_options: WelchOutputOptions
) -> None:
    n_files = len(batch.files)
    if output_options.shows_table(n_files):
        print_peaks(console, batch.results, output_options.all_peaks)
    if output_options.explain:
        _print_decisions(console, batch)


def _print_decisions(console: Console, batch: AnalysisBatchResult) -> None:
    for result in batch.results:
        for group in result.groups:
            engine_text = f"{group.engine} in {group.dtype}"
            title = f"{printable(result.path)} at {group.fs:g} Hz ran on {engine_text}"
            print_decision(console, group.decision, title)
