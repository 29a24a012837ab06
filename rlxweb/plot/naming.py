"""Names of rows in a picture, in letters that a font of the machine has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rlxweb.plot.lettering import Lettering

MOST: Final = 24
"""Characters of a name that there is room for."""


@contextmanager
def lettered(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The names as they are drawn; inside, fonts that have their letters are asked
    behind those of the settings.
    """
    import matplotlib

    letters = Lettering.of(names)
    families = [*matplotlib.rcParams["font.family"], *letters.families[1:]]
    with matplotlib.rc_context({"font.family": families}):
        yield tuple(letters.shown(name, MOST) for name in names)


def name_rows(ax: Any, names: Sequence[str], every: int, size: float) -> None:
    """Every so many of the rows 0, 1 … of the y axis, inside of `lettered`."""
    import matplotlib

    ax.set_yticks(
        range(0, len(names), every),
        names[::every],
        fontsize=size,
        fontfamily=matplotlib.rcParams["font.family"],
    )
    ax.tick_params(axis="y", length=0)


def name_panel(ax: Any, name: str) -> None:
    """Above the axes."""
    with lettered([name]) as (shown,):
        ax.set_title(shown, fontsize=9, loc="left")
