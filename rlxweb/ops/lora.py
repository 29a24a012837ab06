"""A product with a low-rank change of its weights: x · w + scale · (x · a) · b.

LoRA (Hu et al. 2021). The change is never added to the weights: the two thin products
are made first, and the large one adds them as it stores. Owns no shader.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import SUMMED, widened


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, w, a, b = types
    dtype = same_dtype(types)
    need(types, FLOATS)
    if x.rank < 1 or {w.rank, a.rank, b.rank} != {2}:
        raise bad_shape(
            f"x {show(x.shape)}, w {show(w.shape)}, a {show(a.shape)}, "
            f"b {show(b.shape)}",
            "x is [..., K], w [K, N], a [K, R] and b [R, N]",
        )
    k, n, r = x.shape[-1], w.shape[1], a.shape[1]
    for name, one, want in (("w", w, (k, n)), ("a", a, (k, r)), ("b", b, (r, n))):
        if one.shape != want:
            raise bad_shape(f"{name} {show(one.shape)}", f"it is {show(want)} here")
    if not isfinite(attrs["scale"]):
        raise bad_attribute(f"scale={attrs['scale']}", "the scale is finite")
    return TensorType((*x.shape[:-1], n), dtype)


def _reference(xp: Any, attrs: Attrs, x: Any, w: Any, a: Any, b: Any) -> Any:
    x, w, a, b, like = (*(widened(xp, one) for one in (x, w, a, b)), x)
    made = xp.matmul(x, w) + xp.matmul(xp.matmul(x, a), b) * attrs["scale"]
    return xp.asarray(made, dtype=like.dtype)


def _build(
    g: Graph, attrs: Attrs, x: Tensor, w: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    if x.dtype is DType.F16:
        wide = [g.cast(one, DType.F32) for one in (x, w, a, b)]
        return g.cast(g.apply("lora_matmul", *wide, **attrs), x.dtype)
    rows = g.reshape(x, (1, x.shape[0])) if x.rank == 1 else x
    thin = g.matmul(g.matmul(rows, a) * attrs["scale"], b)
    made = g.matmul(rows, w) + thin
    return g.reshape(made, made.shape[1:]) if x.rank == 1 else made


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    (k, n), r = inputs[1].shape, inputs[2].shape[1]
    rows = out.numel / max(1, n)
    return 2.0 * rows * (k * n + k * r + r * n)


def _case(x: Shape, n: int, r: int, dtype: DType = DType.F32) -> Sample:
    k = x[-1]
    shapes = (x, (k, n), (k, r), (r, n))
    return Sample(tuple(Drawn(s, dtype) for s in shapes), {"scale": 0.5})


registry.register_all(
    Op(
        name="lora_matmul",
        arity=4,
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=(Attr("scale", "float", 1.0),),
        traits=frozenset({"blas"}),
        flops=_flops,
        tolerance=SUMMED,
        samples=(
            _case((1, 1), 1, 1),
            _case((5, 7), 6, 2),
            _case((2, 3, 33), 47, 4),
            _case((9,), 4, 2),
            _case((4, 5), 3, 0),
            _case((0, 4), 5, 2),
            _case((4, 0), 5, 2),
            _case((65_537, 2), 3, 1),
            _case((5, 7), 6, 2, DType.F16),
            _case((5, 7), 6, 2, DType.F64),
        ),
        doc="x · w + scale · (x · a) · b for x [..., K], w [K, N] and a change of its "
        "weights of low rank, a [K, R] and b [R, N].",
    )
)
