"""Row names in plots, in fonts that have their letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rlxweb.plot.font_selection import FontSelection

MAX_NAME_LENGTH: Final = 24
"""Maximum number of characters of a row name."""


@contextmanager
def fonts_for_names(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the names in drawable form, with fonts that have their letters set as
    fallbacks inside the block.
    """
    import matplotlib

    fonts = FontSelection.for_texts(names)
    families = [*matplotlib.rcParams["font.family"], *fonts.families[1:]]
    with matplotlib.rc_context({"font.family": families}):
        yield tuple(fonts.drawable_text(name, MAX_NAME_LENGTH) for name in names)


def label_rows(ax: Any, names: Sequence[str], step: int, size: float) -> None:
    """Label every n-th of the rows 0, 1 … of the y axis, inside `fonts_for_names`."""
    import matplotlib

    ax.set_yticks(
        range(0, len(names), step),
        names[::step],
        fontsize=size,
        fontfamily=matplotlib.rcParams["font.family"],
    )
    ax.tick_params(axis="y", length=0)


def set_panel_title(ax: Any, name: str) -> None:
    """Write a name above the axes."""
    with fonts_for_names([name]) as (title,):
        ax.set_title(title, fontsize=9, loc="left")
