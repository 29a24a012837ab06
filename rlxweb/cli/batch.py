"""Process the recordings of one run, by any runner, and collect each outcome.

Owns what is told about each file on the way, the order of the results, and that with
`keep_going` a bad file costs itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from rich.console import Console

from rlxweb.batch.cluster.device_usage_counts import DeviceShare
from rlxweb.batch.file_job_protocol import (
    FileJob,
    FileRunner,
    RunProgress,
    run_sequentially,
)
from rlxweb.batch.recording_analysis import AnalysisJob
from rlxweb.batch.results import Failure, FileOutcome, FileResult
from rlxweb.batch.resumable_run import ResumableRun
from rlxweb.batch.run_record_entries import RecordEntry, file_entry
from rlxweb.batch.settings import Settings
from rlxweb.cli.console import format_count, print_lines
from rlxweb.cli.error_messages import format_error
from rlxweb.cli.recording_paths import resolve_recordings
from rlxweb.cli.recording_progress import RecordingProgress
from rlxweb.cli.resumable_results import ResultRetention, list_names
from rlxweb.core.errors import DeviceLost, NotFinite, RecordingError, RlxError
from rlxweb.io.storage_options import StorageAccess

_KEEP_GOING_HINT = "add --keep-going to process the other recordings"

R = TypeVar("R", bound=FileOutcome)
FileRunnerFactory = Callable[
    [Sequence[str], RunProgress], Iterable[tuple[str, R | RlxError]]
]
"""Function that processes files in any order and yields the outcome of each."""


@dataclass(frozen=True, slots=True)
class BatchResult(Generic[R]):
    """Results and failures of a run over files.

    files     the recordings that were meant, done or failed
    results   in their order, those that are held
    failures  with what stands for no recording at all
    wall_s    until the last of them was done, in seconds
    """

    files: list[str]
    results: list[R]
    failures: list[Failure]
    wall_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 1 if a recording failed, else 0."""
        return 1 if self.failures else 0


