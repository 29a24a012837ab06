"""Linear systems of equations and determinants, for batches of matrices.

Gaussian elimination with partial pivoting. Where NumPy raises LinAlgError, because a
pivot is exactly 0, the unknowns of that matrix are NaN, all of them, on every engine:
the other matrices of a batch are right all the same. Its determinant is 0. The
kernels are planned in `wgsl/plan.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlxweb.core.errors import Unsupported
from rlxweb.core.message_text import Advice
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape, bad_shape, format_shape, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import batch_all_operands
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.linalg.vjp import det_vjp, slogdet_vjp, solve_vjp
from rlxweb.ops.linalg.wgsl.plan import plan_det, plan_slogdet, plan_solve
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors

MAX_UNROLLED_COLUMNS = 96
"""Largest number of columns that are unrolled into graph nodes."""


def check_square(a: TensorType) -> None:
    """Check that the operand holds square matrices. Errors  ShapeError."""
    if a.rank < 2 or a.shape[-1] != a.shape[-2]:
        raise bad_shape(
            f"a is {format_shape(a.shape)}", "matrices must be square: [..., n, n]"
        )


def _infer_solve(types: Types, attrs: Attrs) -> TensorType:
    return infer_system(types)


def infer_system(types: Types) -> TensorType:
    """Return the type of the unknowns. Errors  ShapeError, DTypeError."""
    a, b = types
    dtype = common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    check_square(a)
    if b.rank != a.rank or b.shape[:-1] != a.shape[:-1]:
        raise bad_shape(
            f"got a {format_shape(a.shape)} and b {format_shape(b.shape)}",
            "expected a [..., n, n] and b [..., n, k] with the same batch axes",
            "pass b with as many rows as a; the methods graph.solve and "
            "graph.solve_triangular also broadcast batch axes and accept vectors b",
        )
    return TensorType(b.shape, dtype)


def _infer_det(types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types, FLOAT_DTYPES)
    check_square(types[0])
    return TensorType(types[0].shape[:-2], types[0].dtype)


def _infer_slogdet(types: Types, attrs: Attrs) -> TensorType:
    matrix_type = _infer_det(types, attrs)
    return TensorType((2, *matrix_type.shape), matrix_type.dtype)


def _solve(xp: Any, attrs: Attrs, a: Any, b: Any) -> Any:
    if 0 in b.shape:
        return b
    shape, (n, k) = b.shape, b.shape[-2:]
    matrices = xp.reshape(widen_float16(xp, a), (-1, n, n))
    right_sides = xp.reshape(widen_float16(xp, b), (-1, n, k))
    unknowns = _library_solver(xp)(matrices, right_sides)
    return xp.asarray(xp.reshape(unknowns, shape), dtype=b.dtype)


def _library_solver(xp: Any) -> Callable[[Any, Any], Any]:
    """Return each library's own solver, as far as it reports singular matrices."""
    linalg = getattr(xp, "linalg", None)
    if xp is np:
        return _solve_lapack
    if hasattr(linalg, "solve_ex"):  # PyTorch
        return partial(_solve_with_status, xp)
    if hasattr(linalg, "tensorsolve"):  # JAX, CuPy: they divide by 0
        return partial(_solve_finite_checked, xp)
    return partial(_solve_by_elimination, xp)


def _solve_lapack(a: Any, b: Any) -> Any:
    """Solve by LAPACK, matrix by matrix after a failure, with NaN for singular
    matrices.
    """
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        if len(a) == 1:
            return np.full_like(b, np.nan)
    solutions = [_solve_lapack(a[i : i + 1], b[i : i + 1]) for i in range(len(a))]
    return np.concatenate(solutions)


def _solve_with_status(xp: Any, a: Any, b: Any) -> Any:
    """Solve by PyTorch's solve_ex, with NaN where its status reports a singular
    matrix.
    """
    solution, status = xp.linalg.solve_ex(a, b)
    is_singular = xp.reshape(status != 0, (-1, 1, 1))
    return xp.where(is_singular, xp.full_like(solution, np.nan), solution)


def _solve_finite_checked(xp: Any, a: Any, b: Any) -> Any:
    """Solve by a library that divides by 0, and set results that are not finite to
    NaN.
    """
    solution = xp.linalg.solve(a, b)
    is_finite = xp.all(xp.isfinite(solution), axis=(1, 2), keepdims=True)
    return xp.where(is_finite, solution, xp.full_like(solution, np.nan))


