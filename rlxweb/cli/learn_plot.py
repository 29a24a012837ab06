"""The picture of `rlxweb learn`: what could be left out, and how training went.

matplotlib is loaded here, only when a picture is asked for.
"""

from __future__ import annotations

from typing import IO, Any

from rlxweb.cli.plot import new_figure, put_figure
from rlxweb.learn.learned import Learned
from rlxweb.plot.prunings import draw_losses, draw_prunings


def put_picture(file: IO[bytes], learned: Learned, how: str, dark: bool) -> None:
    """Two panels, in the format `how`. Errors  NotWritten."""

    def draw() -> Any:
        figure = new_figure(11, 4.4)
        figure.suptitle(_facts(learned), x=0.008, ha="left")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        draw_prunings(left, learned)
        draw_losses(right, learned)
        return figure

    put_figure(file, draw, how, doing="drawing what was learned", dark=dark)


def _facts(learned: Learned) -> str:
    own = learned.transform
    return (
        f"{len(own.band)} of {own.n // 2 + 1} bins of {own.n:,} samples at "
        f"{own.fs:g} Hz: {own.active:,} of {own.total:,} gates"
    )
