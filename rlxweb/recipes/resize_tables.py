"""Resizing one axis as a table: which elements a result is of, and how much of each.

Nearest, linear and cubic interpolation, wider than the step between results where it is
smoothed (antialias), at the places that each way of ONNX's and PyTorch's puts results
at. What would lie outside is the edge again. Arithmetic alone: no graph, no device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.shape import bad_attribute

Floats = NDArray[np.float64]

MODES = ("nearest", "linear", "cubic")
PLACES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
ROUNDINGS: dict[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True, slots=True)
class Resizing:
    """How an axis is resized.

    mode             one of MODES
    place            one of PLACES: where in the array a result lies
    rounding         one of ROUNDINGS, of nearest
    cubic            the coefficient of the cubic kernel
    antialias        the kernel grows with the step between results
    exclude_outside  what lies outside has no weight, the rest more
    """

    mode: str = "nearest"
    place: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def __post_init__(self) -> None:
        for what, given, allowed in (
            ("mode", self.mode, MODES),
            ("place", self.place, PLACES),
            ("rounding", self.rounding, tuple(ROUNDINGS)),
        ):
            if given not in allowed:
                rule = "it is one of " + ", ".join(allowed)
                raise bad_attribute(f"a resizing by {what}={given!r}", rule)


class Table(NamedTuple):
    """For each result its elements and their weights, [results, taps].

    outside   results that lie outside of the array, if the way to place knows any
    """

    elements: NDArray[np.int32]
    weights: Floats
    outside: NDArray[np.bool_]


def places_of(
    n: int, out: int, scale: float, place: str, roi: tuple[float, float] = (0.0, 1.0)
) -> Floats:
    """Where in an axis of n elements the results lie.

    Corners are aligned by the whole number of results, as ONNX Runtime and PyTorch do
    it, not by scale * n, as ONNX's reference evaluator does.

    scale   results for an element, which need not be out / n
    roi     the part of the axis that is taken, of tf_crop_and_resize
    """
    i = np.arange(out, dtype=np.float64)
    if place == "asymmetric":
        return i / scale
    if place == "align_corners":
        return i * (n - 1) / max(1, out - 1)
    if place == "tf_crop_and_resize":
        start, length = roi[0] * (n - 1), (roi[1] - roi[0]) * (n - 1)
        return start + (i * length / (out - 1) if out > 1 else length / 2 + i)
    if place == "pytorch_half_pixel" and out == 1:
        return i
    made = (i + 0.5) / scale - 0.5
    if place == "half_pixel_symmetric":
        made += n / 2 * (1 - out / (scale * n))
    return made


def near(t: Any, a: float) -> Any:
    """The cubic kernel of coefficient a at 0 <= t <= 1, for arrays of any kind."""
    return (t * (a + 2) - (a + 3)) * t * t + 1.0


def far(t: Any, a: float) -> Any:
    """The same at 1 <= t <= 2; beyond it is 0."""
    return ((t * a - 5 * a) * t + 8 * a) * t - 4 * a


def _cubic(t: Floats, a: float) -> Floats:
    t = np.abs(t)
    return np.where(t <= 1, near(t, a), np.where(t < 2, far(t, a), 0.0))


def table_of(
    n: int,
    out: int,
    scale: float,
    how: Resizing,
    roi: tuple[float, float] = (0.0, 1.0),
) -> Table:
    """The table of one axis of at least one element."""
    x = places_of(n, out, scale, how.place, roi)
    outside = np.zeros(out, np.bool_)
    if how.place == "tf_crop_and_resize":
        outside = (x < 0) | (x > n - 1)
    if how.mode == "nearest":
        at: NDArray[Any] = ROUNDINGS[how.rounding](x)[:, None]
        weight = np.ones((out, 1))
    else:
        at, weight = _kernel(x, scale, how)
    if how.exclude_outside:
        weight = np.where((at < 0) | (at >= n), 0.0, weight)
        total = weight.sum(axis=1, keepdims=True)
        weight = weight / np.where(total == 0, 1.0, total)
    index = np.clip(at, 0, n - 1).astype(np.int32)
    return Table(index, weight, outside)


def _kernel(
    x: Floats, scale: float, how: Resizing
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The elements under the kernel around each place, and what it is there."""
    radius = 1 if how.mode == "linear" else 2
    narrow = min(scale, 1.0) if how.antialias else 1.0
    first = int(np.floor(-radius / narrow)) + 1
    at = np.floor(x)[:, None] + np.arange(first, 2 - first)
    far = (at - x[:, None]) * narrow
    if how.mode == "linear":
        weight = np.clip(1 - np.abs(far), 0, 1)
    else:
        weight = _cubic(far, how.cubic)
    if how.antialias:
        weight = weight / weight.sum(axis=1, keepdims=True)
    return at, weight