def _solve_by_elimination(xp: Any, a: Any, b: Any) -> Any:
    """Solve by elimination, for libraries without a usable solver (MLX)."""
    n = a.shape[1]
    triangles, sign = _eliminate(xp, xp.concat([a, b], axis=2), n)
    rows = xp.reshape(xp.arange(n), (1, n, 1))
    solution = triangles[:, :, n:]
    for c in reversed(range(n)):
        unknown = solution[:, c : c + 1, :] / triangles[:, c : c + 1, c : c + 1]
        updated = solution - triangles[:, :, c : c + 1] * unknown
        solution = xp.where(rows < c, updated, xp.where(rows == c, unknown, solution))
    is_singular = xp.reshape(sign == 0, (-1, 1, 1))
    return xp.where(is_singular, xp.full_like(solution, np.nan), solution)


def _eliminate(xp: Any, m: Any, n: int) -> tuple[Any, Any]:
    """Return the upper triangles, and the signs of the row exchanges, 0 where a pivot
    was 0.
    """
    row_numbers = xp.reshape(xp.arange(n), (1, n))
    sign = xp.ones_like(m[:, 0, 0])
    for c in range(n):
        column = xp.abs(m[:, :, c])
        column = xp.where(row_numbers < c, xp.full_like(column, -1.0), column)
        pivot_rows = xp.reshape(xp.argmax(column, axis=1), (-1, 1))
        order = xp.where(
            row_numbers == c,
            pivot_rows,
            xp.where(row_numbers == pivot_rows, row_numbers * 0 + c, row_numbers),
        )
        m = xp.take_along_axis(m, xp.reshape(order, (*order.shape, 1)), axis=1)
        sign = xp.where(pivot_rows[:, 0] == c, sign, -sign)
        pivot = m[:, c : c + 1, c : c + 1]
        is_zero = pivot == 0
        sign = xp.where(is_zero[:, 0, 0], xp.zeros_like(sign), sign)
        factors = m[:, :, c : c + 1] / xp.where(is_zero, xp.ones_like(pivot), pivot)
        is_below = xp.reshape(row_numbers > c, (1, n, 1))
        m = xp.where(is_below, m - factors * m[:, c : c + 1, :], m)
    return m, sign


def _det(xp: Any, attrs: Attrs, a: Any) -> Any:
    batch_shape, n = a.shape[:-2], a.shape[-1]
    wide = widen_float16(xp, a)
    if not n or not numel(batch_shape):
        return xp.ones(batch_shape, dtype=a.dtype)
    if hasattr(getattr(xp, "linalg", None), "tensorsolve"):
        return xp.asarray(xp.linalg.det(wide), dtype=a.dtype)
    m, determinants = _eliminate(xp, xp.reshape(wide, (-1, n, n)), n)
    for c in range(n):
        determinants = determinants * m[:, c, c]
    return xp.asarray(xp.reshape(determinants, batch_shape), dtype=a.dtype)


def _slogdet(xp: Any, attrs: Attrs, a: Any) -> Any:
    batch_shape, n = a.shape[:-2], a.shape[-1]
    wide = widen_float16(xp, a)
    if not n or not numel(batch_shape):
        ones = xp.ones(batch_shape, dtype=a.dtype)
        return xp.stack([ones, xp.zeros_like(ones)])
    library_slogdet = getattr(getattr(xp, "linalg", None), "slogdet", None)
    if library_slogdet is not None:
        parts = library_slogdet(xp.reshape(wide, (-1, n, n)))
        result = xp.stack([xp.reshape(part, batch_shape) for part in parts])
        return xp.asarray(result, dtype=a.dtype)
    m, sign = _eliminate(xp, xp.reshape(wide, (-1, n, n)), n)
    is_singular, logs = sign == 0, xp.zeros_like(sign)
    for c in range(n):
        pivot = m[:, c, c]
        sign = sign * xp.sign(pivot)
        logs = logs + xp.log(xp.abs(pivot))
    logs = xp.where(is_singular, xp.full_like(logs, -np.inf), logs)
    result = xp.stack([xp.reshape(part, batch_shape) for part in (sign, logs)])
    return xp.asarray(result, dtype=a.dtype)


# --- as other ops, where a device does not bind a whole matrix -----------------------


def check_unrollable(context: str, n: int) -> None:
    """Check that the columns can be unrolled. Errors  Unsupported."""
    if n > MAX_UNROLLED_COLUMNS:
        raise Unsupported(
            f"{context} of a {n} × {n} matrix",
            "one matrix does not fit into one buffer binding of this device, so the "
            "loop over its columns must be unrolled",
            f"at most {MAX_UNROLLED_COLUMNS} columns can be unrolled",
            Advice("use {}", device="cpu"),
        )


