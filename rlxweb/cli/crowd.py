"""`--dask` and `--workers`: workers of a cluster do the recordings of a run.

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

from rlxweb.cli.screen import counted, say
from rlxweb.dask.decided import Tally
from rlxweb.device import is_open, parse_device
from rlxweb.errors import RecordingWarning, UsageError
from rlxweb.io.urls import is_url
from rlxweb.jobs.results import FileResult
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import Outcome, one_by_one

EXTRA = 'pip install "rlxweb[dask]"'

DASK = click.option(
    "--dask",
    "scheduler",
    metavar="ADDRESS",
    help="Have the workers of a Dask scheduler do the recordings (tcp://host:8786); "
    "implies --keep-going.",
)
WORKERS = click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="The same with so many processes of this machine (--jobs needs no Dask).",
)


@dataclass(slots=True)
class Crowd:
    """Who does the recordings, where it is not this process alone.

    scheduler  an address; None: `workers` processes of this machine
    n_there    workers that are at work
    tally      what they decided
    """

    err: Console
    scheduler: str | None
    workers: int | None
    n_there: int = 0
    tally: Tally = field(default_factory=Tally)

    def __call__(
        self, files: Sequence[str], settings: Settings
    ) -> Iterator[tuple[str, Outcome]]:
        """Every file with what came of it, in any order."""
        gone = self._gone(files)
        yield from one_by_one([file for file in files if file in gone], settings)
        there = [file for file in files if file not in gone]
        if not there:
            return
        from rlxweb.dask.recordings import spread

        tell = partial(say, self.err, style="dim")
        with ExitStack() as stack:
            client = stack.enter_context(self._client(tell, len(there)))
            done = spread(there, settings, client, tell, watch=self._watch)
            # What is under way is taken back while there is somebody to tell.
            stack.callback(done.close)
            for file, outcome in done:
                if isinstance(outcome, FileResult):
                    self._note(outcome)
                yield file, outcome

    def check(self, settings: Settings) -> None:
        """Refuse a device that no worker can know, before any is asked.

        Errors   UnknownDevice
        """
        if not is_open(settings.device):
            parse_device(settings.device)

    def _gone(self, files: Sequence[str]) -> set[str]:
        """What is not on this machine, whose processes would look for it in vain."""
        if self.scheduler is not None:
            return set()
        return {f for f in files if not is_url(f) and not os.path.lexists(f)}

    def _note(self, result: FileResult) -> None:
        # What a worker itself warns of is heard by nobody.
        for text in result.warnings:
            said = RecordingWarning(f"reading {result.path!r}", text)
            warnings.warn(said, stacklevel=1)
        for group in result.groups:
            self.tally.note(group.device, group.decision)

    def __str__(self) -> str:
        return counted(self.n_there, "worker") if self.n_there else "no worker yet"

    def _client(
        self, tell: Callable[[str], object], n_files: int
    ) -> AbstractContextManager[Any]:
        from rlxweb.dask.connect import connected, local

        if self.scheduler is not None:
            return connected(self.scheduler, tell)
        assert self.workers is not None
        return local(min(self.workers, n_files))

    def _watch(self, n_workers: int) -> None:
        self.n_there = n_workers


def crowd(
    err: Console, scheduler: str | None, workers: int | None, jobs: int = 1
) -> Crowd | None:
    """Who does the recordings; None is this process, or `jobs` of its own.

    Errors   UsageError for two answers, and where Dask is not installed.
    """
    if jobs != 1 and (scheduler or workers):
        raise UsageError(
            f"--jobs and --{'workers' if workers else 'dask'}",
            "both say who does the recordings",
            "--jobs are processes without Dask, --workers a Dask cluster of this "
            "machine, --dask one that is there",
            "give one of them",
        )
    if scheduler is None and workers is None:
        return None
    if scheduler is not None and workers is not None:
        raise UsageError(
            "--dask and --workers",
            "a run has one cluster",
            hint="--dask for a scheduler that is there, --workers for processes here",
        )
    try:
        import rlxweb.dask.recordings  # noqa: F401  # it brings Dask
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "rlxweb":
            raise
        option = "--workers" if scheduler is None else "--dask"
        raise UsageError(
            option, f"{error.name} is not installed", hint=f"{EXTRA} brings it"
        ) from error
    return Crowd(err, scheduler, workers)
