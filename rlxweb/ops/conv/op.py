"""Convolution over one, two or three spatial axes, in groups.

[N, C, …] and weights [M, C / groups, …] as PyTorch and ONNX have them: a correlation,
the kernel is not turned. f16 is summed in f32, integers wrap. Which window begins where
is in `windows.py`, the kernel in `wgsl/plan.py`. No device is
known here.
"""

from __future__ import annotations

import math
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel, KernelPlan
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    bad_shape,
    format_shape,
    numel,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import BatchContext, batch_as_first_axis
from rlxweb.ops.conv.vjp import conv_vjp
from rlxweb.ops.conv.wgsl.plan import convolution_shape, plan_conv
from rlxweb.ops.conv.windows import (
    DILATIONS_ATTR,
    PADS_ATTR,
    STRIDES_ATTR,
    SlidingWindows,
    sliding_windows,
)
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.layout.numpy_sliding_windows import extract_windows
from rlxweb.ops.matmul.op import MATMUL_TOLERANCE, widen_float16

GROUPS = Attr("groups", "int", 1)


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, w = types
    dtype = common_dtype(types)
    require_dtypes(types, NUMERIC_DTYPES)
    if x.rank < 3 or w.rank != x.rank:
        raise bad_shape(
            f"got an array of rank {x.rank} and weights of rank {w.rank}",
            "expected an array [N, C, spatial axes…] and weights [output channels, C "
            "/ groups, kernel…] of the same rank",
            "reshape a single image to [1, C, …]",
        )
    groups = attrs["groups"]
    if groups < 1 or w.shape[0] % groups:
        raise bad_attribute(
            f"groups={groups} with weights {format_shape(w.shape)}",
            "groups must be at least 1 and divide the first dimension of the weights",
        )
    if w.shape[1] * groups != x.shape[1]:
        raise bad_shape(
            f"the array has {x.shape[1]} channels",
            f"weights {format_shape(w.shape)} with groups={groups} require "
            f"{w.shape[1] * groups} channels",
            "pass weights whose second dimension is the number of channels divided "
            "by groups",
        )
    windows = sliding_windows(x.shape[2:], w.shape[2:], attrs)
    return TensorType((x.shape[0], w.shape[0], *windows.out_shape), dtype)