def _build_elimination(
    g: Graph, context: str, m: Tensor, n: int
) -> tuple[Tensor, Tensor]:
    """Build the elimination of [B, n, width] in a graph, as `_eliminate` does."""
    check_unrollable(context, n)
    B, _, width = m.shape
    row_numbers = g.constant(np.arange(n, dtype=np.int32)[None, :])
    sign = g.expand(g.constant(1.0, m.dtype), (B, 1))
    for c in range(n):
        column = g.abs(g.reshape(g.narrow(m, 2, c, 1), (B, n)))
        pivot_rows = g.topk(g.where(g.lt(row_numbers, c), -1.0, column), 1)
        order = g.where(
            g.eq(row_numbers, c),
            pivot_rows,
            g.where(g.eq(row_numbers, pivot_rows), c, row_numbers),
        )
        order = g.expand(g.reshape(order, (B, n, 1)), (B, n, width))
        m = g.gather_elements(m, order, 1)
        sign = g.where(g.eq(pivot_rows, c), sign, -sign)
        row = g.narrow(m, 1, c, 1)
        pivot = g.narrow(row, 2, c, 1)
        is_zero = g.eq(pivot, 0.0)
        sign = g.where(g.reshape(is_zero, (B, 1)), 0.0, sign)
        factors = g.narrow(m, 2, c, 1) / g.where(is_zero, 1.0, pivot)
        m = g.where(g.gt(g.reshape(row_numbers, (1, n, 1)), c), m - factors * row, m)
    return m, sign


def _build_solve(g: Graph, attrs: Attrs, a: Tensor, b: Tensor) -> Tensor:
    (n, k), batch_count = b.shape[-2:], numel(b.shape[:-2])
    wide = widen_float16_tensors(g, a, b)
    sides = [
        g.reshape(x, (batch_count, n, w)) for x, w in zip(wide, (n, k), strict=True)
    ]
    augmented = g.concat(sides, axis=2)
    m, sign = _build_elimination(g, "solve", augmented, n)
    solution = g.narrow(m, 2, n, k)
    row_numbers = g.constant(np.arange(n, dtype=np.int32)[:, None])
    for c in reversed(range(n)):
        column = g.narrow(m, 2, c, 1)
        unknown = g.narrow(solution, 1, c, 1) / g.narrow(column, 1, c, 1)
        updated = g.where(g.lt(row_numbers, c), solution - column * unknown, solution)
        solution = g.where(g.eq(row_numbers, c), unknown, updated)
    is_singular = g.eq(g.reshape(sign, (batch_count, 1, 1)), 0.0)
    result = g.reshape(g.where(is_singular, np.nan, solution), b.shape)
    return result if wide[1] is b else g.cast(result, b.dtype)


def _build_det(g: Graph, attrs: Attrs, a: Tensor) -> Tensor:
    batch_shape, n = a.shape[:-2], a.shape[-1]
    if not n:
        return g.expand(g.constant(1.0, a.dtype), batch_shape)
    (wide,) = widen_float16_tensors(g, a)
    m, determinants = _build_elimination(
        g, "det", g.reshape(wide, (numel(batch_shape), n, n)), n
    )
    for c in range(n):
        determinants = determinants * g.reshape(
            g.narrow(g.narrow(m, 1, c, 1), 2, c, 1), determinants.shape
        )
    determinants = g.reshape(determinants, batch_shape)
    return determinants if wide is a else g.cast(determinants, a.dtype)


def _build_slogdet(g: Graph, attrs: Attrs, a: Tensor) -> Tensor:
    batch_shape, n = a.shape[:-2], a.shape[-1]
    if not n:
        values = np.array([1.0, 0.0]).reshape(2, *(1 for _ in batch_shape))
        return g.expand(g.constant(values, a.dtype), (2, *batch_shape))
    (wide,) = widen_float16_tensors(g, a)
    m, sign = _build_elimination(
        g, "slogdet", g.reshape(wide, (numel(batch_shape), n, n)), n
    )
    is_singular, logs = g.eq(sign, 0.0), g.constant(0.0, wide.dtype)
    for c in range(n):
        pivot = g.reshape(g.narrow(g.narrow(m, 1, c, 1), 2, c, 1), sign.shape)
        sign = sign * g.sign(pivot)
        logs = logs + g.log(abs(pivot))
    logs = g.where(is_singular, -np.inf, logs)
    result = g.stack([g.reshape(part, batch_shape) for part in (sign, logs)])
    return result if wide is a else g.cast(result, a.dtype)


def _solve_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    n, k = out.shape[-2:]
    return numel(out.shape[:-2]) * (2 * n**3 / 3 + 2.0 * n * n * k)


def _det_flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return numel(inputs[0].shape[:-2]) * 2.0 * inputs[0].shape[-1] ** 3 / 3


