"""NumPy's linear algebra of whole matrices over traced arrays: systems and powers.

A singular matrix gives NaN where NumPy raises LinAlgError: that shows in the values.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from rlxweb.tracing.place import refused
from rlxweb.tracing.products import dot, matmul
from rlxweb.tracing.reductions import real_of
from rlxweb.tracing.table import numpys
from rlxweb.tracing.trace import Trace
from rlxweb.tracing.traced import Traced


class Signed(NamedTuple):
    """As numpy.linalg.slogdet names them."""

    sign: Traced
    logabsdet: Traced


def _operands(t: Trace, name: str, *values: Any) -> list[Traced]:
    """Real matrices in the dtype that LAPACK would take them in."""
    every = [real_of(t, one, name) for one in values]
    kind = np.result_type(*(x.dtype for x in every))
    if kind == np.float16:
        raise refused(name, "NumPy has no float16 systems", hint="cast to float32")
    kind = t.settled(np.float64) if kind.kind in "biu" else kind
    return [t.lifted(x, kind) for x in every]


@numpys(np.linalg.solve)
def _solve(t: Trace, a: Any, b: Any) -> Any:
    x, y = _operands(t, "np.linalg.solve", a, b)
    return Traced(t, t.graph.solve(x.re, y.re), None, x.dtype)


@numpys(np.linalg.inv)
def inv(t: Trace, a: Any) -> Any:
    """`numpy.linalg.inv`."""
    (x,) = _operands(t, "np.linalg.inv", a)
    return Traced(t, t.graph.inv(x.re), None, x.dtype)


@numpys(np.linalg.det)
def _det(t: Trace, a: Any) -> Any:
    (x,) = _operands(t, "np.linalg.det", a)
    return Traced(t, t.graph.det(x.re), None, x.dtype)


@numpys(np.linalg.slogdet)
def _slogdet(t: Trace, a: Any) -> Any:
    (x,) = _operands(t, "np.linalg.slogdet", a)
    sign, logs = t.graph.slogdet(x.re)
    return Signed(Traced(t, sign, None, x.dtype), Traced(t, logs, None, x.dtype))


@numpys(np.linalg.cholesky)
def _cholesky(t: Trace, a: Any, /, *, upper: bool = False) -> Any:
    (x,) = _operands(t, "np.linalg.cholesky", a)
    return Traced(t, t.graph.cholesky(x.re, upper=upper), None, x.dtype)


@numpys(np.linalg.matrix_power)
def _matrix_power(t: Trace, a: Any, n: Any) -> Any:
    if isinstance(n, Traced):
        n.__index__()
    x = t.lifted(a)
    if n < 0:
        x, n = inv(t, x), -n
    if not n:
        made: Any = np.eye(x.shape[-1], dtype=x.dtype)
        return t.lifted(np.broadcast_to(made, x.shape).copy())
    found, square = None, x
    while n:
        if n % 2:
            found = square.copy() if found is None else matmul(t, found, square)
        n //= 2
        square = matmul(t, square, square) if n else square
    return found


@numpys(np.linalg.multi_dot)
def _multi_dot(t: Trace, arrays: Any, *, out: Any = None) -> Any:
    return reduce(lambda x, y: dot(t, x, y), list(arrays))
