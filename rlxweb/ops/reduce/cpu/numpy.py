"""Fast sums and means of large float32 arrays by NumPy: short runs added in float32,
their totals in float64.

NumPy adds up float32 in float64 by converting element for element, which takes five
times as long as adding. A run of so few elements loses no more than the ops' own
references allow theirs. What is added up of one element each is that element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import normalize_sorted_axes
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node

RUN_LENGTH: Final = 128
"""Elements of a run."""
_MIN_ELEMENTS: Final = 1 << 16
"""Minimum elements for which the second call costs less than it saves."""


def is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether there are many float32 elements, with whole runs along one axis,
    or just one per sum.
    """
    x = inputs[0]
    axes = normalize_sorted_axes(attrs["axes"], x.rank)
    count = prod(x.shape[axis] for axis in axes)
    is_large = x.numel >= _MIN_ELEMENTS and count >= 4 * RUN_LENGTH
    return x.dtype is DType.F32 and (is_large or count == 1)


def sum_in_runs(op: str) -> Callable[..., NDArray[Any]]:
    """Return sum or mean as (attrs, x) → array: float64 totals of single-precision
    runs, rounded.
    """

    def reduce(attrs: Attrs, x: NDArray[Any]) -> NDArray[Any]:
        axes = normalize_sorted_axes(attrs["axes"], x.ndim)
        if axes and x.dtype.kind == "f" and all(x.shape[axis] == 1 for axis in axes):
            dims = (n for axis, n in enumerate(x.shape) if axis not in axes)
            return x if attrs["keep_dim"] else x.reshape(tuple(dims))
        if axes and x.dtype == np.float32:
            total = _run_sums(axes, attrs["keep_dim"], x)
            if op == "mean":
                total /= prod(x.shape[axis] for axis in axes)
            if np.isfinite(total).all():
                return total.astype(np.float32)
        # What one run may not hold, as they may together.
        result: NDArray[Any] = registry.get(op).reference(np, attrs, x)
        return result

    return reduce


def _run_sums(axes: Sequence[int], keep_dims: bool, x: NDArray[Any]) -> NDArray[Any]:
    """Return the float64 sums over the axes; runs along the longest axis are summed in
    float32.
    """
    longest_axis = max(axes, key=lambda axis: x.shape[axis])
    run_elements = x.shape[longest_axis] // RUN_LENGTH * RUN_LENGTH
    leading = [slice(None)] * longest_axis
    runs = x[(*leading, slice(0, run_elements))]
    run_shape = (
        *x.shape[:longest_axis],
        run_elements // RUN_LENGTH,
        RUN_LENGTH,
        *x.shape[longest_axis + 1 :],
    )
    partial = runs.reshape(run_shape).sum(axis=longest_axis + 1)
    sum_options: dict[str, Any] = {
        "axis": tuple(axes),
        "keepdims": keep_dims,
        "dtype": np.float64,
    }
    total = partial.sum(**sum_options)
    rest = x[(*leading, slice(run_elements, None))]
    return np.asarray(total + rest.sum(**sum_options) if rest.size else total)


KERNELS = tuple(
    KernelVariant(
        f"{op}, short runs", op, for_every_node(sum_in_runs(op)), is_supported
    )
    for op in ("sum", "mean")
)