def _system_case(
    batch: Shape,
    n: int,
    k: int,
    dtype: DType = DType.F32,
    low: float = -2.0,
    note: str = "",
) -> Sample:
    sizes = ((*batch, n, n), (*batch, n, k))
    return Sample(tuple(Drawn(s, dtype, low, 2.0) for s in sizes), note=note)


def _matrix_case(
    batch: Shape, n: int, dtype: DType = DType.F32, low: float = -2.0, note: str = ""
) -> Sample:
    return Sample((Drawn((*batch, n, n), dtype, low, 2.0),), note=note)


# Matrices are drawn: of those here the worst has a condition of some thousands.
SOLVE_TOLERANCE = Tolerance(rtol=1e-3, atol=2e-4, relative_to_peak=True)

registry.register_all(
    Op(
        name="solve",
        arity=2,
        infer=_infer_solve,
        reference=_solve,
        lower=Kernel(plan_solve, Compose(_build_solve)),
        traits=frozenset({"blas"}),
        flops=_solve_flops,
        tolerance=SOLVE_TOLERANCE,
        samples=(
            _system_case((), 1, 1),
            _system_case((), 5, 3),
            _system_case((2, 3), 4, 1),
            _system_case((2,), 13, 9),
            _system_case((70_001,), 1, 1, low=0.5, note="many matrices"),
            _system_case((2,), 0, 3, note="no equations"),
            _system_case((0,), 3, 2, note="no matrices"),
            _system_case((), 3, 0, note="no right-hand sides"),
            Sample(
                (Drawn((2, 3, 3), low=1.0, high=1.0), Drawn((2, 3, 2))),
                note="singular: NaN",
            ),
            _system_case((), 4, 2, DType.F16),
            _system_case((2,), 4, 2, DType.F64),
        ),
        calibration_cases=(
            _system_case((4,), 8, 4),
            _system_case((4,), 32, 8),
            _system_case((8,), 64, 16),
        ),
        vjp=solve_vjp,
        batch=batch_all_operands,
        doc="The solution x of a · x = b for matrices a [..., n, n] and right-hand "
        "sides b [..., n, k]. A matrix with a pivot of exactly 0, where NumPy raises "
        "LinAlgError, gives NaN everywhere.",
    ),
    Op(
        name="det",
        infer=_infer_det,
        reference=_det,
        lower=Kernel(plan_det, Compose(_build_det)),
        flops=_det_flops,
        tolerance=SOLVE_TOLERANCE,
        samples=(
            _matrix_case((), 1),
            _matrix_case((), 5),
            _matrix_case((2, 3), 4),
            _matrix_case((3,), 13),
            _matrix_case((70_001,), 1, note="many matrices"),
            _matrix_case((2,), 0, note="empty matrices: 1"),
            _matrix_case((0,), 3),
            Sample((Drawn((2, 3, 3), low=1.0, high=1.0),), note="singular: 0"),
            _matrix_case((2,), 3, DType.F16),
            _matrix_case((2,), 4, DType.F64),
        ),
        calibration_cases=(
            _matrix_case((4,), 8),
            _matrix_case((4,), 32),
            _matrix_case((8,), 64),
        ),
        onnx=("Det",),
        vjp=det_vjp,
        batch=batch_all_operands,
        doc="The determinants of matrices [..., n, n], one per matrix.",
    ),
    Op(
        name="slogdet",
        infer=_infer_slogdet,
        reference=_slogdet,
        lower=Kernel(plan_slogdet, Compose(_build_slogdet)),
        flops=_det_flops,
        tolerance=SOLVE_TOLERANCE,
        samples=(
            _matrix_case((), 1),
            _matrix_case((2, 3), 4),
            _matrix_case((3,), 13),
            _matrix_case((70_001,), 1, note="many matrices"),
            _matrix_case((2,), 0, note="empty matrices: 1 and 0"),
            _matrix_case((0,), 3),
            Sample((Drawn((2, 3, 3), low=1.0, high=1.0),), note="singular: 0 and -inf"),
            _matrix_case((2,), 3, DType.F16),
            _matrix_case((2,), 4, DType.F64),
        ),
        calibration_cases=(
            _matrix_case((4,), 8),
            _matrix_case((4,), 32),
            _matrix_case((8,), 64),
        ),
        vjp=slogdet_vjp,
        batch=lambda ctx: ctx.g.swapaxes(ctx.apply(ctx.x), 0, 1),
        doc="The sign of the determinant of each matrix [..., n, n] and the "
        "logarithm of its absolute value, stacked as [2, ...]. A singular matrix "
        "gives 0 and -infinity.",
    ),
)
