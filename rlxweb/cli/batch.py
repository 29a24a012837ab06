"""The recordings of one run, whoever does them, and what became of each.

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

from rlxweb.cli.inputs import recordings_of
from rlxweb.cli.keeping import Keeping, listed
from rlxweb.cli.meter import Meter
from rlxweb.cli.screen import counted, say
from rlxweb.cli.wording import told
from rlxweb.dask.decided import Decided
from rlxweb.errors import DeviceLost, NotFinite, RecordingError, RlxError
from rlxweb.io.access import Access
from rlxweb.jobs.analysis import Analysis
from rlxweb.jobs.entries import Entry, file_entry
from rlxweb.jobs.results import Failure, FileResult, OfFile
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import Job, Spread, Told, each
from rlxweb.jobs.unfinished import Unfinished

_WAY_ROUND = "--keep-going does the other recordings"

R = TypeVar("R", bound=OfFile)
How = Callable[[Sequence[str], Told], Iterable[tuple[str, R | RlxError]]]
"""Does files, in any order, and says what came of each."""


@dataclass(frozen=True, slots=True)
class Came(Generic[R]):
    """What came of files.

    files     the recordings that were meant, done or failed
    results   in their order, those that are held
    failed    with what stands for no recording at all
    wall_s    until the last of them was done, in seconds
    """

    files: list[str]
    results: list[R]
    failed: list[Failure]
    wall_s: float = 0.0

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a run.

    files       the recordings that were meant, done or failed
    results     those that are held, of the recordings that were done
    failed      with what stands for no recording at all
    unfinished  where the results are noted that need not be held
    shares      what the workers of a cluster ran on which device
    wall_s      until the last recording was done, in seconds
    """

    settings: Settings
    files: list[str] = field(default_factory=list)
    results: list[FileResult] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    unfinished: Unfinished | None = None
    shares: list[Decided] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0

    @property
    def n_good(self) -> int:
        """How many recordings were done, here or in an earlier run."""
        return len(set(self.files) - {failure.path for failure in self.failed})

    def entries(self) -> Iterator[tuple[str, Entry | None]]:
        """What is remembered of each file in their order; None for one that failed."""
        failed = {failure.path for failure in self.failed}
        held = {result.path: result for result in self.results}
        for file in self.files:
            if file in failed:
                yield file, None
            elif self.unfinished is not None:
                yield file, self.unfinished.entry(file)
            else:
                yield file, file_entry(held[file])


def run_batch(
    named: Sequence[str],
    settings: Settings,
    err: Console,
    *,
    outputs: Sequence[str] = (),
    keep_going: bool = False,
    begin: Callable[[Sequence[str]], Keeping] = lambda files: Keeping(),
    spread: Spread | None = None,
    beside: Callable[[], str] = str,
    jobs: int = 1,
) -> Done:
    """Every recording that is meant by a name, analysed.

    outputs     paths of results, which are no recordings
    keep_going  what is wrong with one is told, kept, and the next one is done; a device
                that is lost ends the run all the same
    begin       is handed the files before the first is opened, to refuse them or to
                say what becomes of their results
    spread      does the files, in any order; None is here, one after another
    beside      what else the bar says: who is at work
    jobs        processes of this machine that do them, where `spread` is None
    Errors      those of `recordings_of`, `begin`, `open_recording` and `analyse`.
    """
    how: How[FileResult] = how_of(Analysis(settings), jobs)
    if spread is not None:

        def how(files: Sequence[str], _: Told) -> Iterable[tuple[str, Any]]:
            return spread(files, settings)

    kept: list[Keeping] = []

    def begun(files: Sequence[str]) -> Keeping:
        kept.append(begin(files))
        return kept[0]

    came = run_files(
        named,
        settings.storage,
        how,
        err,
        outputs=outputs,
        keep_going=keep_going,
        begin=begun,
        beside=beside,
    )
    return Done(
        settings,
        came.files,
        came.results,
        came.failed,
        kept[0].unfinished,
        wall_s=came.wall_s,
    )


def how_of(job: Job[R], jobs: int) -> How[R]:
    """One file after another, here or by so many processes."""
    if jobs == 1:
        return partial(each, job)
    from rlxweb.cli.children import Children

    return Children(job, jobs).each


def run_files(
    named: Sequence[str],
    access: Access,
    how: How[R],
    err: Console,
    *,
    outputs: Sequence[str] = (),
    keep_going: bool = False,
    begin: Callable[[Sequence[str]], Keeping] = lambda files: Keeping(),
    beside: Callable[[], str] = str,
) -> Came[R]:
    """Every recording that is meant by a name, done; arguments as of `run_batch`."""
    begun = perf_counter()
    files: list[str] = []
    failures: list[Failure] = []

    def failed(name: str, error: RlxError) -> None:
        if not keep_going or isinstance(error, DeviceLost):
            several = max(len(named), len(files)) > 1
            if several and isinstance(error, RecordingError | NotFinite):
                hint = getattr(error.hint, "as_flags", error.hint)
                error.hint = "; ".join(filter(None, (hint, _WAY_ROUND)))
            raise error
        failure = Failure(name, "; ".join(told(error).split("\n")))
        say(err, f"rlxweb: {failure.error}")
        failures.append(failure)

    tell = partial(say, err, style="dim")
    files.extend(recordings_of(named, outputs, tell, failed, access))
    keeping = begin(files)
    results: list[R] = []
    left_out = LeftOut()
    to_do = keeping.to_do(files, tell)
    with Meter(err, len(to_do), beside) as meter, ExitStack() as stack:
        outcomes = how(to_do, meter.within)
        # Whoever is at work elsewhere is told at once that a run has ended early.
        stack.callback(getattr(outcomes, "close", bool))
        for file, outcome in outcomes:
            meter.finished(file)
            if isinstance(outcome, RlxError):
                failed(file, outcome)
                continue
            left_out.note(outcome)
            keeping.note(outcome)
            if keeping.holds:
                results.append(outcome)
    left_out.tell(err, len(files))
    came = Came(files, results, failures, perf_counter() - begun)
    _put_in_order(came)
    _tell_failed(err, came)
    return came


def _put_in_order(done: Came[R]) -> None:
    """Results and failures as the files were named, whatever came first."""
    place = {file: at for at, file in enumerate(done.files)}
    done.results.sort(key=lambda result: place[result.path])
    # What stands for no recording has no place among them and comes first.
    done.failed.sort(key=lambda failure: place.get(failure.path, -1))


def _tell_failed(err: Console, done: Came[R]) -> None:
    if done.failed:
        paths = [one.path for one in done.failed]
        everything = len({*paths, *done.files})
        of = f"{len(paths)} of {counted(everything, 'recording')}"
        say(err, f"rlxweb: {of} failed: {listed(paths)}")


class LeftOut:
    """Channels that were not taken: a line per reason and set of them, not per file."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, tuple[str, ...]], list[str]] = {}

    def note(self, result: OfFile) -> None:
        """What was left out of a file."""
        reasons: dict[str, list[str]] = {}
        for name, why in result.left_out:
            reasons.setdefault(why, []).append(name)
        for why, left in reasons.items():
            self._files.setdefault((why, tuple(left)), []).append(result.path)

    def tell(self, err: Console, n_files: int) -> None:
        """However many files share it."""
        for (why, names), paths in self._files.items():
            of = f"of {listed(sorted(paths))} " if n_files > 1 else ""
            say(err, f"left out {of}{listed(names)}: {why}", style="dim")
