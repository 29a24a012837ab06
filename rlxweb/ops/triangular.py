"""Triangular systems and Cholesky factors, of many matrices at once.

Where SciPy and NumPy raise LinAlgError, because of a 0 on the diagonal or a matrix that
is not positive definite, all of that matrix' result is NaN, on every engine: the others
of a batch are right all the same. The calls are laid out in `triangle_calls.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.batching import alike
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32
from rlxweb.ops.solve import few_enough, square, system_type
from rlxweb.ops.systems_back import cholesky_back, triangular_back
from rlxweb.recipes.triangle_calls import cholesky_recipe, solve_triangular_recipe

FEW_ROWS = 16
"""Rows up to which an engine's library goes row by row; above, by halves."""


def _infer_solve(types: Types, attrs: Attrs) -> TensorType:
    return system_type(types)


def _infer_cholesky(types: Types, attrs: Attrs) -> TensorType:
    need(types, FLOATS)
    square(types[0])
    return types[0]


def _solve(xp: Any, attrs: Attrs, a: Any, b: Any) -> Any:
    if 0 in b.shape:
        return b
    shape, (n, k) = b.shape, b.shape[-2:]
    a = xp.reshape(widened(xp, a), (-1, n, n))
    rights = xp.reshape(widened(xp, b), (-1, n, k))
    if attrs["unit_diagonal"]:
        a = xp.where(_diagonal(xp, n), xp.ones_like(a), a)
    if not attrs["lower"]:
        a, rights = _turned(xp, a, (1, 2)), _turned(xp, rights, (1,))
    # 1 for 0: what it gives is not used, and no library warns.
    zero = xp.any((a == 0) & _diagonal(xp, n), axis=(1, 2), keepdims=True)
    found = _substituted(xp, xp.where(zero, xp.ones_like(a), a), rights)
    if not attrs["lower"]:
        found = _turned(xp, found, (1,))
    made = xp.where(zero, xp.full_like(found, np.nan), found)
    return xp.asarray(xp.reshape(made, shape), dtype=b.dtype)


def _diagonal(xp: Any, n: int) -> Any:
    at = xp.arange(n)
    return xp.reshape(at, (1, n, 1)) == xp.reshape(at, (1, 1, n))


def _substituted(xp: Any, a: Any, b: Any) -> Any:
    """The x of a · x = b for lower triangles [B, n, n]: what is solved of the upper
    half of the rows is taken from the lower half by one product.
    """
    n = a.shape[1]
    half = n // 2 if n > FEW_ROWS else 1
    if n == 1:
        return b / a
    top = _substituted(xp, a[:, :half, :half], b[:, :half])
    rest = b[:, half:] - xp.matmul(a[:, half:, :half], top)
    return xp.concat([top, _substituted(xp, a[:, half:, half:], rest)], axis=1)


def _cholesky(xp: Any, attrs: Attrs, a: Any) -> Any:
    if 0 in a.shape:
        return a
    n = a.shape[-1]
    matrices = xp.reshape(widened(xp, a), (-1, n, n))
    if xp is np:
        made = _by_lapack(matrices)
    else:
        made, bad = _factored(xp, matrices)
        below = xp.reshape(xp.arange(n), (n, 1)) >= xp.arange(n)
        made = xp.where(below, made, xp.zeros_like(made))
        made = xp.where(bad, xp.full_like(made, np.nan), made)
    return xp.asarray(xp.reshape(made, a.shape), dtype=a.dtype)


def _by_lapack(a: Any) -> Any:
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        if len(a) == 1:
            return np.full_like(a, np.nan)
    return np.concatenate([_by_lapack(a[i : i + 1]) for i in range(len(a))])


def _factored(xp: Any, a: Any) -> tuple[Any, Any]:
    """The factor, by halves, and whether there is none [B, 1, 1].

    Libraries differ in what they say of matrices that are not positive definite, and
    some raise; products and quotients are alike in all.
    """
    n = a.shape[1]
    if n == 1:
        bad = ~(a > 0)
        return xp.sqrt(xp.where(bad, xp.ones_like(a), a)), bad
    half = n // 2
    top, bad = _factored(xp, a[:, :half, :half])
    left = _transposed(xp, _substituted(xp, top, _transposed(xp, a[:, half:, :half])))
    corner = a[:, half:, half:] - xp.matmul(left, _transposed(xp, left))
    last, worse = _factored(xp, corner)
    above = xp.zeros_like(_transposed(xp, left))
    rows = xp.concat([top, above], axis=2), xp.concat([left, last], axis=2)
    return xp.concat(list(rows), axis=1), bad | worse


def _transposed(xp: Any, a: Any) -> Any:
    return xp.permute_dims(a, (0, 2, 1))


