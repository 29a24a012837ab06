"""Matrix products: matmul, and matmul with bias and activation in one op.

Batch dimensions broadcast, operands have one dtype, integers wrap. A product of f16 is
summed in f32. The plan is a box over up to three batch axes, rows, columns and a
serial sum axis, so every product can be cut to any device. No device is known here.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from rlxweb.ir import value_range_rules
from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.dtype import PACKED_DTYPES, DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout, row_major_strides
from rlxweb.ir.lowering import (
    TRANSPOSED_ATTR,
    BufferRef,
    Compose,
    IterationAxis,
    Kernel,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape, bad_shape, broadcast, format_shape, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import batch_broadcast
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.reduce.wgsl.plan import compute_scalar

ACTIVATIONS = ("gelu", "gelu_approx", "silu", "relu", "sigmoid", "tanh")

# Batch axes of the shader; a product with more becomes several dispatches.
MAX_BATCH_AXES = 3
# One invocation's tile in shaders/matmul/matmul.wgsl; below THIN rows it would mostly
# compute its last row again, so matmul_thin.wgsl takes one row each.
TILE_ROWS, TILE_COLUMNS, MIN_TILED_ROWS = 8, 4, 4
# Elements of a product up to which an adapter on the CPU had better do what follows it
# tile by tile: 0.86 to 0.99 of the time of two passes, 1.02 to 1.10 at 1,048,576.
MAX_EPILOGUE_ELEMENTS = 1 << 19


def widen_float16(xp: Any, x: Any) -> Any:
    """Return the array with f16 widened to f32, as on devices where f16 is storage
    only.
    """
    return xp.asarray(x, dtype=xp.float32) if x.dtype == xp.float16 else x


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, y = types[:2]
    dtype = common_dtype(types)
    require_dtypes(types, NUMERIC_DTYPES)
    if x.rank < 2 or y.rank < 2:
        raise bad_shape(
            f"matmul requires rank >= 2, got ranks {x.rank} and {y.rank}",
            hint="reshape a vector to one row or one column",
        )
    if x.shape[-1] != y.shape[-2]:
        raise bad_shape(
            f"matmul K mismatch: {x.shape[-1]} vs {y.shape[-2]}",
            "the last dimension of x must equal the second-to-last of y",
            "transpose one of the operands",
        )
    batch = broadcast(x.shape[:-2], y.shape[:-2])
    return TensorType((*batch, x.shape[-2], y.shape[-1]), dtype)


def _infer_fused(types: Types, attrs: Attrs) -> TensorType:
    out, bias = _infer(types, attrs), types[2]
    if bias.shape not in ((), (1,), out.shape[-1:]):
        raise bad_shape(
            f"got a bias {format_shape(bias.shape)}",
            "a bias must be a scalar or have one value for each of the "
            f"{out.shape[-1]} columns",
            "use add for an operand of another shape",
        )
    return out


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * out.numel * inputs[0].shape[-1]


class _MatmulLoops(NamedTuple):
    """Loops of a matrix product: batch sizes, strides of x, y and out over them, and M,
    N, K.

    is_transposed  which of x and y lie column by column
    """

    batch: Shape
    steps: tuple[tuple[int, ...], ...]
    m: int
    n: int
    k: int
    is_transposed: tuple[bool, bool]


def _matmul_loops(
    x: Shape, y: Shape, out: Shape, is_transposed: tuple[bool, bool]
) -> _MatmulLoops:
    """Derive the loops of a matrix product from the shapes, with mergeable batch axes
    merged.
    """
    batch, (m, n), k = out[:-2], out[-2:], x[-1]
    layouts = [
        Layout(s[:-2], row_major_strides(s)[:-2]).expand(batch) for s in (out, x, y)
    ]
    merged = layouts[0].coalesce(*layouts[1:])
    sizes = merged[0].shape
    out_strides, x_strides, y_strides = (list(layout.strides) for layout in merged)
    # Rows of one matrix: the innermost batch axis when y is the same all along it.
    can_merge = sizes and not is_transposed[0]
    if can_merge and (out_strides[-1], x_strides[-1], y_strides[-1]) == (
        m * n,
        m * k,
        0,
    ):
        m *= sizes[-1]
        sizes = sizes[:-1]
        out_strides = out_strides[:-1]
        x_strides = x_strides[:-1]
        y_strides = y_strides[:-1]
    strides = (tuple(x_strides), tuple(y_strides), tuple(out_strides))
    return _MatmulLoops(tuple(sizes), strides, m, n, k, is_transposed)


def plan_matmul(inputs: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
    """Plan one dispatch of shaders/matmul/matmul.wgsl, or several when there are many
    batch axes.
    """
    is_transposed = attrs.get(TRANSPOSED_ATTR, (False, False))
    loops = _matmul_loops(inputs[0].shape, inputs[1].shape, out.shape, is_transposed)
    excess = max(0, len(loops.batch) - MAX_BATCH_AXES)
    dispatches = []
    for index in itertools.product(*(range(size) for size in loops.batch[:excess])):
        offsets = [
            sum(a * s for a, s in zip(index, strides[:excess], strict=True))
            for strides in loops.steps
        ]
        inner = loops._replace(
            batch=loops.batch[excess:],
            steps=tuple(strides[excess:] for strides in loops.steps),
        )
        dispatches.append(_matmul_dispatch(inner, offsets, inputs[0].dtype))
    return KernelPlan(tuple(dispatches))


def _matmul_dispatch(
    loops: _MatmulLoops, offsets: list[int], dtype: DType
) -> KernelDispatch:
    """Return the dispatch of loops with at most MAX_BATCH_AXES batch axes; `offsets`
    are those of x, y and out.
    """
    pad = MAX_BATCH_AXES - len(loops.batch)
    batch = (1,) * pad + loops.batch
    x_strides, y_strides, out_strides = (
        (0,) * pad + strides for strides in loops.steps
    )
    m, n, k = loops.m, loops.n, loops.k
    # With nothing to sum the operands are empty: no step may point into them.
    has_terms = int(k > 0)
    x_row, x_k = (1, m) if loops.is_transposed[0] else (k, 1)
    y_row, y_n = (1, k) if loops.is_transposed[1] else (n, 1)
    access_strides = (
        (*x_strides, x_row * has_terms, 0, x_k * has_terms),
        (*y_strides, 0, y_n * has_terms, y_row * has_terms),
        (*out_strides, n, 1, 0),
    )
    reads = [
        OperandAccess(BufferRef("in", i), access_strides[i], offset=offsets[i])
        for i in (0, 1)
    ]
    names = [f"b{i}" for i in range(MAX_BATCH_AXES)]
    uniforms = {
        f"{letter}_b{i}": strides[i]
        for letter, strides in zip(
            "xyz", (x_strides, y_strides, out_strides), strict=True
        )
        for i in range(MAX_BATCH_AXES)
    }
    is_thin = m < MIN_TILED_ROWS
    return KernelDispatch(
        "matmul_thin" if is_thin else "matmul",
        axes=(
            *(
                IterationAxis(name, size)
                for name, size in zip(names, batch, strict=True)
            ),
            IterationAxis("m", m),
            IterationAxis("n", n),
            IterationAxis("k", k, "serial"),
        ),
        accesses=(
            *reads,
            OperandAccess(BufferRef("out"), access_strides[2], "update", offsets[2]),
        ),
        grid=(
            *((name, 1) for name in names),
            ("m", 1 if is_thin else TILE_ROWS),
            ("n", TILE_COLUMNS),
        ),
        uniforms=uniforms
        | {"x_row": x_row, "x_k": x_k, "y_row": y_row, "y_n": y_n, "z_row": n},
        uses=(
            # matmul_f32, matmul_i32 or matmul_u32
            f"matmul_{compute_scalar(dtype)}",
            "matmul_tile",
            "matmul_columns",
            "finish_none",
        ),
        iterations=1.0,
        epilogue_site="tile" if numel((*batch, m, n)) <= MAX_EPILOGUE_ELEMENTS else "",
    )


def _matmul_reference(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    result = xp.matmul(widen_float16(xp, x), widen_float16(xp, y))
    return xp.asarray(result, dtype=x.dtype)


def _fused_reference(xp: Any, attrs: Attrs, x: Any, w: Any, bias: Any) -> Any:
    result = xp.matmul(widen_float16(xp, x), widen_float16(xp, w)) + widen_float16(
        xp, bias
    )
    activation = attrs["activation"]
    result = (
        result
        if activation is None
        else registry.get(activation).reference(xp, {}, result)
    )
    return xp.asarray(result, dtype=x.dtype)


def _build_fused(g: Graph, attrs: Attrs, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    result = g.add(g.matmul(x, w), bias)
    activation = attrs["activation"]
    return result if activation is None else g.activation(activation, result)


def _case(
    x: Shape, y: Shape, dtype: DType = DType.F32, high: float = 2.0, note: str = ""
) -> Sample:
    low = 0.0 if dtype.is_unsigned else -high
    inputs = (Drawn(s, dtype, low, high, whole=dtype is DType.F16) for s in (x, y))
    return Sample(tuple(inputs), note=note)


_SAMPLES = (
    _case((1, 1), (1, 1)),
    _case((5, 7), (7, 3), note="odd"),
    _case((16, 32), (32, 24)),
    _case((64, 64), (64, 64)),
    _case((97, 101), (101, 89), note="primes"),
    _case((3, 0), (0, 5), note="nothing to sum: zeros"),
    _case((20, 0), (0, 17), note="nothing to sum in a large tile"),
    _case((0, 4), (4, 5), note="no rows"),
    _case((4, 5), (5, 0), note="no columns"),
    _case((1, 300), (300, 70), note="one row"),
    _case((70, 300), (300, 1), note="one column"),
    _case((65_537, 2), (2, 1), note="more rows than workgroups"),
    _case((2, 70_000), (70_000, 1), note="long sum"),
    _case((4, 6, 5), (4, 5, 7), note="batched"),
    _case((4, 6, 5), (5, 7), note="one right matrix"),
    _case((6, 5), (3, 5, 7), note="one left matrix"),
    _case((5, 1, 3, 4), (6, 4, 2), note="batches broadcast"),
    _case((2, 1, 3, 1, 5, 4), (5, 1, 7, 4, 3), note="four batch axes"),
    _case((0, 3, 4), (4, 2), note="no batches"),
    _case((9, 11), (11, 6), DType.I32, 1000),
    _case((9, 11), (11, 6), DType.I32, 1 << 30, "wraps"),
    _case((9, 11), (11, 6), DType.U32, (1 << 32) - 1, "wraps"),
    _case((9, 11), (11, 6), DType.F16, 4),
    _case((9, 11), (11, 6), DType.F64),
    _case((9, 11), (11, 6), DType.I64, 1000),
    _case((9, 11), (11, 6), DType.U64, 1000),
    _case((9, 11), (11, 6), DType.BF16, 2),
    *(
        _case((9, 11), (11, 6), d, 300, "wraps")
        for d in DType
        if d in PACKED_DTYPES - {DType.BF16}
    ),
)


def _fused_case(
    x: Shape, w: Shape, bias: Shape, activation: str | None, dtype: DType = DType.F32
) -> Sample:
    shapes = (x, w, bias)
    return Sample(tuple(Drawn(s, dtype) for s in shapes), {"activation": activation})


_FUSED_SAMPLES = (
    *(_fused_case((5, 7), (7, 6), (6,), kind) for kind in (None, *ACTIVATIONS)),
    _fused_case((128, 33), (33, 47), (47,), "gelu"),
    _fused_case((2, 3, 5), (5, 4), (1,), "relu"),
    _fused_case((2, 3, 5), (2, 5, 4), (), "tanh"),
    _fused_case((3, 0), (0, 4), (4,), "silu"),
    _fused_case((65_537, 1), (1, 2), (2,), None),
    _fused_case((5, 7), (7, 6), (6,), "sigmoid", DType.F64),
)


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    m, n = out.shape[-2:]
    size = {"batch": numel(out.shape[:-2]), "m": m, "k": inputs[0].shape[-1], "n": n}
    return "whole_matmul" if out.dtype.is_integer else "matmul", size


# A serial sum of K products in f32 strays by about sqrt(K) / 2 roundings of its running
# value: 8e-6 of the result at the 70,000 terms of the longest sample.
MATMUL_TOLERANCE = Tolerance(rtol=2e-6, atol=8e-6, relative_to_peak=True)
FUSED_MATMUL_TOLERANCE = Tolerance(rtol=1e-5, atol=2e-6, relative_to_peak=True)


def _transpose_last_axes(x: Tensor) -> Tensor:
    return x.graph.swapaxes(x, -1, -2)


def _matmul_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Differentiate: grad · yᵀ by x and xᵀ · grad by y; batch rows that share one y are
    merged.
    """
    x, y, grad, g = ctx.x, ctx.y, ctx.grad, ctx.g
    grad_x = grad @ _transpose_last_axes(y) if ctx.needs_grad[0] else None
    if not ctx.needs_grad[1]:
        return [grad_x, None]
    if y.rank == 2 and x.rank > 2:
        rows = numel(x.shape[:-1])
        x, grad = (g.reshape(t, (rows, t.shape[-1])) for t in (x, grad))
    return [grad_x, _transpose_last_axes(x) @ grad]


