"""Kernel plans of pools: windows padded into a copy of the array, then reduced.

A sum or a maximum is the reduction of `ops/reduce/wgsl/plan.py`, whose reduced axes are
a window's; the index of a maximum has a shader of its own, in `shaders/pool/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
)
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape_arithmetic import numel
from rlxweb.ops.conv.windows import plan_padding
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.layout.wgsl.padding import default_plan_rule, whole_image_padding_rule
from rlxweb.ops.pool.windows import lowest_value, pool_windows
from rlxweb.ops.reduce.wgsl.plan import (
    KeptAxes,
    ReducedAxes,
    ReductionPass,
    compute_scalar,
    element_type_include,
    pass_dispatch,
)


def window_reduction_rule(
    kind: Literal["sum", "max"],
) -> Callable[[Types, TensorType, Attrs], KernelPlan]:
    """Return the plan rule of the kernel that reduces each window by sum or max."""

    def plan(inputs: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
        (x,) = inputs
        w = pool_windows(x.shape, attrs).expand_to_three_axes()
        lead_size = numel(x.shape[:2])
        out_strides = row_major_strides((numel(x.shape[:2]), *w.out_shape))
        fill = lowest_value(x.dtype.numpy) if kind == "max" else 0
        source = plan_padding(w, lead_size, x.dtype, fill)
        in_strides = row_major_strides((lead_size, *source.extents))
        kept_axes = [KeptAxes(lead_size, in_strides[0], out_strides[0])]
        for axis in range(3):
            stride = w.strides[axis] * in_strides[axis + 1]
            kept_axes.append(KeptAxes(w.out_shape[axis], stride, out_strides[axis + 1]))
        reduced_axes = [
            ReducedAxes(size, d * stride)
            for size, d, stride in zip(
                w.kernel, w.dilations, in_strides[1:], strict=True
            )
        ]
        reduction_pass = ReductionPass(
            source.ref, BufferRef("out"), tuple(kept_axes), tuple(reduced_axes)
        )
        dispatch = pass_dispatch(kind, reduction_pass, element_type_include(x.dtype))
        return KernelPlan((*source.dispatches, dispatch), source.scratch, source.tables)

    return plan


def plan_max_pool_indices(inputs: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
    """Plan `max_pool_indices`. The running maximum is kept in a scratch buffer, from
    which the next chunk of a window continues.
    """
    (x,) = inputs
    w = pool_windows(x.shape, attrs).expand_to_three_axes()
    lead_size = numel(x.shape[:2])
    source = plan_padding(w, lead_size, x.dtype, lowest_value(x.dtype.numpy))
    in_strides = row_major_strides((lead_size, *source.extents))
    out_strides = row_major_strides((lead_size, *w.out_shape))
    window_strides = tuple(
        s * t for s, t in zip(w.strides, in_strides[1:], strict=True)
    )
    tap_strides = tuple(d * t for d, t in zip(w.dilations, in_strides[1:], strict=True))
    names = ("lead", "o0", "o1", "o2", "k0", "k1", "k2")
    source_strides = (in_strides[0], *window_strides, *tap_strides)
    target_strides = (*out_strides, 0, 0, 0)
    uniforms = {f"x_{n}": s for n, s in zip(names, source_strides, strict=True)}
    uniforms |= {f"z_{n}": s for n, s in zip(names, target_strides, strict=True)}
    for axis in range(3):
        uniforms |= {
            f"stride{axis}": w.strides[axis],
            f"dilation{axis}": w.dilations[axis],
            f"before{axis}": w.pads_before[axis],
            f"size{axis}": w.spatial_shape[axis],
        }
    maxima_slot = len(source.scratch)
    dispatch = KernelDispatch(
        "max_pool_indices",
        axes=tuple(
            IterationAxis(name, size, "serial" if name[0] == "k" else "parallel")
            for name, size in zip(
                names, (lead_size, *w.out_shape, *w.kernel), strict=True
            )
        ),
        accesses=(
            OperandAccess(source.ref, source_strides),
            OperandAccess(BufferRef("scratch", maxima_slot), target_strides, "update"),
            OperandAccess(BufferRef("out"), target_strides, "update"),
        ),
        grid=tuple((name, 1) for name in names[:4]),
        uniforms=uniforms,
        uses=(element_type_include(x.dtype),),
    )
    maxima_buffer = ScratchBuffer(out.numel, compute_scalar(x.dtype))
    dispatches = (*source.dispatches, dispatch)
    scratch_buffers = (*source.scratch, maxima_buffer)
    return KernelPlan(dispatches, scratch_buffers, source.tables)


KERNELS = tuple(
    KernelVariant(
        f"{op}, padded at once", op, whole_image_padding_rule(default_plan_rule(op))
    )
    for op in ("max_pool", "max_pool_indices", "sum_pool")
)
