"""Systems of linear equations and determinants, of many matrices at once.

Gaussian elimination with partial pivoting. Where NumPy raises LinAlgError, because a
pivot is exactly 0, the unknowns of that matrix are NaN, all of them, on every engine:
the other matrices of a batch are right all the same. Its determinant is 0. The calls
are laid out in `lu_calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlxweb.advice import Advice
from rlxweb.errors import Unsupported
from rlxweb.ir.batching import alike
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_shape, numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32
from rlxweb.ops.systems_back import det_back, slogdet_back, solve_back
from rlxweb.recipes.lu_calls import det_recipe, slogdet_recipe, solve_recipe

MOST_UNROLLED = 96
"""Columns that are written out one by one."""


def square(a: TensorType) -> None:
    """Errors  ShapeError."""
    if a.rank < 2 or a.shape[-1] != a.shape[-2]:
        raise bad_shape(f"a is {show(a.shape)}", "matrices are square: [..., n, n]")


def _infer_solve(types: Types, attrs: Attrs) -> TensorType:
    return system_type(types)


def system_type(types: Types) -> TensorType:
    """That of the unknowns. Errors  ShapeError, DTypeError."""
    a, b = types
    dtype = same_dtype(types)
    need(types, FLOATS)
    square(a)
    if b.rank != a.rank or b.shape[:-1] != a.shape[:-1]:
        raise bad_shape(
            f"a {show(a.shape)} and b {show(b.shape)}",
            "[..., n, n] and [..., n, k], of one batch",
            "the graph's method broadcasts batches, and takes vectors",
        )
    return TensorType(b.shape, dtype)


def _infer_det(types: Types, attrs: Attrs) -> TensorType:
    need(types, FLOATS)
    square(types[0])
    return TensorType(types[0].shape[:-2], types[0].dtype)


def _infer_slogdet(types: Types, attrs: Attrs) -> TensorType:
    one = _infer_det(types, attrs)
    return TensorType((2, *one.shape), one.dtype)


def _solve(xp: Any, attrs: Attrs, a: Any, b: Any) -> Any:
    if 0 in b.shape:
        return b
    shape, (n, k) = b.shape, b.shape[-2:]
    matrices = xp.reshape(widened(xp, a), (-1, n, n))
    rights = xp.reshape(widened(xp, b), (-1, n, k))
    made = _solver(xp)(matrices, rights)
    return xp.asarray(xp.reshape(made, shape), dtype=b.dtype)


def _solver(xp: Any) -> Callable[[Any, Any], Any]:
    """Each library's own, as far as it tells of singular matrices."""
    own = getattr(xp, "linalg", None)
    if xp is np:
        return _by_lapack
    if hasattr(own, "solve_ex"):  # PyTorch
        return partial(_by_status, xp)
    if hasattr(own, "tensorsolve"):  # JAX, CuPy: they divide by 0
        return partial(_by_quotients, xp)
    return partial(_by_rows, xp)


def _by_lapack(a: Any, b: Any) -> Any:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        if len(a) == 1:
            return np.full_like(b, np.nan)
    ones = [_by_lapack(a[i : i + 1], b[i : i + 1]) for i in range(len(a))]
    return np.concatenate(ones)


def _by_status(xp: Any, a: Any, b: Any) -> Any:
    found, status = xp.linalg.solve_ex(a, b)
    bad = xp.reshape(status != 0, (-1, 1, 1))
    return xp.where(bad, xp.full_like(found, np.nan), found)


def _by_quotients(xp: Any, a: Any, b: Any) -> Any:
    found = xp.linalg.solve(a, b)
    good = xp.all(xp.isfinite(found), axis=(1, 2), keepdims=True)
    return xp.where(good, found, xp.full_like(found, np.nan))


