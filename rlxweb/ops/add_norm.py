"""A residual sum and its norm at once: what stands between the blocks of transformers.

Both are wanted: the norm goes into the next block, the sum around it. One value holds
them, so that a GPU makes them in one kernel (`add_norm_calls.py`); the composition is
an addition and a norm.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import NORMED, in_f32


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, residual, gamma, beta = types
    dtype = same_dtype(types)
    need(types, FLOATS)
    line = x.shape[-1:]
    if not line or residual.shape != x.shape or {gamma.shape, beta.shape} != {line}:
        raise bad_shape(
            f"x {show(x.shape)}, residual {show(residual.shape)}, gamma "
            f"{show(gamma.shape)}, beta {show(beta.shape)}",
            "two alike, [..., n], and [n] twice",
        )
    if not 0.0 <= attrs["eps"] <= 3.4e38:
        raise bad_attribute(f"eps {attrs['eps']}", "eps is finite and >= 0")
    return TensorType((2, *x.shape), dtype)


def _reference(
    xp: Any, attrs: Attrs, x: Any, residual: Any, gamma: Any, beta: Any
) -> Any:
    total = widened(xp, x) + widened(xp, residual)
    if 0 in x.shape:
        return xp.asarray(xp.stack([total, total], axis=0), dtype=x.dtype)
    far = total
    if attrs["centred"]:
        far = total - xp.mean(total, axis=-1, keepdims=True)
    square = xp.mean(far * far, axis=-1, keepdims=True)
    made = far / xp.sqrt(square + attrs["eps"])
    made = made * widened(xp, gamma) + widened(xp, beta)
    return xp.asarray(xp.stack([made, total], axis=0), dtype=x.dtype)


def _build(
    g: Graph, attrs: Attrs, x: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor
) -> Tensor:
    wide, more, scale, shift = in_f32(g, x, residual, gamma, beta)
    total = wide + more
    norm = g.layer_norm if attrs["centred"] else g.rms_norm
    made = g.stack([norm(total, scale, shift, eps=attrs["eps"]), total])
    return made if wide is x else g.cast(made, x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 8.0 * inputs[0].numel


def _case(
    shape: Shape, dtype: DType = DType.F32, centred: bool = True, **attrs: float
) -> Sample:
    line = shape[-1:]
    drawn = tuple(Drawn(s, dtype) for s in (shape, shape, line, line))
    return Sample(drawn, {"centred": centred, **attrs})


_SHAPES: tuple[Shape, ...] = (
    (1,),
    (3, 7),
    (2, 3, 64),
    (5, 97),
    (0, 4),
    (3, 0),
    (2, 3001),
)

registry.register_all(
    Op(
        name="add_norm",
        arity=4,
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=(Attr("centred", "bool", True), Attr("eps", "float", 1e-5)),
        flops=_flops,
        tolerance=NORMED,
        samples=(
            *map(_case, _SHAPES),
            *(_case(s, centred=False, eps=1e-6) for s in _SHAPES),
            _case((65_537, 3), centred=False),
            _case((4, 9), DType.F16),
            _case((4, 9), DType.F64, False),
        ),
        doc="[2, ...]: the norm of x + residual along the last axis, times gamma and "
        "plus beta [n], and the sum itself. Layer norm, or without the mean (centred "
        "false) rms norm.",
    )
)
