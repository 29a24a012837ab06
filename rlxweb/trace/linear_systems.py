"""NumPy linear algebra of square matrices on traced arrays: solve, inv, det, powers.

A singular matrix gives NaN where NumPy raises LinAlgError: that shows in the values.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from rlxweb.trace.matrix_products import dot, matmul
from rlxweb.trace.numpy_dispatch import implements
from rlxweb.trace.reductions import require_real
from rlxweb.trace.trace import Trace
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.traced_array import TracedArray


class SlogdetResult(NamedTuple):
    """Result of `numpy.linalg.slogdet`, with NumPy's field names."""

    sign: TracedArray
    logabsdet: TracedArray


def _lapack_operands(t: Trace, name: str, *values: Any) -> list[TracedArray]:
    """Return the values as real matrices in the dtype that LAPACK would compute in."""
    arrays = [require_real(t, value, name) for value in values]
    common_dtype = np.result_type(*(x.dtype for x in arrays))
    if common_dtype == np.float16:
        raise trace_error(
            name,
            "NumPy's linear algebra does not support float16",
            hint="cast the operands to float32",
        )
    common_dtype = (
        t.effective_dtype(np.float64) if common_dtype.kind in "biu" else common_dtype
    )
    return [t.as_traced(x, common_dtype) for x in arrays]


@implements(np.linalg.solve)
def _solve(t: Trace, a: Any, b: Any) -> Any:
    x, y = _lapack_operands(t, "np.linalg.solve", a, b)
    return TracedArray(t, t.graph.solve(x.re, y.re), None, x.dtype)


@implements(np.linalg.inv)
def inv(t: Trace, a: Any) -> Any:
    """Implement `numpy.linalg.inv` for traced arrays."""
    (x,) = _lapack_operands(t, "np.linalg.inv", a)
    return TracedArray(t, t.graph.inv(x.re), None, x.dtype)


@implements(np.linalg.det)
def _det(t: Trace, a: Any) -> Any:
    (x,) = _lapack_operands(t, "np.linalg.det", a)
    return TracedArray(t, t.graph.det(x.re), None, x.dtype)


@implements(np.linalg.slogdet)
def _slogdet(t: Trace, a: Any) -> Any:
    (x,) = _lapack_operands(t, "np.linalg.slogdet", a)
    sign, log_magnitude = t.graph.slogdet(x.re)
    return SlogdetResult(
        TracedArray(t, sign, None, x.dtype),
        TracedArray(t, log_magnitude, None, x.dtype),
    )


@implements(np.linalg.cholesky)
def _cholesky(t: Trace, a: Any, /, *, upper: bool = False) -> Any:
    (x,) = _lapack_operands(t, "np.linalg.cholesky", a)
    return TracedArray(t, t.graph.cholesky(x.re, upper=upper), None, x.dtype)


@implements(np.linalg.matrix_power)
def _matrix_power(t: Trace, a: Any, n: Any) -> Any:
    if isinstance(n, TracedArray):
        n.__index__()
    x = t.as_traced(a)
    if n < 0:
        x, n = inv(t, x), -n
    if not n:
        identity: Any = np.eye(x.shape[-1], dtype=x.dtype)
        return t.as_traced(np.broadcast_to(identity, x.shape).copy())
    power, square = None, x
    while n:
        if n % 2:
            power = square.copy() if power is None else matmul(t, power, square)
        n //= 2
        square = matmul(t, square, square) if n else square
    return power


@implements(np.linalg.multi_dot)
def _multi_dot(t: Trace, arrays: Any, *, out: Any = None) -> Any:
    return reduce(lambda x, y: dot(t, x, y), list(arrays))