registry.register_all(
    Op(
        name="matmul",
        arity=2,
        infer=_infer,
        reference=_matmul_reference,
        lower=Kernel(plan_matmul, transposable_inputs=(0, 1)),
        range_rule=value_range_rules.dot_product_range(
            lambda types: types[0].shape[-1]
        ),
        traits=frozenset({"blas"}),
        flops=_flops,
        work=_work,
        tolerance=MATMUL_TOLERANCE,
        samples=_SAMPLES,
        vjp=_matmul_vjp,
        batch=batch_broadcast,
        doc="Matrix product of the last two axes; batch axes broadcast. With an inner "
        "dimension of 0, the result is 0.",
    ),
    Op(
        name="fused_matmul_bias_act",
        arity=3,
        infer=_infer_fused,
        reference=_fused_reference,
        lower=Compose(_build_fused),
        attrs=(Attr("activation", "str", None, allowed=ACTIVATIONS, is_nullable=True),),
        traits=frozenset({"blas", "floats_only"}),
        flops=lambda inputs, out, attrs: _flops(inputs, out, attrs) + out.numel,
        tolerance=FUSED_MATMUL_TOLERANCE,
        samples=_FUSED_SAMPLES,
        doc="activation(x · w + bias): a dense layer in one op.",
    ),
)