def _turned(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    for axis in axes:
        x = xp.take(x, x.shape[axis] - 1 - xp.arange(x.shape[axis]), axis=axis)
    return x


# --- as other ops, where a device does not bind a whole matrix -----------------------


def _build_solve(g: Graph, attrs: Attrs, a: Tensor, b: Tensor) -> Tensor:
    (n, k), lead = b.shape[-2:], numel(b.shape[:-2])
    few_enough("solve_triangular", n)
    wide = in_f32(g, a, b)
    m, found = (g.reshape(x, (lead, n, w)) for x, w in zip(wide, (n, k), strict=True))
    at = g.constant(np.arange(n, dtype=np.int32)[:, None])
    bad = g.constant(np.zeros((1, 1, 1), np.bool_))
    for c in range(n) if attrs["lower"] else reversed(range(n)):
        column = g.narrow(m, 2, c, 1)
        own = g.narrow(found, 1, c, 1)
        if not attrs["unit_diagonal"]:
            pivot = g.narrow(column, 1, c, 1)
            own = own / pivot
            bad = bad | g.eq(pivot, 0.0)
        to_do = g.gt(at, c) if attrs["lower"] else g.lt(at, c)
        rest = g.where(to_do, found - column * own, found)
        found = g.where(g.eq(at, c), own, rest)
    made = g.reshape(g.where(bad, np.nan, found), b.shape)
    return made if wide[1] is b else g.cast(made, b.dtype)


def _build_cholesky(g: Graph, attrs: Attrs, a: Tensor) -> Tensor:
    lead, n = numel(a.shape[:-2]), a.shape[-1]
    few_enough("cholesky", n)
    (wide,) = in_f32(g, a)
    m = g.reshape(wide, (lead, n, n))
    at = g.constant(np.arange(n, dtype=np.int32)[:, None])
    bad, columns = g.constant(np.zeros((1, 1, 1), np.bool_)), []
    for c in range(n):
        column = g.narrow(m, 2, c, 1)
        pivot = g.narrow(column, 1, c, 1)
        none = ~g.gt(pivot, 0.0)
        root = g.sqrt(g.where(none, 1.0, pivot))
        column = g.where(g.lt(at, c), 0.0, column / root)
        columns.append(g.where(g.eq(at, c), root, column))
        m = m - columns[-1] * g.reshape(columns[-1], (lead, 1, n))
        bad = bad | none
    made = g.where(bad, np.nan, g.concat(columns, axis=2) if n else m)
    made = g.reshape(made, a.shape)
    return made if wide is a else g.cast(made, a.dtype)


def _solve_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 1.0 * out.numel * out.shape[-2]


def _cholesky_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return numel(out.shape[:-2]) * out.shape[-1] ** 3 / 3


def _system(
    batch: Shape,
    n: int,
    k: int,
    lower: bool = False,
    dtype: DType = DType.F32,
    note: str = "",
    unit: bool = False,
) -> Sample:
    a = Drawn((*batch, n, n), dtype, -1.0, 1.0, diagonal=0.0 if unit else 3.0)
    attrs = {"lower": lower, "unit_diagonal": unit}
    return Sample((a, Drawn((*batch, n, k), dtype)), attrs, note)


def _definite(batch: Shape, n: int, dtype: DType = DType.F32, note: str = "") -> Sample:
    """Of which the lower half is that of a matrix with a large diagonal."""
    a = Drawn((*batch, n, n), dtype, -1.0, 1.0, diagonal=1.0 + n)
    return Sample((a,), note=note)


SOLVED = Tolerance(rtol=1e-4, atol=2e-5, relative_to_peak=True)

registry.register_all(
    Op(
        name="solve_triangular",
        arity=2,
        attrs=(Attr("lower", "bool", False), Attr("unit_diagonal", "bool", False)),
        infer=_infer_solve,
        reference=_solve,
        lower=Kernel(solve_triangular_recipe, Compose(_build_solve)),
        traits=frozenset({"blas"}),
        flops=_solve_flops,
        tolerance=SOLVED,
        samples=(
            _system((), 1, 1),
            _system((), 5, 3),
            _system((2, 3), 4, 1, lower=True),
            _system((2,), 13, 9),
            _system((2,), 13, 9, lower=True),
            _system((2,), 6, 2, lower=True, unit=True, note="a diagonal of ones"),
            _system((), 6, 2, unit=True),
            _system((70_001,), 1, 1, note="many matrices"),
            _system((2,), 0, 3, note="no equations"),
            _system((0,), 3, 2, note="no matrices"),
            _system((), 3, 0, note="no right sides"),
            Sample(
                (Drawn((2, 3, 3), low=0.0, high=0.0), Drawn((2, 3, 2))),
                {"lower": True},
                note="0 on the diagonal: NaN",
            ),
            _system((), 4, 2, True, DType.F16),
            _system((2,), 4, 2, False, DType.F64),
        ),
        telling=(_system((4,), 8, 4), _system((4,), 32, 8), _system((8,), 64, 16)),
        vjp=triangular_back,
        batch=alike,
        doc="The x of a · x = b for upper or `lower` triangles a [..., n, n], of which "
        "the other half is not read, and right sides b [..., n, k]. A 0 on the "
        "diagonal gives NaN everywhere; `unit_diagonal` takes it for 1.",
    ),
    Op(
        name="cholesky",
        infer=_infer_cholesky,
        reference=_cholesky,
        lower=Kernel(cholesky_recipe, Compose(_build_cholesky)),
        flops=_cholesky_flops,
        tolerance=SOLVED,
        samples=(
            _definite((), 1),
            _definite((), 5),
            _definite((2, 3), 4),
            _definite((3,), 13),
            _definite((70_001,), 1, note="many matrices"),
            _definite((2,), 0),
            _definite((0,), 3),
            Sample((Drawn((2, 3, 3), low=1.0, high=1.0),), note="singular: NaN"),
            _definite((2,), 3, DType.F16),
            _definite((2,), 4, DType.F64),
        ),
        telling=(_definite((4,), 8), _definite((4,), 32), _definite((8,), 64)),
        vjp=cholesky_back,
        batch=alike,
        doc="The lower triangle L of L · Lᵀ = a for matrices a [..., n, n], of which "
        "the lower half is read. NaN everywhere where a is not positive definite.",
    ),
)
