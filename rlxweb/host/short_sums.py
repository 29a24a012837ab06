"""Sums of many floats by NumPy: short runs in single precision, those in double.

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
from rlxweb.ir.shape import normal_axes

RUN: Final = 128
"""Elements of a run."""
_LEAST: Final = 1 << 16
"""Elements from which the second call costs less than it saves."""


def is_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Many elements of float32, whole runs of them along one axis or all; or one."""
    x = inputs[0]
    axes = normal_axes(attrs["axes"], x.rank)
    count = prod(x.shape[at] for at in axes)
    many = x.numel >= _LEAST and count >= 4 * RUN
    return x.dtype is DType.F32 and (many or count == 1)


def in_runs(op: str) -> Callable[..., NDArray[Any]]:
    """Sum or mean as (attrs, x) → array: float64 of what runs add up to, rounded."""

    def run(attrs: Attrs, x: NDArray[Any]) -> NDArray[Any]:
        axes = normal_axes(attrs["axes"], x.ndim)
        if axes and x.dtype.kind == "f" and all(x.shape[at] == 1 for at in axes):
            rest = (n for at, n in enumerate(x.shape) if at not in axes)
            return x if attrs["keep_dim"] else x.reshape(tuple(rest))
        if axes and x.dtype == np.float32:
            made = _sums(axes, attrs["keep_dim"], x)
            if op == "mean":
                made /= prod(x.shape[at] for at in axes)
            if np.isfinite(made).all():
                return made.astype(np.float32)
        # What one run may not hold, as they may together.
        found: NDArray[Any] = registry.get(op).reference(np, attrs, x)
        return found

    return run


def _sums(axes: Sequence[int], keep: bool, x: NDArray[Any]) -> NDArray[Any]:
    along = max(axes, key=lambda at: x.shape[at])
    whole = x.shape[along] // RUN * RUN
    cut = [slice(None)] * along
    runs = x[(*cut, slice(0, whole))]
    split = (*x.shape[:along], whole // RUN, RUN, *x.shape[along + 1 :])
    partial = runs.reshape(split).sum(axis=along + 1)
    how: dict[str, Any] = {"axis": tuple(axes), "keepdims": keep, "dtype": np.float64}
    made = partial.sum(**how)
    rest = x[(*cut, slice(whole, None))]
    return np.asarray(made + rest.sum(**how) if rest.size else made)