def _by_rows(xp: Any, a: Any, b: Any) -> Any:
    """By elimination, where a library has none that can be asked (MLX)."""
    n = a.shape[1]
    whole, sign = _eliminated(xp, xp.concat([a, b], axis=2), n)
    rows = xp.reshape(xp.arange(n), (1, n, 1))
    found = whole[:, :, n:]
    for c in reversed(range(n)):
        own = found[:, c : c + 1, :] / whole[:, c : c + 1, c : c + 1]
        above = found - whole[:, :, c : c + 1] * own
        found = xp.where(rows < c, above, xp.where(rows == c, own, found))
    bad = xp.reshape(sign == 0, (-1, 1, 1))
    return xp.where(bad, xp.full_like(found, np.nan), found)


def _eliminated(xp: Any, m: Any, n: int) -> tuple[Any, Any]:
    """Upper triangles, and the signs of the exchanges, 0 where a pivot was 0."""
    at = xp.reshape(xp.arange(n), (1, n))
    sign = xp.ones_like(m[:, 0, 0])
    for c in range(n):
        column = xp.abs(m[:, :, c])
        column = xp.where(at < c, xp.full_like(column, -1.0), column)
        found = xp.reshape(xp.argmax(column, axis=1), (-1, 1))
        order = xp.where(at == c, found, xp.where(at == found, at * 0 + c, at))
        m = xp.take_along_axis(m, xp.reshape(order, (*order.shape, 1)), axis=1)
        sign = xp.where(found[:, 0] == c, sign, -sign)
        pivot = m[:, c : c + 1, c : c + 1]
        none = pivot == 0
        sign = xp.where(none[:, 0, 0], xp.zeros_like(sign), sign)
        factors = m[:, :, c : c + 1] / xp.where(none, xp.ones_like(pivot), pivot)
        below = xp.reshape(at > c, (1, n, 1))
        m = xp.where(below, m - factors * m[:, c : c + 1, :], m)
    return m, sign


def _det(xp: Any, attrs: Attrs, a: Any) -> Any:
    lead, n = a.shape[:-2], a.shape[-1]
    wide = widened(xp, a)
    if not n or not numel(lead):
        return xp.ones(lead, dtype=a.dtype)
    if hasattr(getattr(xp, "linalg", None), "tensorsolve"):
        return xp.asarray(xp.linalg.det(wide), dtype=a.dtype)
    m, made = _eliminated(xp, xp.reshape(wide, (-1, n, n)), n)
    for c in range(n):
        made = made * m[:, c, c]
    return xp.asarray(xp.reshape(made, lead), dtype=a.dtype)


def _slogdet(xp: Any, attrs: Attrs, a: Any) -> Any:
    lead, n = a.shape[:-2], a.shape[-1]
    wide = widened(xp, a)
    if not n or not numel(lead):
        ones = xp.ones(lead, dtype=a.dtype)
        return xp.stack([ones, xp.zeros_like(ones)])
    own = getattr(getattr(xp, "linalg", None), "slogdet", None)
    if own is not None:
        found = own(xp.reshape(wide, (-1, n, n)))
        made = xp.stack([xp.reshape(one, lead) for one in found])
        return xp.asarray(made, dtype=a.dtype)
    m, sign = _eliminated(xp, xp.reshape(wide, (-1, n, n)), n)
    none, logs = sign == 0, xp.zeros_like(sign)
    for c in range(n):
        pivot = m[:, c, c]
        sign = sign * xp.sign(pivot)
        logs = logs + xp.log(xp.abs(pivot))
    logs = xp.where(none, xp.full_like(logs, -np.inf), logs)
    made = xp.stack([xp.reshape(one, lead) for one in (sign, logs)])
    return xp.asarray(made, dtype=a.dtype)


# --- as other ops, where a device does not bind a whole matrix -----------------------


def few_enough(doing: str, n: int) -> None:
    """Errors  Unsupported for more columns than are written out one by one."""
    if n > MOST_UNROLLED:
        raise Unsupported(
            f"{doing} of {n} rows",
            "one matrix is larger than what this device binds at once",
            f"up to {MOST_UNROLLED} columns are written out one by one",
            Advice("use {}", device="cpu"),
        )


