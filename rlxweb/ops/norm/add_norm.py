"""Residual addition and layer or RMS norm in one op, as between transformer blocks.

Both are wanted: the norm goes into the next block, the sum around it. One value holds
them, so that a GPU makes them in one kernel (`wgsl/add_norm.py`); the
decomposition is an addition and a norm.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape, bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import EPS, NORM_TOLERANCE, widen_float16_tensors


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, residual, gamma, beta = types
    dtype = common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    row_shape = x.shape[-1:]
    if (
        not row_shape
        or residual.shape != x.shape
        or {gamma.shape, beta.shape} != {row_shape}
    ):
        raise bad_shape(
            f"got x {format_shape(x.shape)}, residual {format_shape(residual.shape)}, "
            f"gamma {format_shape(gamma.shape)}, beta {format_shape(beta.shape)}",
            "x and residual must have the same shape [..., n], and gamma and beta "
            "the shape [n]",
        )
    return TensorType((2, *x.shape), dtype)


def _reference(
    xp: Any, attrs: Attrs, x: Any, residual: Any, gamma: Any, beta: Any
) -> Any:
    total = widen_float16(xp, x) + widen_float16(xp, residual)
    if 0 in x.shape:
        return xp.asarray(xp.stack([total, total], axis=0), dtype=x.dtype)
    centered = total
    if attrs["centred"]:
        centered = total - xp.mean(total, axis=-1, keepdims=True)
    mean_square = xp.mean(centered * centered, axis=-1, keepdims=True)
    normed = centered / xp.sqrt(mean_square + attrs["eps"])
    normed = normed * widen_float16(xp, gamma) + widen_float16(xp, beta)
    return xp.asarray(xp.stack([normed, total], axis=0), dtype=x.dtype)


def _build(
    g: Graph, attrs: Attrs, x: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor
) -> Tensor:
    wide_x, wide_residual, scale, shift = widen_float16_tensors(
        g, x, residual, gamma, beta
    )
    total = wide_x + wide_residual
    norm = g.layer_norm if attrs["centred"] else g.rms_norm
    result = g.stack([norm(total, scale, shift, eps=attrs["eps"]), total])
    return result if wide_x is x else g.cast(result, x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 8.0 * inputs[0].numel


def _case(
    shape: Shape, dtype: DType = DType.F32, centred: bool = True, **attrs: float
) -> Sample:
    row_shape = shape[-1:]
    inputs = tuple(Drawn(s, dtype) for s in (shape, shape, row_shape, row_shape))
    return Sample(inputs, {"centred": centred, **attrs})


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
        attrs=(Attr("centred", "bool", True), EPS),
        flops=_flops,
        tolerance=NORM_TOLERANCE,
        samples=(
            *map(_case, _SHAPES),
            *(_case(s, centred=False, eps=1e-6) for s in _SHAPES),
            _case((65_537, 3), centred=False),
            _case((4, 9), DType.F16),
            _case((4, 9), DType.F64, False),
        ),
        doc="Two results, stacked as [2, ...]: the layer norm of x + residual along "
        "the last axis, scaled by gamma [n] and shifted by beta [n], and the sum x "
        "+ residual itself. With centred=False the norm is the RMS norm, which does "
        "not subtract the mean.",
    )
)
