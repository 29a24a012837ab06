"""Values of electrodes as a map of the head, seen from above, the nose up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import ShapeError, UsageError
from rlxweb.given import array_of
from rlxweb.plot.theme import MAP, axes_of, in_our_look
from rlxweb.results.svg import ticks
from rlxweb.signal.electrodes import flat, positions

Floats = NDArray[np.float64]

_GRID: Final = 160
LEAST: Final = 4
"""Electrodes that a map needs."""


@in_our_look
def topomap(
    values: Any,
    names: Sequence[str],
    ax: Any = None,
    *,
    label: str = "",
    show_names: bool = True,
) -> Any:
    """One value for each electrode, smoothed between them.

    values   (C,)
    names    (C,) of the channels: those of the 10-20 system and its extensions are
             placed ("Fp1", "EEG Cz-REF"), others left out
    label    of the colour bar
    → the axes
    Errors   UsageError for fewer than 4 known electrodes; ShapeError; Unsupported
             without matplotlib
    Source   biharmonic spline: Sandwell 1987
    """
    doing = "rlxweb.plot.topomap"
    own = array_of(values, doing).astype(np.float64)
    if own.shape != (len(names),):
        said = f"values of shape {list(own.shape)} for {len(names)} names"
        raise ShapeError(doing, said, "one value for each name")
    places, which = positions(names)
    known = own[which]
    fine = np.isfinite(known)
    places, known = places[fine], known[fine]
    if len(known) < LEAST:
        raise UsageError(
            doing,
            f"{len(known)} of {len(names)} names are electrodes with a value",
            f"{LEAST} are wanted",
            "name the channels as the 10-20 system does: Fp1, Cz, O2",
        )
    axes = axes_of(ax, doing, wide=4.2, tall=3.8)
    image = head_map(axes, flat(places), known)
    if show_names:
        shown = [names[one] for one, ok in zip(which, fine, strict=True) if ok]
        _names(axes, flat(places), shown)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_ticks(ticks(float(known.min()), float(known.max()), 6))
    bar.set_label(label)
    bar.outline.set_visible(False)
    return axes


def head_map(axes: Any, at: Floats, known: Floats, size: float = 3.4) -> Any:
    """Values (P,) at places (P, 2) as `flat` has them; what a colour bar is made of.

    size     of the electrodes, in points
    """
    reach = max(1.0, float(np.hypot(*at.T).max()) * 1.04)
    image = _surface(axes, at, known, reach)
    _head(axes, at, reach, size)
    axes.set_aspect("equal")
    axes.set(xlim=(-1.06 * reach, 1.06 * reach), ylim=(-1.06 * reach, 1.14 * reach))
    axes.axis("off")
    return image


def head_grid(at: Floats, known: Floats, side: int) -> tuple[Floats, float]:
    """The same as numbers (side, side), from the nose down; NaN beyond the head. And
    how far the grid reaches to each side.
    """
    reach = max(1.0, float(np.hypot(*at.T).max()) * 1.04)
    ends = np.linspace(-reach, reach, side)
    x, y = np.meshgrid(ends, ends[::-1])
    level = _spline(at, known, np.stack([x.ravel(), y.ravel()], 1)).reshape(x.shape)
    level = np.clip(level, float(known.min()), float(known.max()))
    level[np.hypot(x, y) > reach + 3 * (ends[1] - ends[0])] = np.nan
    return level, reach


def _surface(axes: Any, at: Floats, known: Floats, reach: float) -> Any:
    from matplotlib.patches import Circle

    level, _ = head_grid(at, known, _GRID)
    image = axes.imshow(
        level,
        extent=(-reach, reach, -reach, reach),
        interpolation="bilinear",
        cmap=MAP,
        vmin=float(known.min()),
        vmax=max(float(known.max()), float(known.min()) + 1e-12),
    )
    image.set_clip_path(Circle((0, 0), reach, transform=axes.transData))
    return image


def _head(axes: Any, at: Floats, reach: float, size: float) -> None:
    ink = axes.xaxis.label.get_color()
    turn = np.linspace(0, 2 * np.pi, 181)
    axes.plot(reach * np.cos(turn), reach * np.sin(turn), "-", color=ink, lw=1.4)
    nose = reach * np.array([[-0.1, 0.995], [0.0, 1.12], [0.1, 0.995]])
    axes.plot(*nose.T, "-", color=ink, lw=1.4, clip_on=False)
    axes.plot(*at.T, "o", ms=size, color="black", mec="white", mew=0.7)


def _names(axes: Any, at: Floats, names: Sequence[str]) -> None:
    from matplotlib.patheffects import withStroke

    for name, place in zip(names, at, strict=True):
        axes.annotate(
            name,
            tuple(place),
            textcoords="offset points",
            xytext=(0, 4),
            ha="center",
            fontsize=6,
            color="black",
            path_effects=[withStroke(linewidth=1.6, foreground="white")],
        )


def _spline(at: Floats, values: Floats, wanted: Floats) -> Floats:
    """Through (P, 2) with values (P,), at (Q, 2): bent as little as a plate is."""
    mean = values.mean()
    weights = np.linalg.lstsq(_green(at, at), values - mean, rcond=None)[0]
    out: Floats = _green(wanted, at) @ weights + mean
    return out


def _green(a: Floats, b: Floats) -> Floats:
    far = np.hypot(*(a[:, None] - b[None]).transpose(2, 0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        out: Floats = np.where(far > 1e-12, far**2 * (np.log(far) - 1.0), 0.0)
    return out