def _swept(g: Graph, doing: str, m: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """As `_eliminated`, of [B, n, width], in a graph."""
    few_enough(doing, n)
    B, _, width = m.shape
    at = g.constant(np.arange(n, dtype=np.int32)[None, :])
    sign = g.expand(g.constant(1.0, m.dtype), (B, 1))
    for c in range(n):
        column = g.abs(g.reshape(g.narrow(m, 2, c, 1), (B, n)))
        found = g.topk(g.where(g.lt(at, c), -1.0, column), 1)
        order = g.where(g.eq(at, c), found, g.where(g.eq(at, found), c, at))
        order = g.expand(g.reshape(order, (B, n, 1)), (B, n, width))
        m = g.gather_elements(m, order, 1)
        sign = g.where(g.eq(found, c), sign, -sign)
        row = g.narrow(m, 1, c, 1)
        pivot = g.narrow(row, 2, c, 1)
        none = g.eq(pivot, 0.0)
        sign = g.where(g.reshape(none, (B, 1)), 0.0, sign)
        factors = g.narrow(m, 2, c, 1) / g.where(none, 1.0, pivot)
        m = g.where(g.gt(g.reshape(at, (1, n, 1)), c), m - factors * row, m)
    return m, sign


def _build_solve(g: Graph, attrs: Attrs, a: Tensor, b: Tensor) -> Tensor:
    (n, k), lead = b.shape[-2:], numel(b.shape[:-2])
    wide = in_f32(g, a, b)
    sides = [g.reshape(x, (lead, n, w)) for x, w in zip(wide, (n, k), strict=True)]
    whole = g.concat(sides, axis=2)
    m, sign = _swept(g, "solve", whole, n)
    found, at = g.narrow(m, 2, n, k), g.constant(np.arange(n, dtype=np.int32)[:, None])
    for c in reversed(range(n)):
        column = g.narrow(m, 2, c, 1)
        own = g.narrow(found, 1, c, 1) / g.narrow(column, 1, c, 1)
        above = g.where(g.lt(at, c), found - column * own, found)
        found = g.where(g.eq(at, c), own, above)
    bad = g.eq(g.reshape(sign, (lead, 1, 1)), 0.0)
    made = g.reshape(g.where(bad, np.nan, found), b.shape)
    return made if wide[1] is b else g.cast(made, b.dtype)


def _build_det(g: Graph, attrs: Attrs, a: Tensor) -> Tensor:
    lead, n = a.shape[:-2], a.shape[-1]
    if not n:
        return g.expand(g.constant(1.0, a.dtype), lead)
    (wide,) = in_f32(g, a)
    m, made = _swept(g, "det", g.reshape(wide, (numel(lead), n, n)), n)
    for c in range(n):
        made = made * g.reshape(g.narrow(g.narrow(m, 1, c, 1), 2, c, 1), made.shape)
    made = g.reshape(made, lead)
    return made if wide is a else g.cast(made, a.dtype)


def _build_slogdet(g: Graph, attrs: Attrs, a: Tensor) -> Tensor:
    lead, n = a.shape[:-2], a.shape[-1]
    if not n:
        ends = np.array([1.0, 0.0]).reshape(2, *(1 for _ in lead))
        return g.expand(g.constant(ends, a.dtype), (2, *lead))
    (wide,) = in_f32(g, a)
    m, sign = _swept(g, "slogdet", g.reshape(wide, (numel(lead), n, n)), n)
    none, logs = g.eq(sign, 0.0), g.constant(0.0, wide.dtype)
    for c in range(n):
        pivot = g.reshape(g.narrow(g.narrow(m, 1, c, 1), 2, c, 1), sign.shape)
        sign = sign * g.sign(pivot)
        logs = logs + g.log(abs(pivot))
    logs = g.where(none, -np.inf, logs)
    made = g.stack([g.reshape(one, lead) for one in (sign, logs)])
    return made if wide is a else g.cast(made, a.dtype)


def _solve_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    n, k = out.shape[-2:]
    return numel(out.shape[:-2]) * (2 * n**3 / 3 + 2.0 * n * n * k)


def _det_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return numel(inputs[0].shape[:-2]) * 2.0 * inputs[0].shape[-1] ** 3 / 3


def _system(
    batch: Shape,
    n: int,
    k: int,
    dtype: DType = DType.F32,
    low: float = -2.0,
    note: str = "",
) -> Sample:
    sizes = ((*batch, n, n), (*batch, n, k))
    return Sample(tuple(Drawn(s, dtype, low, 2.0) for s in sizes), note=note)


def _matrix(
    batch: Shape, n: int, dtype: DType = DType.F32, low: float = -2.0, note: str = ""
) -> Sample:
    return Sample((Drawn((*batch, n, n), dtype, low, 2.0),), note=note)


# Matrices are drawn: of those here the worst has a condition of some thousands.
SOLVED = Tolerance(rtol=1e-3, atol=2e-4, relative_to_peak=True)

registry.register_all(
    Op(
        name="solve",
        arity=2,
        infer=_infer_solve,
        reference=_solve,
        lower=Kernel(solve_recipe, Compose(_build_solve)),
        traits=frozenset({"blas"}),
        flops=_solve_flops,
        tolerance=SOLVED,
        samples=(
            _system((), 1, 1),
            _system((), 5, 3),
            _system((2, 3), 4, 1),
            _system((2,), 13, 9),
            _system((70_001,), 1, 1, low=0.5, note="many matrices"),
            _system((2,), 0, 3, note="no equations"),
            _system((0,), 3, 2, note="no matrices"),
            _system((), 3, 0, note="no right sides"),
            Sample(
                (Drawn((2, 3, 3), low=1.0, high=1.0), Drawn((2, 3, 2))),
                note="singular: NaN",
            ),
            _system((), 4, 2, DType.F16),
            _system((2,), 4, 2, DType.F64),
        ),
        telling=(_system((4,), 8, 4), _system((4,), 32, 8), _system((8,), 64, 16)),
        vjp=solve_back,
        batch=alike,
        doc="The x of a · x = b for matrices a [..., n, n] and right sides "
        "b [..., n, k]. A matrix with a pivot of exactly 0, where NumPy raises "
        "LinAlgError, gives NaN everywhere.",
    ),
    Op(
        name="det",
        infer=_infer_det,
        reference=_det,
        lower=Kernel(det_recipe, Compose(_build_det)),
        flops=_det_flops,
        tolerance=SOLVED,
        samples=(
            _matrix((), 1),
            _matrix((), 5),
            _matrix((2, 3), 4),
            _matrix((3,), 13),
            _matrix((70_001,), 1, note="many matrices"),
            _matrix((2,), 0, note="of nothing: 1"),
            _matrix((0,), 3),
            Sample((Drawn((2, 3, 3), low=1.0, high=1.0),), note="singular: 0"),
            _matrix((2,), 3, DType.F16),
            _matrix((2,), 4, DType.F64),
        ),
        telling=(_matrix((4,), 8), _matrix((4,), 32), _matrix((8,), 64)),
        onnx=("Det",),
        vjp=det_back,
        batch=alike,
        doc="The determinants of matrices [..., n, n], one for each.",
    ),
    Op(
        name="slogdet",
        infer=_infer_slogdet,
        reference=_slogdet,
        lower=Kernel(slogdet_recipe, Compose(_build_slogdet)),
        flops=_det_flops,
        tolerance=SOLVED,
        samples=(
            _matrix((), 1),
            _matrix((2, 3), 4),
            _matrix((3,), 13),
            _matrix((70_001,), 1, note="many matrices"),
            _matrix((2,), 0, note="of nothing: 1 and 0"),
            _matrix((0,), 3),
            Sample((Drawn((2, 3, 3), low=1.0, high=1.0),), note="singular: 0 and -inf"),
            _matrix((2,), 3, DType.F16),
            _matrix((2,), 4, DType.F64),
        ),
        telling=(_matrix((4,), 8), _matrix((4,), 32), _matrix((8,), 64)),
        vjp=slogdet_back,
        batch=lambda at: at.g.swapaxes(at.apply(at.x), 0, 1),
        doc="The signs of the determinants of matrices [..., n, n], and the logarithms "
        "of their absolute values: [2, ...]. Of a singular one 0 and -infinity.",
    ),
)
