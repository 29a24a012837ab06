"""NumPy kernels of top-k, by a partition, and of argsort, by a sort of integers.

NumPy's stable argsort merges indices and looks up two numbers for each comparison. A
number of 32 bits and its index make one integer of 64 bits; no two are equal, so that
any sort of them is stable, and NumPy's sort of integers uses vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node
from rlxweb.ops.welch.cpu.strongest_bins import has_long_float_rows, strongest_bins

Array = NDArray[Any]
_SIGN_BIT = np.uint32(1 << 31)
_LARGEST = np.uint32((1 << 32) - 1)
_MIN_ELEMENTS, _MIN_LENGTH = 4096, 16
"""Elements of an array and of an axis from which this argsort is the faster one."""


def _topk(attrs: Attrs, x: Array) -> Array:
    """Return the indices of the k largest values."""
    n, k = x.shape[-1], attrs["k"]
    bins, _ = strongest_bins(x.reshape(-1, n), k)
    return bins.reshape(*x.shape[:-1], k).astype(np.int32)


def _is_long(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether argsort has many elements, of 32 bits at most."""
    (x,) = inputs
    length = x.shape[normalize_axis(attrs["axis"], x.rank)]
    is_large = x.numel >= _MIN_ELEMENTS and length >= _MIN_LENGTH
    return is_large and x.dtype.nbytes <= 4


def _argsort(attrs: Attrs, x: Array) -> Array:
    """Return the indices that sort an axis; numbers of 64 bits by the reference."""
    if x.dtype.itemsize > 4:
        by_reference: Array = registry.get("argsort").reference(np, attrs, x)
        return by_reference
    axis = normalize_axis(attrs["axis"], x.ndim)
    lines = np.moveaxis(x, axis, -1)
    keys = _ordered_keys(lines, attrs["descending"]).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(lines.shape[-1], dtype=np.uint64)
    keys.sort(axis=-1)
    return np.moveaxis(keys.astype(np.uint32).astype(np.int32), -1, axis)


def _ordered_keys(x: Array, descending: bool) -> Array:
    """Return unsigned integers in the order of numbers; NaN is last in both orders."""
    if x.dtype.kind == "f":
        # Adding 0 makes one zero of both, which are equal.
        bits = (x.astype(np.float32) + np.float32(0)).view(np.uint32)
        keys = np.where(bits & _SIGN_BIT, ~bits, bits | _SIGN_BIT)
    elif x.dtype.kind == "i":
        keys = x.astype(np.int32).view(np.uint32) ^ _SIGN_BIT
    else:
        keys = x.astype(np.uint32)
    keys = ~keys if descending else keys
    if x.dtype.kind == "f":
        keys[np.isnan(x)] = _LARGEST
    return keys


KERNELS = (
    KernelVariant(
        "argsort, as integers", "argsort", for_every_node(_argsort), _is_long
    ),
    KernelVariant(
        "topk, partition", "topk", for_every_node(_topk), has_long_float_rows
    ),
)
