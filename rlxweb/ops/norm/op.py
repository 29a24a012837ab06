"""Softmax, layer norm and RMS norm: each row along one axis, normalised by itself.

Lines are never cut; any axis works without a transpose, since a shader walks a line by
its stride. f16 is computed in f32. Where a line does not fit a device's bindings, or a
device lacks the bindings, the decompositions below take over. No device is known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

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
    KernelPlanRule,
    OperandAccess,
)
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.op_methods import add_node
from rlxweb.ir.sample import Drawn, Sample, parse_shape_table
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_shape,
    format_shape,
    normalize_axis,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import BatchContext, batch_axes_rule
from rlxweb.ops.elementwise.op import common_dtype
from rlxweb.ops.matmul.op import widen_float16

EPS = Attr("eps", "float", 1e-5, at_least=0, at_most=3.4e38)
"""What is added to a variance: a float32, so that no shader gets infinity."""


def _infer_softmax(types: Types, attrs: Attrs) -> TensorType:
    normalize_axis(attrs["axis"], types[0].rank)
    return types[0]


def _infer_norm(types: Types, attrs: Attrs) -> TensorType:
    x = types[0]
    common_dtype(types)
    n = x.shape[normalize_axis(attrs["axis"], x.rank)]
    for name, operand in zip(("gamma", "beta"), types[1:], strict=True):
        if operand.shape != (n,):
            raise bad_shape(
                f"got {name} {format_shape(operand.shape)}",
                f"expected [{n}] for axis {attrs['axis']} of {format_shape(x.shape)}",
                "pass one value for each element of the axis",
            )
    return x


def _per_row_plan(
    shader: str, iterations: float, uses: tuple[str, ...] = ()
) -> KernelPlanRule:
    """Return a plan rule that dispatches `shader` once for every row along `axis`.

    iterations  loop turns of the shader for each element of a line
    Operands after the first hold one value for each element of the line.
    """

    def plan(inputs: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
        axis = normalize_axis(attrs["axis"], out.rank)
        n = out.shape[axis]
        outer, inner = math.prod(out.shape[:axis]), math.prod(out.shape[axis + 1 :])
        strides = (n * inner, 1, inner)
        eps_uniform = {"eps": attrs["eps"]} if "eps" in attrs else {}
        dispatch = KernelDispatch(
            shader,
            axes=(
                IterationAxis("outer", outer),
                IterationAxis("inner", inner),
                IterationAxis("n", n, "whole"),
            ),
            accesses=(
                OperandAccess(BufferRef("in", 0), strides),
                *(
                    OperandAccess(BufferRef("in", i), (0, 0, 1))
                    for i in range(1, len(inputs))
                ),
                OperandAccess(BufferRef("out"), strides, "write"),
            ),
            grid=(("outer", 1), ("inner", 1)),
            uniforms={"outer_step": n * inner, "step": inner, **eps_uniform},
            uses=uses,
            iterations=iterations,
        )
        return KernelPlan((dispatch,))

    return plan


def _softmax_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis, wide = attrs["axis"], widen_float16(xp, x)
    if 0 in x.shape:
        return x
    exps = xp.exp(wide - xp.max(wide, axis=axis, keepdims=True))
    result = exps / xp.sum(exps, axis=axis, keepdims=True)
    return xp.asarray(result, dtype=x.dtype)


def _log_softmax_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis, wide = attrs["axis"], widen_float16(xp, x)
    if 0 in x.shape:
        return x
    shifted = wide - xp.max(wide, axis=axis, keepdims=True)
    result = shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))
    return xp.asarray(result, dtype=x.dtype)


def _broadcast_shape(rank: int, axis: int, n: int) -> list[int]:
    """Return the shape in which n values broadcast along an axis."""
    shape = [1] * rank
    shape[axis] = n
    return shape


def _norm_reference(centred: bool) -> Callable[..., Any]:
    """Return the reference of layer norm, or of RMS norm, which does not center."""

    def reference(xp: Any, attrs: Attrs, x: Any, gamma: Any, beta: Any) -> Any:
        axis, wide = attrs["axis"], widen_float16(xp, x)
        if 0 in x.shape:
            return x
        if centred:
            wide = wide - xp.mean(wide, axis=axis, keepdims=True)
        mean_square = xp.mean(wide * wide, axis=axis, keepdims=True)
        shape = _broadcast_shape(x.ndim, axis, x.shape[axis])
        scale, shift = (
            widen_float16(xp, operand).reshape(shape) for operand in (gamma, beta)
        )
        result = wide / xp.sqrt(mean_square + attrs["eps"]) * scale + shift
        return xp.asarray(result, dtype=x.dtype)

    return reference


def widen_float16_tensors(g: Graph, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast f16 tensors to f32, so that no intermediate result is kept in f16."""
    return tuple(g.cast(t, DType.F32) if t.dtype is DType.F16 else t for t in tensors)


