"""The picture of `rlxweb bands`: what each channel is made of, as stacked bars."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from rlxweb.cli.plot import PANELS, lettering_of, new_figure, put_figure
from rlxweb.cli.screen import counted
from rlxweb.jobs.bands import Banded, GroupBands
from rlxweb.plot.bars import is_dark
from rlxweb.plot.lettering import Lettering

# Told apart by who sees few colours, in print too: light and dark take turns.
COLOURS = ("#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677", "#882255", "#44aa99")
_MOST_NAME = 24
_MOST_ROWS = 64
_WORTH_A_NUMBER = 0.08


def put_picture(file: IO[bytes], found: Banded, how: str) -> None:
    """One panel per group of equal rate. Errors  NotWritten."""
    letters = lettering_of(found.result)
    doing = f"drawing {found.result.path!r}"
    put_figure(file, partial(_figure, found, letters), how, letters, doing)


def _figure(found: Banded, letters: Lettering) -> Any:
    groups = found.groups[:PANELS]
    tall = [1.4 + 0.24 * min(_MOST_ROWS, len(one.group.names)) for one in groups]
    figure = new_figure(10, sum(tall))
    axes = figure.subplots(len(tall), 1, squeeze=False, height_ratios=tall)
    for axis, own in zip(axes[:, 0], groups, strict=True):
        _bars(axis, own, letters)
        name = letters.shown(Path(found.result.path).name, 48)
        left = len(own.group.names) - _MOST_ROWS
        more = f", {left} more not drawn" if left > 0 else ""
        epochs = own.group.epochs
        of = f" · {letters.shown(epochs.short, 48)}" if epochs else ""
        axis.set_title(
            f"{name} · {counted(len(own.group.names), 'channel')} at "
            f"{own.group.fs:g} Hz{of}{more}",
            fontsize=10,
            loc="left",
        )
    return figure


def _bars(axis: Any, own: GroupBands, letters: Lettering) -> None:
    shares = np.nan_to_num(own.bands.relative[:_MOST_ROWS])
    # What lies between bands that do not touch, or overlap, makes no whole.
    shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
    rows = np.arange(len(shares))
    left = np.zeros(len(shares))
    for k, (name, (low, high)) in enumerate(
        zip(own.bands.names, own.bands.edges, strict=True)
    ):
        colour = COLOURS[k % len(COLOURS)]
        label = f"{letters.shown(name, _MOST_NAME)} {low:g}–{high:g} Hz"
        axis.barh(rows, shares[:, k], left=left, color=colour, height=0.8, label=label)
        for at in np.flatnonzero(shares[:, k] >= _WORTH_A_NUMBER):
            axis.text(
                left[at] + shares[at, k] / 2,
                at,
                f"{shares[at, k]:.0%}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if is_dark(colour) else "black",
            )
        left += shares[:, k]
    states = own.group.states
    labels = [
        f"{letters.shown(name, _MOST_NAME)}{f' ({states[at]})' if states[at] else ''}"
        for at, name in enumerate(own.group.names[:_MOST_ROWS])
    ]
    axis.set_yticks(rows, labels, fontsize=8)
    axis.set_ylim(len(shares) - 0.4, -0.6)
    axis.set_xlim(0, 1)
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.set_xlabel("share of the power in these bands")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
