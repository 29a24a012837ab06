"""LoRA matmul: a product with a low-rank update of its weights, x · w + scale · (x · a)
· b.

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
from rlxweb.ir.shape_arithmetic import Shape, bad_attribute, bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import MATMUL_TOLERANCE, widen_float16


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, w, a, b = types
    dtype = common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    if x.rank < 1 or {w.rank, a.rank, b.rank} != {2}:
        raise bad_shape(
            f"got x {format_shape(x.shape)}, w {format_shape(w.shape)}, a "
            f"{format_shape(a.shape)}, b {format_shape(b.shape)}",
            "x must be [..., K], w [K, N], a [K, R] and b [R, N]",
        )
    k, n, r = x.shape[-1], w.shape[1], a.shape[1]
    for name, operand, expected in (
        ("w", w, (k, n)),
        ("a", a, (k, r)),
        ("b", b, (r, n)),
    ):
        if operand.shape != expected:
            raise bad_shape(
                f"got {name} {format_shape(operand.shape)}",
                f"expected {format_shape(expected)}",
            )
    if not isfinite(attrs["scale"]):
        raise bad_attribute(f"scale={attrs['scale']}", "scale must be finite")
    return TensorType((*x.shape[:-1], n), dtype)


def _reference(xp: Any, attrs: Attrs, x: Any, w: Any, a: Any, b: Any) -> Any:
    x, w, a, b, like = (*(widen_float16(xp, operand) for operand in (x, w, a, b)), x)
    result = xp.matmul(x, w) + xp.matmul(xp.matmul(x, a), b) * attrs["scale"]
    return xp.asarray(result, dtype=like.dtype)


def _build(
    g: Graph, attrs: Attrs, x: Tensor, w: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    if x.dtype is DType.F16:
        wide = [g.cast(operand, DType.F32) for operand in (x, w, a, b)]
        return g.cast(g.apply("lora_matmul", *wide, **attrs), x.dtype)
    rows = g.reshape(x, (1, x.shape[0])) if x.rank == 1 else x
    thin = g.matmul(g.matmul(rows, a) * attrs["scale"], b)
    result = g.matmul(rows, w) + thin
    return g.reshape(result, result.shape[1:]) if x.rank == 1 else result


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
        tolerance=MATMUL_TOLERANCE,
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
        doc="x · w + scale · (x · a) · b for x [..., K] and weights w [K, N]; a [K, "
        "R] and b [R, N] form a low-rank update of w.",
    )
)