@dataclass(frozen=True, slots=True)
class AnalysisBatchResult:
    """Results and failures of a run that analysed recordings.

    files       the recordings that were meant, done or failed
    results     those that are held, of the recordings that were done
    failures    with what stands for no recording at all
    journal     where the results are noted that need not be held
    worker_decisions  what the workers of a cluster ran on which device
    wall_s      until the last recording was done, in seconds
    """

    settings: Settings
    files: list[str] = field(default_factory=list)
    results: list[FileResult] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    journal: ResumableRun | None = None
    worker_decisions: list[DeviceShare] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 1 if a recording failed, else 0."""
        return 1 if self.failures else 0

    @property
    def n_successful(self) -> int:
        """Number of recordings done, here or in an earlier run."""
        return len(set(self.files) - {failure.path for failure in self.failures})

    def entries(self) -> Iterator[tuple[str, RecordEntry | None]]:
        """Yield each file with its stored entry, in order; None for a file that
        failed.
        """
        failed_paths = {failure.path for failure in self.failures}
        results_by_path = {result.path: result for result in self.results}
        for file in self.files:
            if file in failed_paths:
                yield file, None
            elif self.journal is not None:
                yield file, self.journal.read_entry(file)
            else:
                yield file, file_entry(results_by_path[file])


def analyze_recordings(
    names: Sequence[str],
    settings: Settings,
    err: Console,
    *,
    outputs: Sequence[str] = (),
    keep_going: bool = False,
    prepare_outputs: Callable[[Sequence[str]], ResultRetention] = lambda files: (
        ResultRetention()
    ),
    spread: FileRunner | None = None,
    progress_note: Callable[[], str] = str,
    jobs: int = 1,
) -> AnalysisBatchResult:
    """Analyse every recording that the names stand for.

    outputs     paths of results, which are no recordings
    keep_going  what is wrong with one is told, kept, and the next one is done; a device
                that is lost ends the run all the same
    prepare_outputs  is handed the files before the first is opened, to refuse them or
                     to say what becomes of their results
    spread      does the files, in any order; None is here, one after another
    progress_note  what else the bar says: who is at work
    jobs        processes of this machine that do them, where `spread` is None
    Errors      those of `resolve_recordings`, `prepare_outputs`, `open_recording` and
                `analyse`.
    """
    runner: FileRunnerFactory[FileResult] = make_file_runner(
        AnalysisJob(settings), jobs
    )
    if spread is not None:

        def runner(files: Sequence[str], _: RunProgress) -> Iterable[tuple[str, Any]]:
            return spread(files, settings)

    retentions: list[ResultRetention] = []

    def keep_retention(files: Sequence[str]) -> ResultRetention:
        retentions.append(prepare_outputs(files))
        return retentions[0]

    batch = run_files(
        names,
        settings.storage,
        runner,
        err,
        outputs=outputs,
        keep_going=keep_going,
        prepare_outputs=keep_retention,
        progress_note=progress_note,
    )
    return AnalysisBatchResult(
        settings,
        batch.files,
        batch.results,
        batch.failures,
        retentions[0].journal,
        wall_s=batch.wall_s,
    )


def make_file_runner(job: FileJob[R], jobs: int) -> FileRunnerFactory[R]:
    """Return a runner that processes files one after another here, or in `jobs`
    processes.
    """
    if jobs == 1:
        return partial(run_sequentially, job)
    from rlxweb.cli.process_pool import ProcessPool

    return ProcessPool(job, jobs).process_files


def run_files(
    names: Sequence[str],
    access: StorageAccess,
    runner: FileRunnerFactory[R],
    err: Console,
    *,
    outputs: Sequence[str] = (),
    keep_going: bool = False,
    prepare_outputs: Callable[[Sequence[str]], ResultRetention] = lambda files: (
        ResultRetention()
    ),
    progress_note: Callable[[], str] = str,
) -> BatchResult[R]:
    """Process every recording that the names stand for; parameters as in
    `analyze_recordings`.
    """
    started = perf_counter()
    files: list[str] = []
    failures: list[Failure] = []

    def handle_failure(name: str, error: RlxError) -> None:
        if not keep_going or isinstance(error, DeviceLost):
            has_several = max(len(names), len(files)) > 1
            if has_several and isinstance(error, RecordingError | NotFinite):
                hint = getattr(error.hint, "as_flags", error.hint)
                error.hint = "; ".join(filter(None, (hint, _KEEP_GOING_HINT)))
            raise error
        failure = Failure(name, "; ".join(format_error(error).split("\n")))
        print_lines(err, f"rlxweb: {failure.error}")
        failures.append(failure)

    notify = partial(print_lines, err, style="dim")
    files.extend(resolve_recordings(names, outputs, notify, handle_failure, access))
    retention = prepare_outputs(files)
    results: list[R] = []
    skipped_channels = SkippedChannels()
    remaining = retention.remaining_files(files, notify)
    with (
        RecordingProgress(err, len(remaining), progress_note) as meter,
        ExitStack() as stack,
    ):
        outcomes = runner(remaining, meter.add_samples)
        # Whoever is at work elsewhere is told at once that a run has ended early.
        stack.callback(getattr(outcomes, "close", bool))
        for file, outcome in outcomes:
            meter.mark_finished(file)
            if isinstance(outcome, RlxError):
                handle_failure(file, outcome)
                continue
            skipped_channels.add(outcome)
            retention.store(outcome)
            if retention.keeps_in_memory:
                results.append(outcome)
    skipped_channels.report(err, len(files))
    batch = BatchResult(files, results, failures, perf_counter() - started)
    _sort_by_input_order(batch)
    _report_failures(err, batch)
    return batch


def _sort_by_input_order(batch: BatchResult[R]) -> None:
    """Sort results and failures into the order in which the files were named."""
    position = {file: index for index, file in enumerate(batch.files)}
    batch.results.sort(key=lambda result: position[result.path])
    # What stands for no recording has no place among them and comes first.
    batch.failures.sort(key=lambda failure: position.get(failure.path, -1))


def _report_failures(err: Console, batch: BatchResult[R]) -> None:
    """Print how many recordings failed, and which."""
    if batch.failures:
        paths = [failure.path for failure in batch.failures]
        n_recordings = len({*paths, *batch.files})
        summary = f"{len(paths)} of {format_count(n_recordings, 'recording')}"
        print_lines(err, f"rlxweb: {summary} failed: {list_names(paths)}")


class SkippedChannels:
    """Channels that were left out, reported once per reason and set of names, not per
    file.
    """

    def __init__(self) -> None:
        self._files_by_reason: dict[tuple[str, tuple[str, ...]], list[str]] = {}

    def add(self, result: FileOutcome) -> None:
        """Add the channels that were left out of a file."""
        reasons: dict[str, list[str]] = {}
        for name, reason in result.left_out:
            reasons.setdefault(reason, []).append(name)
        for reason, skipped_names in reasons.items():
            self._files_by_reason.setdefault((reason, tuple(skipped_names)), []).append(
                result.path
            )

    def report(self, err: Console, n_files: int) -> None:
        """Print one line for each reason and set of channels."""
        for (reason, names), paths in self._files_by_reason.items():
            noun = "channel" if len(names) == 1 else "channels"
            files_text = f" in {list_names(sorted(paths))}" if n_files > 1 else ""
            print_lines(
                err,
                f"skipped {noun} {list_names(names)}{files_text}: {reason}",
                style="dim",
            )
