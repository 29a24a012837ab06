"""The recordings of one run, one after another, and what became of each.

Owns progress, what is told about each file on the way, and that with `keep_going` a bad
file costs itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from rlxweb.cli.inputs import recordings_of
from rlxweb.cli.job import FileResult, Settings, analyse
from rlxweb.cli.screen import counted, progress_on, say
from rlxweb.cli.wording import told
from rlxweb.errors import DeviceLost, NotFinite, RecordingError, RlxError
from rlxweb.io import open_recording
from rlxweb.printable import abridged

# Shorter work ends before a bar could be read.
BAR_FROM_SAMPLES = 20_000_000
# How many names a line lists.
_LISTED = 6
_MOST_NAME = 40

_WAY_ROUND = "--keep-going does the other recordings"

LeftOut = Iterable[tuple[str, str]]
"""Names of channels, and why each was not taken."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A recording that could not be done, and why."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a run.

    files   the recordings that were meant, done or failed
    failed  with what stands for no recording at all
    """

    settings: Settings
    files: list[str] = field(default_factory=list)
    results: list[FileResult] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0


def run_batch(
    named: Sequence[str],
    settings: Settings,
    err: Console,
    *,
    outputs: Sequence[str] = (),
    keep_going: bool = False,
    check: Callable[[Sequence[str]], object] = len,
) -> Done:
    """Every recording that is meant by a name, analysed.

    outputs     paths of results, which are no recordings
    keep_going  what is wrong with one is told, kept, and the next one is done; a device
                that is lost ends the run all the same
    check       is handed the files before the first is opened, to refuse them
    Errors      those of `recordings_of`, `check`, `open_recording` and `analyse`.
    """
    done = Done(settings)

    def failed(name: str, error: RlxError | MemoryError) -> None:
        if not keep_going or isinstance(error, DeviceLost):
            several = max(len(named), len(done.files)) > 1
            if several and isinstance(error, RecordingError | NotFinite):
                hint = getattr(error.hint, "as_flags", error.hint)
                error.hint = "; ".join(filter(None, (hint, _WAY_ROUND)))
            raise error
        failure = Failure(name, "; ".join(told(error).split("\n")))
        say(err, f"rlxweb: {failure.error}")
        done.failed.append(failure)

    tell = partial(say, err, style="dim")
    done.files.extend(recordings_of(named, outputs, tell, failed))
    check(done.files)
    for file in done.files:
        try:
            done.results.append(_analysed(file, settings, err))
        except (RlxError, MemoryError) as error:
            failed(file, error)
    _tell_left_out(err, done.results)
    if done.failed:
        paths = [one.path for one in done.failed]
        everything = len(paths) + len(done.results)
        of = f"{len(paths)} of {counted(everything, 'recording')}"
        say(err, f"rlxweb: {of} failed: {_listed(paths)}")
    return done


def _analysed(file: str, settings: Settings, err: Console) -> FileResult:
    with open_recording(
        file,
        fs=settings.fs,
        channels=settings.channels or None,
        array=settings.array,
        layout=settings.layout,  # type: ignore[arg-type]
    ) as recording:
        work = sum(g.n_samples * len(g.channels) for g in recording.groups)
        with progress_on(err, shown=work >= BAR_FROM_SAMPLES) as bar:
            task = bar.add_task(Path(file).name, total=work)
            return analyse(recording, settings, partial(bar.advance, task))


def _tell_left_out(err: Console, results: Sequence[FileResult]) -> None:
    """One line per reason and set of channels, however many files share them."""
    files: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for result in results:
        reasons: dict[str, list[str]] = {}
        for name, why in result.left_out:
            reasons.setdefault(why, []).append(name)
        for why, left in reasons.items():
            files.setdefault((why, tuple(left)), []).append(result.path)
    for (why, names), paths in files.items():
        of = f"of {_listed(paths)} " if len(results) > 1 else ""
        say(err, f"left out {of}{_listed(names)}: {why}", style="dim")


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(f"'{abridged(n, _MOST_NAME)}'" for n in names[:_LISTED]) + rest
