"""Progress of a run over recordings, shown as one bar for any number of files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType

from rich.console import Console

from rlxweb.cli.console import make_progress

# Work that ends sooner shows no bar: nobody could read it.
SHOW_BAR_AFTER_S = 0.5


class RecordingProgress:
    """Progress bar over all recordings; each file counts as an equal part of it.

    progress_note  what is said beside it in place of a file's name: who is at work.
                   Where it says something the bar is there from the beginning
    """

    def __init__(
        self, err: Console, n_files: int, progress_note: Callable[[], str] = str
    ) -> None:
        self._bar = make_progress(err)
        self._task = self._bar.add_task("", total=1.0)
        if progress_note():
            self._bar.update(self._task, said=self._status_text)
        self._n_files = n_files
        self._progress_note = progress_note
        self._n_finished = 0
        self._file_fractions: dict[str, float] = {}
        self._started_at = monotonic()

    def __enter__(self) -> RecordingProgress:
        if self._progress_note() and self._n_files:
            self._bar.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def add_samples(self, file: str, n_samples: int, n_done: int) -> None:
        """Record that `n_done` more samples of a file in progress are done."""
        file_fraction = self._file_fractions.get(file, 0.0) + n_done / max(1, n_samples)
        self._file_fractions[file] = min(1.0, file_fraction)
        self._update_bar(file)

    def mark_finished(self, file: str) -> None:
        """Record that a file is finished, successfully or not."""
        self._n_finished += 1
        self._file_fractions.pop(file, None)
        self._update_bar(file)

    @property
    def fraction(self) -> float:
        """Finished fraction of the whole run, 0 to 1."""
        return (self._n_finished + sum(self._file_fractions.values())) / max(
            1, self._n_files
        )

    def _status_text(self) -> str:
        return f"{self._n_finished} of {self._n_files}, {self._progress_note()}"

    def _update_bar(self, file: str) -> None:
        n_others = len(self._file_fractions.keys() - {file})
        name = Path(file).name + (f" and {n_others} more" if n_others else "")
        self._bar.update(self._task, completed=self.fraction, description=name)
        if monotonic() - self._started_at >= SHOW_BAR_AFTER_S:
            self._bar.start()
