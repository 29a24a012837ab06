"""Components of EEG as maps of the head, each with what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlxweb.errors import UsageError
from rlxweb.plot.scalp import head_map
from rlxweb.plot.theme import AROUND, axes_of, in_our_look, quiet_ink
from rlxweb.signal.electrodes import flat

if TYPE_CHECKING:
    from rlxweb.models.iclabel import Components

ACROSS: Final = 6
MOST: Final = 36
"""More are no picture."""


@in_our_look
def component(found: Components, at: int, ax: Any = None) -> Any:
    """The map of one component, and the class it is of.

    found    of `rlxweb.models`
    at       which, from 0
    → the axes
    Errors   UsageError for one there is not; Unsupported without matplotlib
    """
    doing = "rlxweb.plot.component"
    if not 0 <= at < len(found):
        raise UsageError(doing, f"component {at}", f"0 to {len(found) - 1}")
    own = axes_of(ax, doing, wide=3.0, tall=3.2)
    draw_component(own, found, at)
    return own


def draw_component(axis: Any, found: Components, at: int) -> None:
    """Into axes."""
    places = found.positions / np.linalg.norm(found.positions, axis=1, keepdims=True)
    values = found.mixing[:, at]
    image = head_map(axis, flat(places), values, size=1.6)
    most = max(float(np.abs(values).max()), 1e-300)
    image.set_cmap(AROUND)
    image.set_clim(-most, most)
    chance = found.probabilities[at]
    axis.set_title(f"{at}  {found.labels[at]}", fontsize=8.5, loc="center", pad=2)
    axis.text(
        *(0.5, -0.03, f"{chance.max():.0%}"),
        transform=axis.transAxes,
        ha="center",
        va="top",
        fontsize=8,
        color=quiet_ink(axis),
    )


def draw_components(figure: Any, found: Components) -> None:
    """A grid of maps into an empty figure, the first 36."""
    count = min(MOST, len(found))
    down = -(-count // ACROSS)
    axes = figure.subplots(down, ACROSS, squeeze=False).reshape(-1)
    for at, axis in enumerate(axes):
        if at < count:
            draw_component(axis, found, at)
        else:
            axis.set_visible(False)


def height_of(count: int) -> float:
    """Inches that so many maps want."""
    return 0.6 + 2.0 * -(-min(MOST, count) // ACROSS)
