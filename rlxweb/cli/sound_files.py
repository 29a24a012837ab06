"""What commands over sound share: the file, the model's file, how far the work is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from rlxweb.cli import options
from rlxweb.cli.screen import progress_on, screen

_PANEL_S = 30.0
_MOST_PANELS = 8
FILE = click.argument("file", metavar="FILE")


def model(package: str) -> options.Decorator:
    """`--model`."""
    return options.valued("--model", str, f"The model's file [the package {package}].")


@contextmanager
def progress(file: str, quiet: bool) -> Iterator[Callable[[float, float], None]]:
    """What hears (seconds done, seconds in all), as a bar on a terminal."""
    with progress_on(screen(stderr=True), shown=not quiet) as bar:
        task = bar.add_task(file, total=None)

        def tell(done: float, seconds: float) -> None:
            bar.update(task, completed=done, total=seconds)

        yield tell


def panels(seconds: float) -> list[tuple[float, float]]:
    """The stretches that the panels of a picture show, each as long."""
    count = min(_MOST_PANELS, max(1, round(seconds / _PANEL_S)))
    long = max(seconds, 1e-3) / count
    return [(at * long, (at + 1) * long) for at in range(count)]
