"""A product of every row with the matrix of its own group: mixtures of experts.

A row's group is an index. One that names no group makes a row of zeros, as behind the
last group of jax.lax.ragged_dot: nothing is refused, since routers drop rows so. Rows
may come in any order; neighbours of one group share what they read. Float32 sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir import bounds
from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Access, Axis, Call, Compose, Kernel, Recipe, Ref
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import SUMMED, widened
from rlxweb.ops.norm import in_f32
from rlxweb.ops.outside import need_indices

COLUMNS = 4
"""Of a result that one invocation makes."""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, w, groups = types
    dtype = same_dtype((x, w))
    need((x, w), FLOATS)
    need_indices(groups)
    fits = x.rank == 2 and w.rank == 3 and groups.shape == x.shape[:1]
    if not fits or x.shape[1] != w.shape[1]:
        raise bad_shape(
            f"x {show(x.shape)}, w {show(w.shape)}, groups {show(groups.shape)}",
            "x is [M, K], w [G, K, N] and groups [M]",
        )
    return TensorType((x.shape[0], w.shape[2]), dtype)


def _recipe(inputs: Types, out: TensorType, attrs: Attrs) -> Recipe | None:
    (count, k, n), m = inputs[1].shape, out.shape[0]
    if not k or not count:
        return None  # nothing to sum: the composition gives zeros
    call = Call(
        "grouped_matmul",
        axes=(
            Axis("m", m),
            Axis("n", n),
            Axis("k", k, "whole"),
            Axis("g", count, "whole"),
        ),
        accesses=(
            Access(Ref("in", 0), (k, 0, 1, 0)),
            Access(Ref("in", 1), (0, 1, n, k * n)),
            Access(Ref("in", 2), (1, 0, 0, 0)),
            Access(Ref("out"), (n, 1, 0, 0), "write"),
        ),
        grid=(("m", 1), ("n", COLUMNS)),
        values={"line": n, "each": k * n},
        turns=COLUMNS / count,
    )
    return Recipe((call,))


def _reference(xp: Any, attrs: Attrs, x: Any, w: Any, groups: Any) -> Any:
    # PyTorch does not compare uint32.
    wide, groups = widened(xp, x), xp.asarray(groups, dtype=xp.int64)
    made = xp.zeros((x.shape[0], w.shape[2]), dtype=wide.dtype)
    for g in range(w.shape[0] if x.shape[0] else 0):
        own = groups == g
        if xp is np:  # of no other library is it known which rows there are
            rows = np.flatnonzero(own)
            if len(rows):
                made[rows] = wide[rows] @ widened(xp, w[g])
            continue
        of_group = xp.matmul(wide, widened(xp, w[g]))
        made = xp.where(xp.reshape(own, (-1, 1)), of_group, made)
    return xp.asarray(made, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, w: Tensor, groups: Tensor) -> Tensor:
    (count, _, n), m = w.shape, x.shape[0]
    wide, weights = in_f32(g, x, w)
    made = g.expand(g.constant(0.0, wide.dtype), (m, n))
    rows = g.reshape(groups, (m, 1))
    for at in range(count):
        matrix = g.reshape(g.narrow(weights, 0, at, 1), w.shape[1:])
        made = g.where(g.eq(rows, at), g.matmul(wide, matrix), made)
    return made if wide is x else g.cast(made, x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * out.numel * inputs[0].shape[1]


def _case(
    sizes: tuple[int, int, int, int],
    dtype: DType = DType.F32,
    index: DType = DType.I32,
    note: str = "",
) -> Sample:
    """Over (M, K, N, G); some rows name no group."""
    m, k, n, g = sizes
    low = 0 if index is DType.U32 else -1
    return Sample(
        (Drawn((m, k), dtype), Drawn((g, k, n), dtype), Drawn((m,), index, low, g)),
        note=note,
    )


def _back(at: Taken) -> list[Tensor | None]:
    """By x rows times the matrix of their group, turned; by a matrix the products of
    the rows of its group.
    """
    g, (x, w, groups) = at.g, at.inputs
    by_x = g.apply("grouped_matmul", at.grad, g.swapaxes(w, 1, 2), groups)
    if not at.wants[1]:
        return [by_x, None, None]
    every = np.arange(w.shape[0]).reshape(-1, 1)
    mine = g.reshape(groups, (1, x.shape[0])).eq(g.constant(every, groups.dtype))
    own = x * g.reshape(mine.cast(x.dtype), (w.shape[0], x.shape[0], 1))
    return [by_x, g.swapaxes(own, 1, 2) @ at.grad, None]


registry.register_all(
    Op(
        name="grouped_matmul",
        arity=3,
        infer=_infer,
        reference=_reference,
        lower=Kernel(_recipe, Compose(_build)),
        bounds=bounds.INDEXED,
        traits=frozenset({"blas"}),
        flops=_flops,
        tolerance=SUMMED,
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
        telling=(
            _case((16, 16, 16, 4)),
            _case((64, 128, 128, 4)),
            _case((128, 256, 512, 8)),
        ),
        vjp=_back,
        doc="Every row of x [M, K] times the matrix of its group, of w [G, K, N]: row "
        "m's is groups[m]. A row whose index is outside 0 … G - 1 is zeros.",
    )
)
