"""Products of float32 in a browser's Python, by WebAssembly of our own.

NumPy has no BLAS there and takes 30 times as long as a processor needs. What cannot be
computed so, or where a browser refuses the module, is left to NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.machine.making import fast_mode
from rlxweb.machine.wasm import IN_A_TAB, opened
from rlxweb.machine.wasm_products import products_module, room_of

LEAST: Final = 1 << 14
"""Multiplications from which it pays to leave NumPy."""
Array = NDArray[Any]
_F32 = np.dtype(np.float32)
_Product = Callable[..., None]


def product() -> _Product | None:
    """The function; None where there is no WebAssembly, it is refused or unwanted."""
    return _product() if IN_A_TAB and fast_mode() != "off" else None


@cache
def _product() -> _Product | None:
    for fused in (True, False):
        try:
            return opened(products_module(fused=fused), "product")
        except OSError:  # a browser without relaxed SIMD, or without any
            continue
    return None


def matmul(x: Array, y: Array) -> Array:
    """`numpy.matmul` of at least two axes each."""
    out = np.empty(
        (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]),
        np.result_type(x, y),
    )
    return np.matmul(x, y, out=out) if not into(x, y, out) else out


def into(x: Array, y: Array, out: Array) -> bool:
    """The product into an array, if it is one for this: was it done?"""
    function = product()
    if function is None or not x.dtype == y.dtype == out.dtype == _F32:
        return False
    rows, terms, columns = *x.shape[-2:], y.shape[-1]
    if out.size * terms < LEAST or out.strides[-1] != 4:
        return False
    if y.ndim == 2 and out.ndim > 2 and out.flags.c_contiguous and x.ndim == out.ndim:
        x, out = x.reshape(-1, terms), out.reshape(-1, columns)
        rows = len(x)
    x, y = _in_rows(x), _in_rows(y)
    room = np.empty(room_of(terms), np.float32)
    steps = x.strides[-2], y.strides[-2], out.strides[-2], room.ctypes.data
    a, b, c = x.ctypes.data, y.ctypes.data, out.ctypes.data
    for i, j, k in _starts(x, y, out):
        function(a + i, b + j, c + k, rows, terms, columns, *steps)
    return True


def _starts(x: Array, y: Array, out: Array) -> Iterable[tuple[int, int, int]]:
    """Where each matrix of a batch begins, in bytes."""
    batch = out.shape[:-2]
    if not batch:
        return ((0, 0, 0),)
    x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
    y = np.broadcast_to(y, (*batch, *y.shape[-2:]))
    every = [np.zeros(1, np.int64)] * 3
    for at, size in enumerate(batch):
        every = [
            (one[:, None] + np.arange(size) * step.strides[at]).reshape(-1)
            for one, step in zip(every, (x, y, out), strict=True)
        ]
    return zip(*(one.tolist() for one in every), strict=True)


def _in_rows(x: Array) -> Array:
    """With elements of a row side by side, and rows that do not go backwards."""
    well = x.strides[-1] == 4 and x.strides[-2] >= 0 and x.strides[-2] % 4 == 0
    return x if well else np.ascontiguousarray(x)


def is_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Of float32, and large enough."""
    x, y = inputs[:2]
    if product() is None or min(x.rank, y.rank) < 2:
        return False
    floats = all(one.dtype is DType.F32 for one in inputs)
    return floats and out.numel * x.shape[-1] >= LEAST


def by_matmul(attrs: Attrs, x: Array, y: Array) -> Array:
    """`matmul`."""
    return matmul(x, y)


def dense(attrs: Attrs, x: Array, w: Array, bias: Array) -> Array:
    """`fused_matmul_bias_act`."""
    made = matmul(x, w)
    made += bias
    kind = attrs["activation"]
    if kind is None:
        return made
    done: Array = registry.get(kind).reference(np, {}, made)
    return done


ROWS: Final[dict[str, Callable[..., Any]]] = (
    {"matmul": by_matmul, "fused_matmul_bias_act": dense} if IN_A_TAB else {}
)
"""Op → its way, where there is one."""