def _kernel_plan(inputs: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
    x, w = inputs
    return plan_conv(convolution_shape(x.shape, w.shape, attrs), x.dtype)


def _reference(xp: Any, attrs: Attrs, x: Any, w: Any) -> Any:
    windows = sliding_windows(tuple(x.shape[2:]), tuple(w.shape[2:]), attrs)
    result = im2col_matmul(
        xp, attrs["groups"], windows, widen_float16(xp, x), widen_float16(xp, w)
    )
    return xp.asarray(result, dtype=x.dtype)


def im2col_matmul(xp: Any, groups: int, windows: SlidingWindows, x: Any, w: Any) -> Any:
    """Convolve by im2col: multiply each group's weights by its windows laid side by
    side.
    """
    n, m, c = x.shape[0], w.shape[0], w.shape[1]
    position_count, tap_count = numel(windows.out_shape), math.prod(windows.kernel)
    columns = xp.reshape(
        extract_windows(xp, x, windows), (n, groups, c, position_count, tap_count)
    )
    columns = xp.reshape(
        xp.permute_dims(columns, (0, 1, 2, 4, 3)),
        (n, groups, c * tap_count, position_count),
    )
    rows = xp.reshape(w, (1, groups, m // groups, c * tap_count))
    return xp.reshape(xp.matmul(rows, columns), (n, m, *windows.out_shape))


def _batch_conv(ctx: BatchContext) -> Tensor:
    """Batch the convolution: images of all examples form one batch; weights that differ
    per example give channels of their own where the images are the same.
    """
    if not ctx.is_batched[1]:
        return batch_as_first_axis(ctx)
    if ctx.is_batched[0] or ctx.attrs["groups"] > 1:
        return batch_as_groups(ctx)
    g, (x, w) = ctx.g, ctx.inputs
    result = ctx.apply(x, g.reshape(w, (ctx.count * w.shape[1], *w.shape[2:])))
    return _split_example_axis(ctx, result)


def batch_as_groups(ctx: BatchContext) -> Tensor:
    """Batch a convolution whose weights differ per example by making each example a
    group.
    """
    g, n, w = ctx.g, ctx.count, ctx.inputs[1]
    x = g.moveaxis(ctx.batched_operand(0), 0, 1)
    x = g.reshape(x, (x.shape[0], n * x.shape[2], *x.shape[3:]))
    weights = g.reshape(w, (n * w.shape[1], *w.shape[2:]))
    return _split_example_axis(
        ctx, ctx.apply(x, weights, groups=n * ctx.attrs["groups"])
    )


def _split_example_axis(ctx: BatchContext, result: Tensor) -> Tensor:
    """Split the channels of all examples and move the example axis to the front."""
    shape = (result.shape[0], ctx.count, ctx.shape[1], *result.shape[2:])
    return ctx.g.moveaxis(ctx.g.reshape(result, shape), 1, 0)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * out.numel * numel(inputs[1].shape[1:])


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    """Describe the convolution as a matrix product of each group's weights by its
    windows.
    """
    groups, w = attrs["groups"], inputs[1].shape
    size = {
        "batch": out.shape[0] * groups,
        "m": out.shape[1] // groups,
        "k": numel(w[1:]),
        "n": numel(out.shape[2:]),
    }
    return "whole_matmul" if out.dtype.is_integer else "matmul", size


def _case(
    x: Shape, w: Shape, dtype: DType = DType.F32, note: str = "", **attrs: Any
) -> Sample:
    whole = dtype in (DType.F16, DType.I32)
    inputs = tuple(Drawn(s, dtype, -2, 2, whole=whole) for s in (x, w))
    return Sample(inputs, attrs, note)


_SAMPLES = (
    _case((2, 3, 17), (4, 3, 5), strides=2, pads=2),
    _case((1, 2, 9, 11), (3, 2, 3, 3), pads=1),
    _case((2, 4, 9, 10), (6, 2, 3, 2), groups=2, strides=(2, 3), pads=(1, 0, 0, 2)),
    _case((1, 5, 8, 9), (5, 1, 3, 3), groups=5, dilations=2, pads=(2, 2)),
    _case((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), strides=(1, 2, 1), pads=(0, 1, 1)),
    _case((1, 3, 23, 31), (18, 3, 4, 4), pads=(3, 0, 1, 2), note="pieces"),
    _case((3, 40, 4, 5), (21, 40, 1, 1), note="one tap"),
    _case((3, 16, 5, 6), (72, 8, 3, 3), groups=2, pads=1, note="many channels"),
    _case((4, 70, 4, 4), (5, 70, 4, 4), note="few results of long sums"),
    _case((1, 1, 1500), (2, 1, 1100), pads=30, note="a long sum"),
    _case((2, 0, 5, 5), (3, 0, 2, 2), note="nothing to sum: zeros"),
    _case((0, 2, 5), (3, 2, 2), note="no images"),
    _case((1, 1, 1), (1, 1, 1)),
    _case((65_537, 1, 2), (1, 1, 2), note="many images"),
    _case((1, 3, 6, 6), (2, 3, 3, 3), DType.F16, pads=1),
    _case((1, 3, 6, 6), (2, 3, 3, 3), DType.I32, pads=1),
    _case((1, 3, 6, 6), (2, 3, 3, 3), DType.F64, pads=1),
)

registry.register_all(
    Op(
        name="conv",
        arity=2,
        infer=_infer,
        reference=_reference,
        lower=Kernel(_kernel_plan),
        attrs=(STRIDES_ATTR, DILATIONS_ATTR, PADS_ATTR, GROUPS),
        traits=frozenset({"blas"}),
        flops=_flops,
        work=_work,
        tolerance=MATMUL_TOLERANCE,
        samples=_SAMPLES,
        vjp=conv_vjp,
        batch=_batch_conv,
        doc="Convolution (cross-correlation) of an array [N, C, …] with weights [M, "
        "C / groups, …] over 1 to 3 spatial axes. The attributes `strides`, "
        "`dilations` and `pads` have one number for all axes or one per axis. `pads` "
        "may also have two per axis: first the paddings at the start of every axis, "
        "then those at the end.",
    ),
)
