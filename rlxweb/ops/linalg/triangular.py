"""Ops of triangular matrices, for batches: `solve_triangular` and `cholesky`.

Where SciPy and NumPy raise LinAlgError, because of a 0 on the diagonal or a matrix that
is not positive definite, all of that matrix' result is NaN, on every engine: the others
of a batch are right all the same. The kernels are planned in
`wgsl/triangular.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import batch_all_operands
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, require_dtypes
from rlxweb.ops.linalg.op import check_square, check_unrollable, infer_system
from rlxweb.ops.linalg.vjp import cholesky_vjp, solve_triangular_vjp
from rlxweb.ops.linalg.wgsl.triangular import (
    plan_cholesky,
    plan_solve_triangular,
)
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors

MAX_SUBSTITUTED_ROWS = 16
"""Largest number of rows solved row by row on an array library; larger systems are
split in halves.
"""


def _infer_solve(types: Types, attrs: Attrs) -> TensorType:
    return infer_system(types)


def _infer_cholesky(types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types, FLOAT_DTYPES)
    check_square(types[0])
    return types[0]


def _solve_reference(xp: Any, attrs: Attrs, a: Any, b: Any) -> Any:
    if 0 in b.shape:
        return b
    shape, (n, k) = b.shape, b.shape[-2:]
    a = xp.reshape(widen_float16(xp, a), (-1, n, n))
    right_sides = xp.reshape(widen_float16(xp, b), (-1, n, k))
    if attrs["unit_diagonal"]:
        a = xp.where(_diagonal(xp, n), xp.ones_like(a), a)
    if not attrs["lower"]:
        a = _reverse_axes(xp, a, (1, 2))
        right_sides = _reverse_axes(xp, right_sides, (1,))
    # 1 for 0: what it gives is not used, and no library warns.
    is_singular = xp.any((a == 0) & _diagonal(xp, n), axis=(1, 2), keepdims=True)
    solution = _forward_substitute(
        xp, xp.where(is_singular, xp.ones_like(a), a), right_sides
    )
    if not attrs["lower"]:
        solution = _reverse_axes(xp, solution, (1,))
    result = xp.where(is_singular, xp.full_like(solution, np.nan), solution)
    return xp.asarray(xp.reshape(result, shape), dtype=b.dtype)


def _diagonal(xp: Any, n: int) -> Any:
    """Return a mask of the diagonal [1, n, n]."""
    indices = xp.arange(n)
    return xp.reshape(indices, (1, n, 1)) == xp.reshape(indices, (1, 1, n))


def _forward_substitute(xp: Any, a: Any, b: Any) -> Any:
    """Solve a · x = b for lower triangles [B, n, n] by recursive halves: one product
    removes the upper half's solution from the lower half.
    """
    n = a.shape[1]
    half = n // 2 if n > MAX_SUBSTITUTED_ROWS else 1
    if n == 1:
        return b / a
    top = _forward_substitute(xp, a[:, :half, :half], b[:, :half])
    residual = b[:, half:] - xp.matmul(a[:, half:, :half], top)
    return xp.concat(
        [top, _forward_substitute(xp, a[:, half:, half:], residual)], axis=1
    )


def _cholesky_reference(xp: Any, attrs: Attrs, a: Any) -> Any:
    if 0 in a.shape:
        return a
    n = a.shape[-1]
    matrices = xp.reshape(widen_float16(xp, a), (-1, n, n))
    if xp is np:
        factors = _cholesky_lapack(matrices)
    else:
        factors, is_indefinite = _factorize(xp, matrices)
        is_lower = xp.reshape(xp.arange(n), (n, 1)) >= xp.arange(n)
        factors = xp.where(is_lower, factors, xp.zeros_like(factors))
        factors = xp.where(is_indefinite, xp.full_like(factors, np.nan), factors)
    return xp.asarray(xp.reshape(factors, a.shape), dtype=a.dtype)


def _cholesky_lapack(a: Any) -> Any:
    """Factorize by LAPACK, matrix by matrix after a failure, with NaN where there is no
    factor.
    """
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        if len(a) == 1:
            return np.full_like(a, np.nan)
    return np.concatenate([_cholesky_lapack(a[i : i + 1]) for i in range(len(a))])


def _factorize(xp: Any, a: Any) -> tuple[Any, Any]:
    """Return the factor, by recursive halves, and whether there is none [B, 1, 1].

    Libraries differ in what they say of matrices that are not positive definite, and
    some raise; products and quotients are alike in all.
    """
    n = a.shape[1]
    if n == 1:
        is_indefinite = ~(a > 0)
        return xp.sqrt(xp.where(is_indefinite, xp.ones_like(a), a)), is_indefinite
    half = n // 2
    top, is_indefinite = _factorize(xp, a[:, :half, :half])
    left = _transpose(
        xp, _forward_substitute(xp, top, _transpose(xp, a[:, half:, :half]))
    )
    corner = a[:, half:, half:] - xp.matmul(left, _transpose(xp, left))
    last, is_corner_indefinite = _factorize(xp, corner)
    above = xp.zeros_like(_transpose(xp, left))
    rows = xp.concat([top, above], axis=2), xp.concat([left, last], axis=2)
    return xp.concat(list(rows), axis=1), is_indefinite | is_corner_indefinite


def _transpose(xp: Any, a: Any) -> Any:
    return xp.permute_dims(a, (0, 2, 1))


def _reverse_axes(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """Reverse some axes of an array."""
    for axis in axes:
        x = xp.take(x, x.shape[axis] - 1 - xp.arange(x.shape[axis]), axis=axis)
    return x


# --- as other ops, where a device does not bind a whole matrix -----------------------


def _build_solve(g: Graph, attrs: Attrs, a: Tensor, b: Tensor) -> Tensor:
    (n, k), batch_count = b.shape[-2:], numel(b.shape[:-2])
    check_unrollable("solve_triangular", n)
    wide = widen_float16_tensors(g, a, b)
    m, solution = (
        g.reshape(x, (batch_count, n, w)) for x, w in zip(wide, (n, k), strict=True)
    )
    row_numbers = g.constant(np.arange(n, dtype=np.int32)[:, None])
    is_singular = g.constant(np.zeros((1, 1, 1), np.bool_))
    for c in range(n) if attrs["lower"] else reversed(range(n)):
        column = g.narrow(m, 2, c, 1)
        unknown = g.narrow(solution, 1, c, 1)
        if not attrs["unit_diagonal"]:
            pivot = g.narrow(column, 1, c, 1)
            unknown = unknown / pivot
            is_singular = is_singular | g.eq(pivot, 0.0)
        is_unsolved = g.gt(row_numbers, c) if attrs["lower"] else g.lt(row_numbers, c)
        updated = g.where(is_unsolved, solution - column * unknown, solution)
        solution = g.where(g.eq(row_numbers, c), unknown, updated)
    result = g.reshape(g.where(is_singular, np.nan, solution), b.shape)
    return result if wide[1] is b else g.cast(result, b.dtype)


def _build_cholesky(g: Graph, attrs: Attrs, a: Tensor) -> Tensor:
    batch_count, n = numel(a.shape[:-2]), a.shape[-1]
    check_unrollable("cholesky", n)
    (wide,) = widen_float16_tensors(g, a)
    m = g.reshape(wide, (batch_count, n, n))
    row_numbers = g.constant(np.arange(n, dtype=np.int32)[:, None])
    is_indefinite, columns = g.constant(np.zeros((1, 1, 1), np.bool_)), []
    for c in range(n):
        column = g.narrow(m, 2, c, 1)
        pivot = g.narrow(column, 1, c, 1)
        is_not_positive = ~g.gt(pivot, 0.0)
        root = g.sqrt(g.where(is_not_positive, 1.0, pivot))
        column = g.where(g.lt(row_numbers, c), 0.0, column / root)
        columns.append(g.where(g.eq(row_numbers, c), root, column))
        m = m - columns[-1] * g.reshape(columns[-1], (batch_count, 1, n))
        is_indefinite = is_indefinite | is_not_positive
    result = g.where(is_indefinite, np.nan, g.concat(columns, axis=2) if n else m)
    result = g.reshape(result, a.shape)
    return result if wide is a else g.cast(result, a.dtype)


def _solve_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 1.0 * out.numel * out.shape[-2]


def _cholesky_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return numel(out.shape[:-2]) * out.shape[-1] ** 3 / 3


def _system_case(
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


def _definite_case(
    batch: Shape, n: int, dtype: DType = DType.F32, note: str = ""
) -> Sample:
    """Return a sample whose lower half is that of a matrix with a large diagonal."""
    a = Drawn((*batch, n, n), dtype, -1.0, 1.0, diagonal=1.0 + n)
    return Sample((a,), note=note)


TRIANGULAR_TOLERANCE = Tolerance(rtol=1e-4, atol=2e-5, relative_to_peak=True)

registry.register_all(
    Op(
        name="solve_triangular",
        arity=2,
        attrs=(Attr("lower", "bool", False), Attr("unit_diagonal", "bool", False)),
        infer=_infer_solve,
        reference=_solve_reference,
        lower=Kernel(plan_solve_triangular, Compose(_build_solve)),
        traits=frozenset({"blas"}),
        flops=_solve_flops,
        tolerance=TRIANGULAR_TOLERANCE,
        samples=(
            _system_case((), 1, 1),
            _system_case((), 5, 3),
            _system_case((2, 3), 4, 1, lower=True),
            _system_case((2,), 13, 9),
            _system_case((2,), 13, 9, lower=True),
            _system_case((2,), 6, 2, lower=True, unit=True, note="a diagonal of ones"),
            _system_case((), 6, 2, unit=True),
            _system_case((70_001,), 1, 1, note="many matrices"),
            _system_case((2,), 0, 3, note="no equations"),
            _system_case((0,), 3, 2, note="no matrices"),
            _system_case((), 3, 0, note="no right-hand sides"),
            Sample(
                (Drawn((2, 3, 3), low=0.0, high=0.0), Drawn((2, 3, 2))),
                {"lower": True},
                note="0 on the diagonal: NaN",
            ),
            _system_case((), 4, 2, True, DType.F16),
            _system_case((2,), 4, 2, False, DType.F64),
        ),
        calibration_cases=(
            _system_case((4,), 8, 4),
            _system_case((4,), 32, 8),
            _system_case((8,), 64, 16),
        ),
        vjp=solve_triangular_vjp,
        batch=batch_all_operands,
        doc="The solution x of a · x = b for right-hand sides b [..., n, k] and "
        "triangular matrices a [..., n, n], upper or `lower`; the other triangle "
        "of a is not read. A 0 on the diagonal gives NaN everywhere; "
        "`unit_diagonal` treats the diagonal as 1.",
    ),
    Op(
        name="cholesky",
        infer=_infer_cholesky,
        reference=_cholesky_reference,
        lower=Kernel(plan_cholesky, Compose(_build_cholesky)),
        flops=_cholesky_flops,
        tolerance=TRIANGULAR_TOLERANCE,
        samples=(
            _definite_case((), 1),
            _definite_case((), 5),
            _definite_case((2, 3), 4),
            _definite_case((3,), 13),
            _definite_case((70_001,), 1, note="many matrices"),
            _definite_case((2,), 0),
            _definite_case((0,), 3),
            Sample((Drawn((2, 3, 3), low=1.0, high=1.0),), note="singular: NaN"),
            _definite_case((2,), 3, DType.F16),
            _definite_case((2,), 4, DType.F64),
        ),
        calibration_cases=(
            _definite_case((4,), 8),
            _definite_case((4,), 32),
            _definite_case((8,), 64),
        ),
        vjp=cholesky_vjp,
        batch=batch_all_operands,
        doc="The lower triangular matrix L with L · Lᵀ = a for matrices a [..., n, n]; "
        "only the lower triangle of a is read. For a matrix that is not positive "
        "definite, the result is NaN everywhere.",
    ),
)
