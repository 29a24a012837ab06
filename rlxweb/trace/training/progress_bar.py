"""Progress display of a training on a terminal: a bar, the loss, the time of a step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Protocol


class ProgressCallback(Protocol):
    """Callback that receives each step's number and loss."""

    def __call__(self, step: int, loss: float) -> None: ...


def _ignore_progress(step: int, loss: float) -> None:
    pass


@contextmanager
def progress_bar(
    show: bool | None, first: int, last: int | None
) -> Iterator[ProgressCallback]:
    """Show a progress bar on standard error during the block.

    show    None: where that is a terminal
    first   steps that were made before; last: those that will have been, if known
    """
    if show is None:
        show = bool(sys.stderr and sys.stderr.isatty())
    if not show:
        yield _ignore_progress
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[each]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task: Any = bar.add_task("", total=last, completed=first, loss="", each="")
        start_time, first_step = perf_counter(), first

        def update_bar(step: int, loss: float) -> None:
            seconds_per_step = (perf_counter() - start_time) / max(1, step - first_step)
            step_time_text = f"{seconds_per_step * 1e3:.3g} ms per step"
            bar.update(task, completed=step, loss=f"{loss:.4g}", each=step_time_text)

        yield update_bar
