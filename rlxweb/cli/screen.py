"""How commands speak to people: plain lines and progress. rich does the drawing."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


def say(console: Console, text: str, style: str | None = None) -> None:
    """One line as it stands: no markup, no colours of its own, not wrapped."""
    console.print(text, markup=False, highlight=False, soft_wrap=True, style=style)


def counted(n: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{n} {noun}{'s' * (n != 1)}"


def progress_on(
    console: Console, *columns: ProgressColumn, shown: bool = True
) -> Progress:
    """Progress on a terminal, and silence elsewhere; it goes when it ends.

    Without `columns`: a bar with the share done and the time left.
    """
    shown = shown and console.is_terminal
    bar = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    return Progress(
        *columns or bar,
        # rich 13 ends even a disabled one with an empty line.
        console=console if shown else Console(quiet=True),
        disable=not shown,
        transient=True,
    )
