"""The error function of float32 by NumPy: one quotient of polynomials, part by part.

Near 0 and far from it are one formula, so that nothing is computed twice and chosen
from; a part and what is made of it lie in a core's nearest caches.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry

# x P(x^2) / Q(x^2) is erf(x) for |x| <= _END, fitted by us to 2e-8 relative; float32
# computes it to 4e-7. At _END it gives exactly 1, which erf is from there on.
_END: Final = np.float32(3.92)
_ABOVE: Final = (
    *(1.12837914, 0.191530194, 0.0528728282),
    *(0.00380732, 0.000284671831, 2.02609197e-06),
)
_BELOW: Final = (
    *(1.0, 0.503071894, 0.114551348),
    *(0.0150533908, 0.00117052823, 3.78329032e-05),
)
_PART: Final = 1 << 14
"""Elements at a time."""


def is_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """In float32 alone: the reference serves the others."""
    return out.dtype is DType.F32


def erf(attrs: Attrs, x: NDArray[Any]) -> NDArray[Any]:
    """Of an array of any shape; by the reference where it is not float32."""
    if x.dtype != np.float32:
        made: NDArray[Any] = registry.get("erf").reference(np, attrs, x)
        return made
    out = pool.empty(x.shape, np.float32)
    given, made = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    room = np.empty((3, min(_PART, x.size)), np.float32)
    for begin in range(0, x.size, _PART):
        some = given[begin : begin + _PART]
        _erf(some, room[:, : some.size], made[begin : begin + _PART])
    return out


def _erf(x: NDArray[Any], room: NDArray[Any], out: NDArray[Any]) -> None:
    near, square, below = room
    np.clip(x, -_END, _END, out=near)
    np.multiply(near, near, out=square)
    _polynomial(_ABOVE, square, out)
    _polynomial(_BELOW, square, below)
    out *= near
    out /= below
    np.clip(out, -1.0, 1.0, out=out)


def _polynomial(terms: tuple[float, ...], x: NDArray[Any], out: NDArray[Any]) -> None:
    np.multiply(x, np.float32(terms[-1]), out=out)
    for term in terms[-2:0:-1]:
        out += np.float32(term)
        out *= x
    out += np.float32(terms[0])
