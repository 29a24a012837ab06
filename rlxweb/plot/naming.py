"""Names of rows in a picture, in letters that a font of the machine has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rlxweb.plot.lettering import Lettering

_MOST: Final = 24
"""Characters of a name that there is room for."""


def name_lines(ax: Any, names: Sequence[str]) -> None:
    """A legend beside the axes, of the lines that have one of these names."""
    if not any(names):
        return
    letters = Lettering.of(names)
    own = {name: letters.shown(name, _MOST) for name in names}
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles,
        [own.get(label, label) for label in labels],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        prop={"family": list(letters.families), "size": 8},
    )


def name_rows(ax: Any, names: Sequence[str], every: int, size: float) -> None:
    """Every so many of the rows 0, 1 … of the y axis."""
    letters = Lettering.of(names)
    shown = [letters.shown(name, _MOST) for name in names[::every]]
    rows = range(0, len(names), every)
    ax.set_yticks(rows, shown, fontsize=size, fontfamily=list(letters.families))


def name_panel(ax: Any, name: str) -> None:
    """Above the axes."""
    letters = Lettering.of([name])
    family = list(letters.families)
    shown = letters.shown(name, _MOST)
    ax.set_title(shown, fontsize=9, loc="left", fontfamily=family)
