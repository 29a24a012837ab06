"""Who does the files of a run: what must be offered, and the plainest way to offer it.

A cluster is another way. What is done where does not matter to the results: a run puts
them back in the order of its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from rlxweb.errors import RlxError
from rlxweb.jobs.analysis import analyse_file
from rlxweb.jobs.results import FileResult
from rlxweb.jobs.settings import Settings

Outcome: TypeAlias = FileResult | RlxError
Spread: TypeAlias = Callable[[Sequence[str], Settings], Iterable[tuple[str, Outcome]]]
"""Does every file once and says what came of it, in any order.

What it raises, or the end of whoever iterates, ends the run and what is under way.
"""


def one_by_one(
    files: Sequence[str],
    settings: Settings,
    progress: Callable[[str, int, int], object] | None = None,
) -> Iterator[tuple[str, Outcome]]:
    """In this process, in the order of the files.

    progress  is told a file, how many samples it has, and how many were just done
    """
    for file in files:
        step = None if progress is None else partial(progress, file)
        outcome: Outcome
        try:
            outcome = analyse_file(file, settings, step)
        except RlxError as error:
            outcome = error
        yield file, outcome
