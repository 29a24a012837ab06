"""Grouped matmul: each row times the matrix of its own group, as in mixtures of
experts.

A row's group is an index. One that names no group makes a row of zeros, as behind the
last group of jax.lax.ragged_dot: nothing is refused, since routers drop rows so. Rows
may come in any order; neighbours of one group share what they read. Float32 sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir import value_range_rules
from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import (
    BufferRef,
    Compose,
    IterationAxis,
    Kernel,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.gather.index_validation import require_index_dtype
from rlxweb.ops.matmul.op import MATMUL_TOLERANCE, widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors

COLUMNS_PER_INVOCATION = 4
"""Columns of a result that one invocation computes."""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, w, groups = types
    dtype = common_dtype((x, w))
    require_dtypes((x, w), FLOAT_DTYPES)
    require_index_dtype(groups)
    fits = x.rank == 2 and w.rank == 3 and groups.shape == x.shape[:1]
    if not fits or x.shape[1] != w.shape[1]:
        raise bad_shape(
            f"got x {format_shape(x.shape)}, w {format_shape(w.shape)}, groups "
            f"{format_shape(groups.shape)}",
            "x must be [M, K], w [G, K, N] and groups [M]",
        )
    return TensorType((x.shape[0], w.shape[2]), dtype)


def _kernel_plan(inputs: Types, out: TensorType, attrs: Attrs) -> KernelPlan | None:
    (count, k, n), m = inputs[1].shape, out.shape[0]
    if not k or not count:
        return None  # nothing to sum: the decomposition gives zeros
    dispatch = KernelDispatch(
        "grouped_matmul",
        axes=(
            IterationAxis("m", m),
            IterationAxis("n", n),
            IterationAxis("k", k, "whole"),
            IterationAxis("g", count, "whole"),
        ),
        accesses=(
            OperandAccess(BufferRef("in", 0), (k, 0, 1, 0)),
            OperandAccess(BufferRef("in", 1), (0, 1, n, k * n)),
            OperandAccess(BufferRef("in", 2), (1, 0, 0, 0)),
            OperandAccess(BufferRef("out"), (n, 1, 0, 0), "write"),
        ),
        grid=(("m", 1), ("n", COLUMNS_PER_INVOCATION)),
        uniforms={"line": n, "each": k * n},
        iterations=COLUMNS_PER_INVOCATION / count,
    )
    return KernelPlan((dispatch,))


def _reference(xp: Any, attrs: Attrs, x: Any, w: Any, groups: Any) -> Any:
    # PyTorch does not compare uint32.
    wide, groups = widen_float16(xp, x), xp.asarray(groups, dtype=xp.int64)
    result = xp.zeros((x.shape[0], w.shape[2]), dtype=wide.dtype)
    for g in range(w.shape[0] if x.shape[0] else 0):
        in_group = groups == g
        if xp is np:  # of no other library is it known which rows there are
            rows = np.flatnonzero(in_group)
            if len(rows):
                result[rows] = wide[rows] @ widen_float16(xp, w[g])
            continue
        group_result = xp.matmul(wide, widen_float16(xp, w[g]))
        result = xp.where(xp.reshape(in_group, (-1, 1)), group_result, result)
    return xp.asarray(result, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, w: Tensor, groups: Tensor) -> Tensor:
    (count, _, n), m = w.shape, x.shape[0]
    wide, weights = widen_float16_tensors(g, x, w)
    result = g.expand(g.constant(0.0, wide.dtype), (m, n))
    rows = g.reshape(groups, (m, 1))
    for group in range(count):
        matrix = g.reshape(g.narrow(weights, 0, group, 1), w.shape[1:])
        result = g.where(g.eq(rows, group), g.matmul(wide, matrix), result)
    return result if wide is x else g.cast(result, x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * out.numel * inputs[0].shape[1]


def _case(
    sizes: tuple[int, int, int, int],
    dtype: DType = DType.F32,
    index: DType = DType.I32,
    note: str = "",
) -> Sample:
    """Return a sample of sizes (M, K, N, G); some rows name no group."""
    m, k, n, g = sizes
    low = 0 if index is DType.U32 else -1
    return Sample(
        (Drawn((m, k), dtype), Drawn((g, k, n), dtype), Drawn((m,), index, low, g)),
        note=note,
    )


def _vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Differentiate: by x, rows times the transposed matrix of their group; by a
    matrix, the products of the rows of its group.
    """
    g, (x, w, groups) = ctx.g, ctx.inputs
    grad_x = g.apply("grouped_matmul", ctx.grad, g.swapaxes(w, 1, 2), groups)
    if not ctx.needs_grad[1]:
        return [grad_x, None, None]
    group_ids = np.arange(w.shape[0]).reshape(-1, 1)
    is_member = g.reshape(groups, (1, x.shape[0])).eq(
        g.constant(group_ids, groups.dtype)
    )
    group_rows = x * g.reshape(is_member.cast(x.dtype), (w.shape[0], x.shape[0], 1))
    return [grad_x, g.swapaxes(group_rows, 1, 2) @ ctx.grad, None]


registry.register_all(
    Op(
        name="grouped_matmul",
        arity=3,
        infer=_infer,
        reference=_reference,
        lower=Kernel(_kernel_plan, Compose(_build)),
        range_rule=value_range_rules.INDEX_ONLY_RANGE,
        traits=frozenset({"blas"}),
        flops=_flops,
        tolerance=MATMUL_TOLERANCE,
        samples=(
            _case((1, 1, 1, 1)),
            _case((7, 5, 6, 3)),
            _case((40, 33, 47, 4)),
            _case((5, 8, 4, 2), index=DType.U32),
            _case((5, 8, 4, 2), index=DType.I64),
            _case((0, 4, 3, 2), note="no rows"),
            _case((4, 0, 3, 2), note="nothing to sum: zeros"),
            _case((4, 3, 0, 2), note="no columns"),
            _case((65_537, 2, 3, 2), note="many rows"),
            _case((6, 5, 4, 3), DType.F16),
            _case((6, 5, 4, 3), DType.F64),
        ),
        calibration_cases=(
            _case((16, 16, 16, 4)),
            _case((64, 128, 128, 4)),
            _case((128, 256, 512, 8)),
        ),
        vjp=_vjp,
        doc="Every row of x [M, K] times the matrix of its group: row m is multiplied "
        "by w[groups[m]], with w [G, K, N]. A row whose group index is outside 0 … G "
        "- 1 gives zeros.",
    )
)
