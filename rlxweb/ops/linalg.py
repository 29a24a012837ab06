"""Matrix products: matmul, and matmul with bias and activation in one op.

Batch dimensions broadcast, operands have one dtype, integers wrap. A product of f16 is
summed in f32. The recipe is a box over up to three batch axes, rows, columns and a
serial sum axis, so every product can be cut to any device. No device is known here.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from rlxweb.ir import bounds
from rlxweb.ir.batching import together
from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import NARROW, DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout, row_major
from rlxweb.ir.lowering import (
    TURNED,
    Access,
    Axis,
    Call,
    Compose,
    Kernel,
    Recipe,
    Ref,
)
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_shape, broadcast, numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import NUMBERS, need, same_dtype
from rlxweb.recipes.reduce_calls import scalar_of

ACTIVATIONS = ("gelu", "gelu_approx", "silu", "relu", "sigmoid", "tanh")

# Batch axes of the shader; a product with more becomes several calls.
BATCH_AXES = 3
# One invocation's tile in shaders/matmul.wgsl; below THIN rows it would mostly compute
# its last row again, so matmul_thin.wgsl takes one row each.
ROWS, COLUMNS, THIN = 8, 4, 4
# Elements of a product up to which an adapter on the CPU had better do what follows it
# tile by tile: 0.86 to 0.99 of the time of two passes, 1.02 to 1.10 at 1,048,576.
MOST_FINISHED = 1 << 19


def widened(xp: Any, x: Any) -> Any:
    """The array, f16 as f32: what a device computes with where f16 is storage only."""
    return xp.asarray(x, dtype=xp.float32) if x.dtype == xp.float16 else x


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, y = types[:2]
    dtype = same_dtype(types)
    need(types, NUMBERS)
    if x.rank < 2 or y.rank < 2:
        raise bad_shape(
            f"matmul requires rank >= 2, got {x.rank} and {y.rank}",
            hint="reshape a vector to one row or one column",
        )
    if x.shape[-1] != y.shape[-2]:
        raise bad_shape(
            f"matmul K mismatch: {x.shape[-1]} vs {y.shape[-2]}",
            "the last dimension of x is the last but one of y",
            "transpose one of them",
        )
    batch = broadcast(x.shape[:-2], y.shape[:-2])
    return TensorType((*batch, x.shape[-2], y.shape[-1]), dtype)


def _infer_fused(types: Types, attrs: Attrs) -> TensorType:
    out, bias = _infer(types, attrs), types[2]
    if bias.shape not in ((), (1,), out.shape[-1:]):
        raise bad_shape(
            f"bias {show(bias.shape)}",
            f"a bias is a scalar or one value for each of {out.shape[-1]} columns",
            "add a larger term with add",
        )
    return out


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * out.numel * inputs[0].shape[-1]


class _Box(NamedTuple):
    """A product as loops: batch sizes, steps of x, y, out over them, and M, N, K.

    turned   which of x and y lie column by column
    """

    batch: Shape
    steps: tuple[tuple[int, ...], ...]
    m: int
    n: int
    k: int
    turned: tuple[bool, bool]


def _box(x: Shape, y: Shape, out: Shape, turned: tuple[bool, bool]) -> _Box:
    batch, (m, n), k = out[:-2], out[-2:], x[-1]
    layouts = [Layout(s[:-2], row_major(s)[:-2]).expand(batch) for s in (out, x, y)]
    merged = layouts[0].coalesced(*layouts[1:])
    sizes = merged[0].shape
    of_out, of_x, of_y = (list(layout.strides) for layout in merged)
    # Rows of one matrix: the innermost batch axis when y is the same all along it.
    one = sizes and not turned[0]
    if one and (of_out[-1], of_x[-1], of_y[-1]) == (m * n, m * k, 0):
        m *= sizes[-1]
        sizes = sizes[:-1]
        of_out, of_x, of_y = of_out[:-1], of_x[:-1], of_y[:-1]
    steps = (tuple(of_x), tuple(of_y), tuple(of_out))
    return _Box(tuple(sizes), steps, m, n, k, turned)


def matmul_recipe(inputs: Types, out: TensorType, attrs: Attrs) -> Recipe:
    """One call of shaders/matmul.wgsl, or several when batch axes are many."""
    turned = attrs.get(TURNED, (False, False))
    box = _box(inputs[0].shape, inputs[1].shape, out.shape, turned)
    excess = max(0, len(box.batch) - BATCH_AXES)
    calls = []
    for at in itertools.product(*(range(size) for size in box.batch[:excess])):
        offsets = [
            sum(a * s for a, s in zip(at, one[:excess], strict=True))
            for one in box.steps
        ]
        inner = box._replace(
            batch=box.batch[excess:], steps=tuple(one[excess:] for one in box.steps)
        )
        calls.append(_call(inner, offsets, inputs[0].dtype))
    return Recipe(tuple(calls))


def _call(box: _Box, offsets: list[int], dtype: DType) -> Call:
    """A box of at most BATCH_AXES batch axes; `offsets` of x, y and out."""
    pad = BATCH_AXES - len(box.batch)
    batch = (1,) * pad + box.batch
    of_x, of_y, of_out = ((0,) * pad + one for one in box.steps)
    m, n, k = box.m, box.n, box.k
    # With nothing to sum the operands are empty: no step may point into them.
    some = int(k > 0)
    x_row, x_k = (1, m) if box.turned[0] else (k, 1)
    y_row, y_n = (1, k) if box.turned[1] else (n, 1)
    walks = (
        (*of_x, x_row * some, 0, x_k * some),
        (*of_y, 0, y_n * some, y_row * some),
        (*of_out, n, 1, 0),
    )
    reads = [Access(Ref("in", i), walks[i], offset=offsets[i]) for i in (0, 1)]
    names = [f"b{i}" for i in range(BATCH_AXES)]
    values = {
        f"{letter}_b{i}": one[i]
        for letter, one in zip("xyz", (of_x, of_y, of_out), strict=True)
        for i in range(BATCH_AXES)
    }
    thin = m < THIN
    return Call(
        "matmul_thin" if thin else "matmul",
        axes=(
            *(Axis(name, size) for name, size in zip(names, batch, strict=True)),
            Axis("m", m),
            Axis("n", n),
            Axis("k", k, "serial"),
        ),
        accesses=(*reads, Access(Ref("out"), walks[2], "update", offsets[2])),
        grid=(
            *((name, 1) for name in names),
            ("m", 1 if thin else ROWS),
            ("n", COLUMNS),
        ),
        values=values
        | {"x_row": x_row, "x_k": x_k, "y_row": y_row, "y_n": y_n, "z_row": n},
        uses=(
            f"matmul_{scalar_of(dtype)}",
            "matmul_tile",
            "matmul_columns",
            "finish_none",
        ),
        turns=1.0,
        finishes="tile" if numel((*batch, m, n)) <= MOST_FINISHED else "",
    )


def _matmul(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    made = xp.matmul(widened(xp, x), widened(xp, y))
    return xp.asarray(made, dtype=x.dtype)


def _fused(xp: Any, attrs: Attrs, x: Any, w: Any, bias: Any) -> Any:
    made = xp.matmul(widened(xp, x), widened(xp, w)) + widened(xp, bias)
    kind = attrs["activation"]
    made = made if kind is None else registry.get(kind).reference(xp, {}, made)
    return xp.asarray(made, dtype=x.dtype)


def _build_fused(g: Graph, attrs: Attrs, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    made = g.add(g.matmul(x, w), bias)
    kind = attrs["activation"]
    return made if kind is None else g.activation(kind, made)


def _pair(
    x: Shape, y: Shape, dtype: DType = DType.F32, high: float = 2.0, note: str = ""
) -> Sample:
    low = 0.0 if dtype.is_unsigned else -high
    drawn = (Drawn(s, dtype, low, high, whole=dtype is DType.F16) for s in (x, y))
    return Sample(tuple(drawn), note=note)


_SAMPLES = (
    _pair((1, 1), (1, 1)),
    _pair((5, 7), (7, 3), note="odd"),
    _pair((16, 32), (32, 24)),
    _pair((64, 64), (64, 64)),
    _pair((97, 101), (101, 89), note="primes"),
    _pair((3, 0), (0, 5), note="nothing to sum: zeros"),
    _pair((20, 0), (0, 17), note="nothing to sum in a large tile"),
    _pair((0, 4), (4, 5), note="no rows"),
    _pair((4, 5), (5, 0), note="no columns"),
    _pair((1, 300), (300, 70), note="one row"),
    _pair((70, 300), (300, 1), note="one column"),
    _pair((65_537, 2), (2, 1), note="more rows than workgroups"),
    _pair((2, 70_000), (70_000, 1), note="long sum"),
    _pair((4, 6, 5), (4, 5, 7), note="batched"),
    _pair((4, 6, 5), (5, 7), note="one right matrix"),
    _pair((6, 5), (3, 5, 7), note="one left matrix"),
    _pair((5, 1, 3, 4), (6, 4, 2), note="batches broadcast"),
    _pair((2, 1, 3, 1, 5, 4), (5, 1, 7, 4, 3), note="four batch axes"),
    _pair((0, 3, 4), (4, 2), note="no batches"),
    _pair((9, 11), (11, 6), DType.I32, 1000),
    _pair((9, 11), (11, 6), DType.I32, 1 << 30, "wraps"),
    _pair((9, 11), (11, 6), DType.U32, (1 << 32) - 1, "wraps"),
    _pair((9, 11), (11, 6), DType.F16, 4),
    _pair((9, 11), (11, 6), DType.F64),
    _pair((9, 11), (11, 6), DType.I64, 1000),
    _pair((9, 11), (11, 6), DType.U64, 1000),
    _pair((9, 11), (11, 6), DType.BF16, 2),
    *(
        _pair((9, 11), (11, 6), d, 300, "wraps")
        for d in DType
        if d in NARROW - {DType.BF16}
    ),
)


def _biased(
    x: Shape, w: Shape, bias: Shape, kind: str | None, dtype: DType = DType.F32
) -> Sample:
    shapes = (x, w, bias)
    return Sample(tuple(Drawn(s, dtype) for s in shapes), {"activation": kind})


_FUSED_SAMPLES = (
    *(_biased((5, 7), (7, 6), (6,), kind) for kind in (None, *ACTIVATIONS)),
    _biased((128, 33), (33, 47), (47,), "gelu"),
    _biased((2, 3, 5), (5, 4), (1,), "relu"),
    _biased((2, 3, 5), (2, 5, 4), (), "tanh"),
    _biased((3, 0), (0, 4), (4,), "silu"),
    _biased((65_537, 1), (1, 2), (2,), None),
    _biased((5, 7), (7, 6), (6,), "sigmoid", DType.F64),
)


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    m, n = out.shape[-2:]
    size = {"batch": numel(out.shape[:-2]), "m": m, "k": inputs[0].shape[-1], "n": n}
    return "whole_matmul" if out.dtype.is_integer else "matmul", size


# A serial sum of K products in f32 strays by about sqrt(K) / 2 roundings of its running
# value: 8e-6 of the result at the 70,000 terms of the longest sample.
SUMMED = Tolerance(rtol=2e-6, atol=8e-6, relative_to_peak=True)
ACTIVATED = Tolerance(rtol=1e-5, atol=2e-6, relative_to_peak=True)


def _turned(x: Tensor) -> Tensor:
    return x.graph.swapaxes(x, -1, -2)


def _to_operands(at: Taken) -> list[Tensor | None]:
    """Of x grad · yᵀ, of y xᵀ · grad; one y for many rows takes them as one."""
    x, y, grad, g = at.x, at.y, at.grad, at.g
    left = grad @ _turned(y) if at.wants[0] else None
    if not at.wants[1]:
        return [left, None]
    if y.rank == 2 and x.rank > 2:
        rows = numel(x.shape[:-1])
        x, grad = (g.reshape(t, (rows, t.shape[-1])) for t in (x, grad))
    return [left, _turned(x) @ grad]


registry.register_all(
    Op(
        name="matmul",
        arity=2,
        infer=_infer,
        reference=_matmul,
        lower=Kernel(matmul_recipe, turns=(0, 1)),
        bounds=bounds.terms(lambda types: types[0].shape[-1]),
        traits=frozenset({"blas"}),
        flops=_flops,
        work=_work,
        tolerance=SUMMED,
        samples=_SAMPLES,
        vjp=_to_operands,
        batch=together,
        doc="Matrix product of the last two axes; batch axes broadcast. A sum over "
        "no terms is 0.",
    ),
    Op(
        name="fused_matmul_bias_act",
        arity=3,
        infer=_infer_fused,
        reference=_fused,
        lower=Compose(_build_fused),
        attrs=(Attr("activation", "str", None, allowed=ACTIVATIONS, optional=True),),
        traits=frozenset({"blas", "floats_only"}),
        flops=lambda inputs, out, attrs: _flops(inputs, out, attrs) + out.numel,
        tolerance=ACTIVATED,
        samples=_FUSED_SAMPLES,
        doc="activation(x · w + bias): a dense layer in one op.",
    ),
)
