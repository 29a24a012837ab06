"""Options `--dask` and `--workers`: workers of a cluster process the recordings of a
run.

Dask is loaded here, when one of the two is given; where it is missing the error says
what brings it. Owns what is told about the workers.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import click
from rich.console import Console

from rlxweb.batch.cluster.device_usage_counts import DeviceTally
from rlxweb.batch.file_job_protocol import AnalysisOutcome, analyse_sequentially
from rlxweb.batch.results import FileResult
from rlxweb.batch.settings import Settings
from rlxweb.cli.console import format_count, print_lines
from rlxweb.core.errors import RecordingWarning, UsageError
from rlxweb.io.url_parsing_and_redaction import is_url

INSTALL_COMMAND = 'pip install "rlxweb[dask]"'

DASK_OPTION = click.option(
    "--dask",
    "scheduler",
    metavar="ADDRESS",
    help="Process the recordings on the workers of a Dask scheduler (tcp://host:8786); "
    "implies --keep-going.",
)
WORKERS_OPTION = click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Process the recordings on N local Dask workers (--jobs works without Dask).",
)


@dataclass(slots=True)
class ClusterRunner:
    """Runner that has the workers of a Dask cluster process the recordings.

    scheduler  an address; None: `workers` processes of this machine
    n_connected  workers that are at work
    tally      what they decided
    """

    err: Console
    scheduler: str | None
    workers: int | None
    n_connected: int = 0
    tally: DeviceTally = field(default_factory=DeviceTally)

    def __call__(
        self, files: Sequence[str], settings: Settings
    ) -> Iterator[tuple[str, AnalysisOutcome]]:
        """Yield every file with its outcome, in any order."""
        missing = self._missing_files(files)
        yield from analyse_sequentially(
            [file for file in files if file in missing], settings
        )
        existing = [file for file in files if file not in missing]
        if not existing:
            return
        from rlxweb.batch.cluster.recordings import spread

        notify = partial(print_lines, self.err, style="dim")
        with ExitStack() as stack:
            client = stack.enter_context(self._connect(notify, len(existing)))
            outcomes = spread(
                existing, settings, client, notify, on_worker_count=self._set_connected
            )
            # What is under way is taken back while there is somebody to tell.
            stack.callback(outcomes.close)
            for file, outcome in outcomes:
                if isinstance(outcome, FileResult):
                    self._record_outcome(outcome)
                yield file, outcome

    def check(self, settings: Settings) -> None:
        """Raise UnknownDevice for a device that no worker can know, before a worker is
        asked.

        Errors   UnknownDevice
        """
        _ = settings.requested_device

    def _missing_files(self, files: Sequence[str]) -> set[str]:
        """Return the local files that do not exist; a remote scheduler's files are not
        checked.
        """
        if self.scheduler is not None:
            return set()
        return {f for f in files if not is_url(f) and not os.path.lexists(f)}

    def _record_outcome(self, result: FileResult) -> None:
        """Repeat a worker's warnings here and count its device decisions."""
        # What a worker itself warns of is heard by nobody.
        for text in result.warnings:
            warning = RecordingWarning(f"reading {result.path!r}", text)
            warnings.warn(warning, stacklevel=1)
        for group in result.groups:
            self.tally.add(group.device, group.decision)

    def __str__(self) -> str:
        return (
            format_count(self.n_connected, "worker")
            if self.n_connected
            else "no workers yet"
        )

    def _connect(
        self, notify: Callable[[str], object], n_files: int
    ) -> AbstractContextManager[Any]:
        """Connect to the scheduler, or start local workers."""
        from rlxweb.batch.cluster.cluster_clients import connect_to_scheduler, local

        if self.scheduler is not None:
            return connect_to_scheduler(self.scheduler, notify)
        assert self.workers is not None
        return local(min(self.workers, n_files))

    def _set_connected(self, n_workers: int) -> None:
        """Remember the number of connected workers."""
        self.n_connected = n_workers


def make_cluster_runner(
    err: Console, scheduler: str | None, workers: int | None, jobs: int = 1
) -> ClusterRunner | None:
    """Return the cluster runner that the options ask for; None if they name no cluster.

    Errors   UsageError for two answers, and where Dask is not installed.
    """
    if jobs != 1 and (scheduler or workers):
        raise UsageError(
            f"--jobs and --{'workers' if workers else 'dask'}",
            "the options cannot be combined",
            "--jobs starts processes without Dask, --workers starts a local Dask "
            "cluster, --dask uses an existing scheduler",
            "use only one of the options",
        )
    if scheduler is None and workers is None:
        return None
    if scheduler is not None and workers is not None:
        raise UsageError(
            "--dask and --workers",
            "a run uses only one cluster",
            hint="use --dask for an existing scheduler, or --workers for local "
            "processes",
        )
    try:
        import rlxweb.batch.cluster.recordings  # noqa: F401  # it brings Dask
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "rlxweb":
            raise
        option = "--workers" if scheduler is None else "--dask"
        raise UsageError(
            option,
            f"{error.name} is not installed",
            hint=INSTALL_COMMAND,
        ) from error
    return ClusterRunner(err, scheduler, workers)
