"""Topographic maps: electrode values on the head seen from above, nose up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import ShapeError, UsageError
from rlxweb.plot.theme import SEQUENTIAL_COLORMAP, get_or_make_axes, with_rlxweb_style
from rlxweb.results.svg_charts import tick_values
from rlxweb.signal.electrode_positions import electrode_positions, project_to_plane

Floats = NDArray[np.float64]

_GRID_SIDE: Final = 160
MIN_ELECTRODES: Final = 4
"""Minimum number of electrodes for a map."""


@with_rlxweb_style
def topomap(
    values: Any,
    names: Sequence[str],
    ax: Any = None,
    *,
    label: str = "",
    show_names: bool = True,
) -> Any:
    """Draw one value for each electrode as a smooth map of the head.

    values   (C,)
    names    (C,) of the channels: those of the 10-20 system and its extensions are
             placed ("Fp1", "EEG Cz-REF"), others left out
    label    of the colour bar
    → the axes
    Errors   UsageError for fewer than 4 known electrodes; ShapeError; Unsupported
             without matplotlib
    Source   biharmonic spline: Sandwell 1987
    """
    context = "rlxweb.plot.topomap"
    channel_values = as_array(values, context).astype(np.float64)
    if channel_values.shape != (len(names),):
        problem = (
            f"got values of shape {list(channel_values.shape)} for {len(names)} names"
        )
        raise ShapeError(context, problem, "expected one value for each name")
    coordinates, electrode_rows = electrode_positions(names)
    electrode_values = channel_values[electrode_rows]
    is_finite = np.isfinite(electrode_values)
    coordinates, electrode_values = coordinates[is_finite], electrode_values[is_finite]
    if len(electrode_values) < MIN_ELECTRODES:
        raise UsageError(
            context,
            f"{len(electrode_values)} of {len(names)} names are known "
            "electrodes with a finite value",
            f"at least {MIN_ELECTRODES} known electrodes are required",
            "name the channels as in the 10-20 system, for example Fp1, Cz, O2",
        )
    axes = get_or_make_axes(ax, context, width=4.2, height=3.8)
    image = draw_head_map(axes, project_to_plane(coordinates), electrode_values)
    if show_names:
        drawn_names = [
            names[row]
            for row, is_drawn in zip(electrode_rows, is_finite, strict=True)
            if is_drawn
        ]
        _draw_electrode_names(axes, project_to_plane(coordinates), drawn_names)
    colorbar = axes.figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    colorbar.set_ticks(
        tick_values(float(electrode_values.min()), float(electrode_values.max()), 6)
    )
    colorbar.set_label(label)
    colorbar.outline.set_visible(False)
    return axes


def draw_head_map(
    axes: Any, points: Floats, values: Floats, marker_size: float = 3.4
) -> Any:
    """Draw values (P,) at points (P, 2) as `flat` returns them; return the image for a
    colour bar.

    marker_size  of the electrodes, in points
    """
    radius = max(1.0, float(np.hypot(*points.T).max()) * 1.04)
    image = _draw_surface(axes, points, values, radius)
    _draw_head_outline(axes, points, radius, marker_size)
    axes.set_aspect("equal")
    axes.set(xlim=(-1.06 * radius, 1.06 * radius), ylim=(-1.06 * radius, 1.14 * radius))
    axes.axis("off")
    return image


def interpolate_head(points: Floats, values: Floats, side: int) -> tuple[Floats, float]:
    """Interpolate values to a grid (side, side), nose first, NaN outside the head;
    return it and the grid's half-width.
    """
    radius = max(1.0, float(np.hypot(*points.T).max()) * 1.04)
    ends = np.linspace(-radius, radius, side)
    x, y = np.meshgrid(ends, ends[::-1])
    level = _biharmonic_spline(
        points, values, np.stack([x.ravel(), y.ravel()], 1)
    ).reshape(x.shape)
    level = np.clip(level, float(values.min()), float(values.max()))
    level[np.hypot(x, y) > radius + 3 * (ends[1] - ends[0])] = np.nan
    return level, radius


def _draw_surface(axes: Any, points: Floats, values: Floats, radius: float) -> Any:
    """Draw the interpolated values clipped to the head."""
    from matplotlib.patches import Circle

    level, _ = interpolate_head(points, values, _GRID_SIDE)
    image = axes.imshow(
        level,
        extent=(-radius, radius, -radius, radius),
        interpolation="bilinear",
        cmap=SEQUENTIAL_COLORMAP,
        vmin=float(values.min()),
        vmax=max(float(values.max()), float(values.min()) + 1e-12),
    )
    image.set_clip_path(Circle((0, 0), radius, transform=axes.transData))
    return image


def _draw_head_outline(
    axes: Any, points: Floats, radius: float, marker_size: float
) -> None:
    """Draw the outline of head and nose, and the electrodes."""
    ink = axes.xaxis.label.get_color()
    angles = np.linspace(0, 2 * np.pi, 181)
    axes.plot(radius * np.cos(angles), radius * np.sin(angles), "-", color=ink, lw=1.4)
    nose = radius * np.array([[-0.1, 0.995], [0.0, 1.12], [0.1, 0.995]])
    axes.plot(*nose.T, "-", color=ink, lw=1.4, clip_on=False)
    axes.plot(*points.T, "o", ms=marker_size, color="black", mec="white", mew=0.7)


def _draw_electrode_names(axes: Any, points: Floats, names: Sequence[str]) -> None:
    """Write the names of the electrodes above their points."""
    from matplotlib.patheffects import withStroke

    for name, point in zip(names, points, strict=True):
        axes.annotate(
            name,
            tuple(point),
            textcoords="offset points",
            xytext=(0, 4),
            ha="center",
            fontsize=6,
            color="black",
            path_effects=[withStroke(linewidth=1.6, foreground="white")],
        )


def _biharmonic_spline(points: Floats, values: Floats, targets: Floats) -> Floats:
    """Interpolate values (P,) at points (P, 2) to targets (Q, 2) by a spline of minimum
    bending.
    """
    mean = values.mean()
    weights = np.linalg.lstsq(
        _green_function(points, points), values - mean, rcond=None
    )[0]
    out: Floats = _green_function(targets, points) @ weights + mean
    return out


def _green_function(a: Floats, b: Floats) -> Floats:
    """Return the biharmonic Green's function of the distances between two sets of
    points.
    """
    distance = np.hypot(*(a[:, None] - b[None]).transpose(2, 0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        out: Floats = np.where(
            distance > 1e-12, distance**2 * (np.log(distance) - 1.0), 0.0
        )
    return out
