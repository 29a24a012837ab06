"""How far a run over recordings has come, as one bar however many there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType

from rich.console import Console

from rlxweb.cli.screen import progress_on

# Work that ends sooner shows no bar: nobody could read it.
PATIENCE_S = 0.5


class Meter:
    """A bar whose whole is all the recordings; a part of one is a part of its share.

    beside  what is said beside it in place of a file's name: who is at work. Where it
            says something the bar is there from the beginning
    """

    def __init__(
        self, err: Console, n_files: int, beside: Callable[[], str] = str
    ) -> None:
        self._bar = progress_on(err)
        self._task = self._bar.add_task("", total=1.0)
        if beside():
            self._bar.update(self._task, said=self._said)
        self._n_files = n_files
        self._beside = beside
        self._finished = 0
        self._parts: dict[str, float] = {}
        self._since = monotonic()

    def __enter__(self) -> Meter:
        if self._beside() and self._n_files:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def within(self, file: str, n_samples: int, n_done: int) -> None:
        """So many more samples of a file that is being worked on are done."""
        part = self._parts.get(file, 0.0) + n_done / max(1, n_samples)
        self._parts[file] = min(1.0, part)
        self._show(file)

    def finished(self, file: str) -> None:
        """A file is done with, well or not."""
        self._finished += 1
        self._parts.pop(file, None)
        self._show(file)

    @property
    def share(self) -> float:
        """Of the whole, 0 to 1."""
        return (self._finished + sum(self._parts.values())) / max(1, self._n_files)

    def _said(self) -> str:
        return f"{self._finished} of {self._n_files}, {self._beside()}"

    def _show(self, file: str) -> None:
        others = len(self._parts.keys() - {file})
        name = Path(file).name + (f" and {others} more" if others else "")
        self._bar.update(self._task, completed=self.share, description=name)
        if monotonic() - self._since >= PATIENCE_S:
            self._bar.start()
