"""Who does the files of a run: what must be offered, and the plainest way to offer it.

A cluster is another way. What is done where does not matter to the results: a run puts
them back in the order of its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from rlxweb.errors import RlxError
from rlxweb.jobs.analysis import Analysis, FileProgress
from rlxweb.jobs.results import FileResult
from rlxweb.jobs.settings import Settings

Outcome: TypeAlias = FileResult | RlxError
Spread: TypeAlias = Callable[[Sequence[str], Settings], Iterable[tuple[str, Outcome]]]
"""Does every file once and says what came of it, in any order.

What it raises, or the end of whoever iterates, ends the run and what is under way.
"""
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
Told: TypeAlias = Callable[[str, int, int], object]
"""Is told a file, how many samples it has, and how many were just done."""


class Job(Protocol[T_co]):
    """What is done with each file of a run; it pickles, so any process can do it."""

    def __call__(self, path: str, progress: FileProgress | None = None) -> T_co:
        """What came of the file. Errors  RlxError"""
        ...


def each(
    job: Job[T], files: Sequence[str], progress: Told | None = None
) -> Iterator[tuple[str, T | RlxError]]:
    """In this process, in the order of the files."""
    for file in files:
        step = None if progress is None else partial(progress, file)
        outcome: T | RlxError
        try:
            outcome = job(file, step)
        except RlxError as error:
            outcome = error
        yield file, outcome


def one_by_one(
    files: Sequence[str], settings: Settings, progress: Told | None = None
) -> Iterator[tuple[str, Outcome]]:
    """Analysed in this process, in the order of the files."""
    return each(Analysis(settings), files, progress)
