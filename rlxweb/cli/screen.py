"""How commands speak to people: plain lines and a bar. rich does the drawing."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


def say(console: Console, text: str, style: str | None = None) -> None:
    """One line as it stands: no markup, no colours of its own, not wrapped."""
    console.print(text, markup=False, highlight=False, soft_wrap=True, style=style)


def counted(n: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{n} {noun}{'s' * (n != 1)}"


def bar_on(console: Console) -> Progress:
    """A bar with the share done and the time left; it goes when it ends."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
