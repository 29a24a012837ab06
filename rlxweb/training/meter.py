"""How far a training is, on a terminal: a bar, the loss, the time of a step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Protocol


class Meter(Protocol):
    """Told of each step."""

    def __call__(self, step: int, loss: float) -> None: ...


def _silent(step: int, loss: float) -> None:
    pass


@contextmanager
def meter(shown: bool | None, first: int, last: int | None) -> Iterator[Meter]:
    """A bar on standard error.

    shown   None: where that is a terminal
    first   steps that were made before; last: those that will have been, if known
    """
    if shown is None:
        shown = bool(sys.stderr and sys.stderr.isatty())
    if not shown:
        yield _silent
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
        since, begun = perf_counter(), first

        def told(step: int, loss: float) -> None:
            each = (perf_counter() - since) / max(1, step - begun)
            said = f"{each * 1e3:.3g} ms a step"
            bar.update(task, completed=step, loss=f"{loss:.4g}", each=said)

        yield told
