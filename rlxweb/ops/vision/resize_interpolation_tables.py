"""Interpolation tables for resizing one axis: the source elements of each result and
their weights.

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

from rlxweb.ir.shape_arithmetic import bad_attribute

FloatArray = NDArray[np.float64]

MODES = ("nearest", "linear", "cubic")
COORDINATE_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
ROUNDINGS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True, slots=True)
class ResizeOptions:
    """Options for resizing one axis.

    mode             one of MODES
    coordinate_mode  one of PLACES: where in the array a result lies
    rounding         one of ROUNDINGS, of nearest
    cubic_coefficient  the coefficient of the cubic kernel
    antialias        the kernel grows with the step between results
    exclude_outside  what lies outside has no weight, the rest more
    """

    mode: str = "nearest"
    coordinate_mode: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_coefficient: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def __post_init__(self) -> None:
        for option, value, allowed in (
            ("mode", self.mode, MODES),
            ("place", self.coordinate_mode, COORDINATE_MODES),
            ("rounding", self.rounding, tuple(ROUNDINGS)),
        ):
            if value not in allowed:
                rule = "expected one of " + ", ".join(allowed)
                raise bad_attribute(f"{option}={value!r} in a resize", rule)


class InterpolationTable(NamedTuple):
    """Source elements of every result and their weights, [results, taps].

    outside   results that lie outside of the array, if the way to place knows any
    """

    elements: NDArray[np.int32]
    weights: FloatArray
    outside: NDArray[np.bool_]


def source_coordinates(
    n: int,
    out: int,
    scale: float,
    coordinate_mode: str,
    roi: tuple[float, float] = (0.0, 1.0),
) -> FloatArray:
    """Return the coordinates of the results in an axis of n elements.

    Corners are aligned by the whole number of results, as ONNX Runtime and PyTorch do
    it, not by scale * n, as ONNX's reference evaluator does.

    scale   results for an element, which need not be out / n
    roi     the part of the axis that is taken, of tf_crop_and_resize
    """
    i = np.arange(out, dtype=np.float64)
    if coordinate_mode == "asymmetric":
        return i / scale
    if coordinate_mode == "align_corners":
        return i * (n - 1) / max(1, out - 1)
    if coordinate_mode == "tf_crop_and_resize":
        start, length = roi[0] * (n - 1), (roi[1] - roi[0]) * (n - 1)
        return start + (i * length / (out - 1) if out > 1 else length / 2 + i)
    if coordinate_mode == "pytorch_half_pixel" and out == 1:
        return i
    coordinates = (i + 0.5) / scale - 0.5
    if coordinate_mode == "half_pixel_symmetric":
        coordinates += n / 2 * (1 - out / (scale * n))
    return coordinates


def cubic_kernel_inner(t: Any, a: float) -> Any:
    """Return the cubic kernel of coefficient a at 0 <= t <= 1, for arrays of any
    kind.
    """
    return (t * (a + 2) - (a + 3)) * t * t + 1.0


def cubic_kernel_outer(t: Any, a: float) -> Any:
    """Return the cubic kernel of coefficient a at 1 <= t <= 2; beyond 2 it is 0."""
    return ((t * a - 5 * a) * t + 8 * a) * t - 4 * a


def _cubic_kernel(t: FloatArray, a: float) -> FloatArray:
    """Return the cubic kernel of coefficient a at any distance t."""
    t = np.abs(t)
    return np.where(
        t <= 1, cubic_kernel_inner(t, a), np.where(t < 2, cubic_kernel_outer(t, a), 0.0)
    )


def interpolation_table(
    n: int,
    out: int,
    scale: float,
    options: ResizeOptions,
    roi: tuple[float, float] = (0.0, 1.0),
) -> InterpolationTable:
    """Return the interpolation table of one axis of at least one element."""
    coordinates = source_coordinates(n, out, scale, options.coordinate_mode, roi)
    outside = np.zeros(out, np.bool_)
    if options.coordinate_mode == "tf_crop_and_resize":
        outside = (coordinates < 0) | (coordinates > n - 1)
    if options.mode == "nearest":
        elements: NDArray[Any] = ROUNDINGS[options.rounding](coordinates)[:, None]
        weight = np.ones((out, 1))
    else:
        elements, weight = _kernel_taps(coordinates, scale, options)
    if options.exclude_outside:
        weight = np.where((elements < 0) | (elements >= n), 0.0, weight)
        total = weight.sum(axis=1, keepdims=True)
        weight = weight / np.where(total == 0, 1.0, total)
    index = np.clip(elements, 0, n - 1).astype(np.int32)
    return InterpolationTable(index, weight, outside)


def _kernel_taps(
    coordinates: FloatArray, scale: float, options: ResizeOptions
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the elements under the kernel around each coordinate and their weights."""
    radius = 1 if options.mode == "linear" else 2
    kernel_scale = min(scale, 1.0) if options.antialias else 1.0
    first = int(np.floor(-radius / kernel_scale)) + 1
    elements = np.floor(coordinates)[:, None] + np.arange(first, 2 - first)
    distance = (elements - coordinates[:, None]) * kernel_scale
    if options.mode == "linear":
        weight = np.clip(1 - np.abs(distance), 0, 1)
    else:
        weight = _cubic_kernel(distance, options.cubic_coefficient)
    if options.antialias:
        weight = weight / weight.sum(axis=1, keepdims=True)
    return elements, weight