def _compose_softmax(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    axis = attrs["axis"]
    (wide,) = widen_float16_tensors(g, x)
    exps = g.exp(wide - g.max(wide, axis, keep_dim=True))
    result = exps / g.sum(exps, axis, keep_dim=True)
    return result if wide is x else g.cast(result, x.dtype)


def _compose_log_softmax(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    axis = attrs["axis"]
    if 0 in x.shape:
        return x
    (wide,) = widen_float16_tensors(g, x)
    shifted = wide - g.max(wide, axis, keep_dim=True)
    result = shifted - g.log(g.sum(g.exp(shifted), axis, keep_dim=True))
    return result if wide is x else g.cast(result, x.dtype)


def _compose_norm(centred: bool) -> Compose:
    def build(g: Graph, attrs: Attrs, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        if 0 in x.shape:
            return g.identity(x)
        axis = normalize_axis(attrs["axis"], x.rank)
        wide, scale, shift = widen_float16_tensors(g, x, gamma, beta)
        if centred:
            wide = wide - g.mean(wide, axis, keep_dim=True)
        mean_square = g.mean(wide * wide, axis, keep_dim=True)
        shape = _broadcast_shape(x.rank, axis, x.shape[axis])
        result = wide * g.rsqrt(mean_square + attrs["eps"]) * g.reshape(scale, shape)
        result = result + g.reshape(shift, shape)
        return result if result.dtype is x.dtype else g.cast(result, x.dtype)

    return Compose(build)


# (shape, axis): any axis, odd and prime sizes, no lines, long lines, many lines.
_SHAPES_AND_AXES = [
    (shape, axis)
    for shape, (axis,) in parse_shape_table(
        "1@0 7@-1 64x64@-1 13x97@1 13x97@0 3x5x4@1 3x5x4@-3 2x3x16x9@2 0x5@1 5x0@1 "
        "3x0x4@2 65537x2@-1 2x65537@0 3x40009@-1 1x180001@-1"
    )
]


def _softmax_sample(
    shape: Shape, axis: int = -1, high: float = 6.0, note: str = ""
) -> Sample:
    return Sample((Drawn(shape, low=-high, high=high),), {"axis": axis}, note)


_SOFTMAX_SAMPLES = (
    *(_softmax_sample(shape, axis) for shape, axis in _SHAPES_AND_AXES),
    _softmax_sample((9, 31), -1, 80.0, "wide"),
    _softmax_sample((9, 31), -1, 1.5e38, "one-hot: the largest takes all"),
    Sample((Drawn((4, 9), low=3.0, high=3.0),), {"axis": -1}, "uniform"),
    Sample((Drawn((4, 9), DType.F16),), {"axis": -1}),
    Sample((Drawn((4, 9), DType.F64),), {"axis": 0}),
)


def _norm_sample(
    shape: Shape,
    axis: int = -1,
    dtype: DType = DType.F32,
    center: float = 0.0,
    note: str = "",
    **attrs: float,
) -> Sample:
    n = (shape[axis],)
    x = Drawn(shape, dtype, center - 2.0, center + 2.0)
    inputs = (x, Drawn(n, dtype), Drawn(n, dtype))
    return Sample(inputs, {"axis": axis, **attrs}, note)


# WGSL's exp is good to 3 + 2|x| ULP, and |x| reaches 160 in the samples; probabilities
# below 1e-37 may be flushed.
SOFTMAX_TOLERANCE = Tolerance(rtol=4e-5, atol=1e-7)
# The mean of values near 2 may be off by 2^-23; a line of almost equal values divides
# that by sqrt(eps), 1/316. The sample "far from zero" is the same at 200 and 1.
NORM_TOLERANCE = Tolerance(rtol=1e-5, atol=4e-5, relative_to_peak=True)

# Beside that the logarithm of a sum, which is near 0 where one term is nearly all.
LOG_SOFTMAX_TOLERANCE = Tolerance(rtol=2e-6, atol=6e-6)

_AXIS = Attr("axis", "int", -1)


def _softmax_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Differentiate softmax: y · (grad - sum of y · grad)."""
    weighted_grad = ctx.grad * ctx.out
    return [
        weighted_grad
        - ctx.out * ctx.g.sum(weighted_grad, (ctx.attrs["axis"],), keep_dim=True)
    ]


def _norm_batch_rule(ctx: BatchContext) -> Tensor:
    """Batch a norm: rows of all examples at once; scales that differ per example are
    applied afterwards.
    """
    axis = normalize_axis(ctx.attrs["axis"], ctx.ranks[0])
    x, gamma, beta = ctx.inputs
    if not any(ctx.is_batched[1:]):
        return ctx.apply(x, gamma, beta, axis=axis + 1)
    g, shape = ctx.g, _broadcast_shape(ctx.ranks[0], axis, gamma.shape[-1])
    unit_operands = (
        g.expand(g.constant(value, x.dtype), gamma.shape[-1:]) for value in (1, 0)
    )
    result = ctx.apply(x, *unit_operands, axis=axis + ctx.is_batched[0])
    scale, shift = (
        g.reshape(operand, (*operand.shape[:-1], *shape)) for operand in (gamma, beta)
    )
    return result * scale + shift


_norm_op = partial(
    Op,
    batch=_norm_batch_rule,
    arity=3,
    infer=_infer_norm,
    attrs=(_AXIS, EPS),
    traits=frozenset({"floats_only"}),
    tolerance=NORM_TOLERANCE,
    samples=(
        *(_norm_sample(shape, axis) for shape, axis in _SHAPES_AND_AXES),
        _norm_sample((5, 33), eps=0.5),
        _norm_sample((5, 33), center=200.0, note="far from zero"),
        _norm_sample((4, 9), dtype=DType.F16),
        _norm_sample((4, 9), 0, DType.F64),
    ),
    calibration_cases=tuple(
        _norm_sample(s, -1) for s in ((4, 16), (1 << 15, 4), (256, 512))
    ),
)

registry.register_all(
    Op(
        name="softmax",
        infer=_infer_softmax,
        reference=_softmax_reference,
        lower=Kernel(
            _per_row_plan("softmax", 0.375, ("nan",)), Compose(_compose_softmax)
        ),
        attrs=(_AXIS,),
        traits=frozenset({"reduction", "floats_only"}),
        flops=lambda inputs, out, attrs: 5.0 * out.numel,
        tolerance=SOFTMAX_TOLERANCE,
        samples=_SOFTMAX_SAMPLES,
        calibration_cases=tuple(
            Sample((Drawn(s),)) for s in ((4, 16), (1 << 15, 4), (256, 512))
        ),
        onnx=("Softmax",),
        vjp=_softmax_vjp,
        batch=batch_axes_rule("axis"),
        method=add_node,
        doc="exp(x - max) / sum(exp(x - max)) along an axis.",
    ),
    Op(
        name="log_softmax",
        infer=_infer_softmax,
        reference=_log_softmax_reference,
        lower=Compose(_compose_log_softmax),
        attrs=(_AXIS,),
        traits=frozenset({"reduction", "floats_only"}),
        flops=lambda inputs, out, attrs: 5.0 * out.numel,
        tolerance=LOG_SOFTMAX_TOLERANCE,
        samples=_SOFTMAX_SAMPLES,
        onnx=("LogSoftmax",),
        method=add_node,
        doc="x - max - log(sum(exp(x - max))) along an axis: the logarithm of "
        "softmax, finite even where softmax underflows to 0.",
    ),
    _norm_op(
        name="layer_norm",
        reference=_norm_reference(centred=True),
        lower=Kernel(_per_row_plan("layer_norm", 0.75), _compose_norm(centred=True)),
        flops=lambda inputs, out, attrs: 8.0 * out.numel,
        doc="(x - mean) / sqrt(variance + eps) · gamma + beta along an axis; the "
        "variance is divided by the length n of the axis, not by n - 1.",
    ),
    _norm_op(
        name="rms_norm",
        reference=_norm_reference(centred=False),
        lower=Kernel(_per_row_plan("rms_norm", 0.5), _compose_norm(centred=False)),
        flops=lambda inputs, out, attrs: 6.0 * out.numel,
        doc="x / sqrt(mean of x² + eps) · gamma + beta along an axis.",
    ),
)
