"""Protocol of a job that is run on each file, with the runner that takes one file after
another.

A cluster is another way. What is done where does not matter to the results: a run puts
them back in the order of its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from rlxweb.batch.recording_analysis import AnalysisJob, FileProgress
from rlxweb.batch.results import FileResult
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import RlxError

AnalysisOutcome: TypeAlias = FileResult | RlxError
FileRunner: TypeAlias = Callable[
    [Sequence[str], Settings], Iterable[tuple[str, AnalysisOutcome]]
]
"""Function that analyses every file once and yields its outcome, in any order.

What it raises, or the end of whoever iterates, ends the run and what is under way.
"""
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
RunProgress: TypeAlias = Callable[[str, int, int], object]
"""Callback that receives a file, its number of samples, and how many were just done."""


class FileJob(Protocol[T_co]):
    """Job that is run on each file of a run; it can be pickled, so any process can run
    it.
    """

    def __call__(self, path: str, progress: FileProgress | None = None) -> T_co:
        """Return the result for the file. Errors  RlxError"""
        ...


def run_sequentially(
    job: FileJob[T], files: Sequence[str], progress: RunProgress | None = None
) -> Iterator[tuple[str, T | RlxError]]:
    """Run the job on each file in this process, in the order of the files."""
    for file in files:
        step = None if progress is None else partial(progress, file)
        outcome: T | RlxError
        try:
            outcome = job(file, step)
        except RlxError as error:
            outcome = error
        yield file, outcome


def analyse_sequentially(
    files: Sequence[str], settings: Settings, progress: RunProgress | None = None
) -> Iterator[tuple[str, AnalysisOutcome]]:
    """Analyse the files in this process, in their order."""
    return run_sequentially(AnalysisJob(settings), files, progress)
