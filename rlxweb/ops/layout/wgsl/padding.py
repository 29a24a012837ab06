"""Alternative padding kernels without tables, where images fit a binding: four
neighbours a lane.

The plan of a padding op, and of ops that pad for themselves, puts the array into its
middle by a table for each axis, and every axis may be cut; here an image is never cut.
Deleting it changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import IterationAxis, KernelDispatch, KernelPlan, OperandAccess
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule
from rlxweb.ops.layout.wgsl.index_map import IndexTable, contiguous_run
from rlxweb.ops.reduce.wgsl.plan import compute_scalar, element_type_include

_MAX_IMAGE_AXES = 3
"""Maximum number of axes of an image."""


def default_plan_rule(op: str) -> WgslPlanRule:
    """Return the op's own plan rule in the form of a variant's."""

    def build_plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        return registry.get(op).kernel_plan(inputs, out, attrs)

    return build_plan


def whole_image_padding_rule(rule: WgslPlanRule) -> WgslPlanRule:
    """Return the rule with a leading padding dispatch, if there is one, replaced by
    whole images.
    """

    def build_plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        plan = rule(inputs, out, attrs, limits)
        if plan is None or not plan.dispatches or plan.dispatches[0].shader != "remap":
            return plan
        padding_dispatch, *rest = plan.dispatches
        dispatch = _whole_image_dispatch(padding_dispatch, plan.tables, inputs[0].dtype)
        if dispatch is None:
            return plan
        refs = [a.ref for other in rest for a in other.accesses]
        table_count = 1 + max(
            (ref.index for ref in refs if ref.kind == "table"), default=-1
        )
        return replace(
            plan, dispatches=(dispatch, *rest), tables=plan.tables[:table_count]
        )

    return build_plan


class _PaddedAxis(NamedTuple):
    """Axis of the padded images, and the part of the array that is in it.

    size     of the axis there, x and y: from one element to the next
    lead_count  in front of the `kept_count` elements, which are those from `start` on
    """

    size: int
    input_stride: int
    output_stride: int
    lead_count: int
    start: int
    kept_count: int


_SINGLETON_AXIS = _PaddedAxis(1, 0, 0, 0, 0, 1)


def _whole_image_dispatch(
    dispatch: KernelDispatch, tables: tuple[IndexTable, ...], dtype: DType
) -> KernelDispatch | None:
    """Return the padding dispatch by whole images; None where the array is not one box
    in the middle.
    """
    if dtype is DType.BOOL or len(dispatch.accesses) < 3:
        return None
    mapped_axes = [axis.name[1:] for axis in dispatch.axes if axis.name[0] == "t"]
    table_indices = [access.ref.index for access in dispatch.accesses[2:]]
    table_of = dict(zip(mapped_axes, table_indices, strict=True))
    axes = []
    for axis in dispatch.axes[: len(dispatch.axes) - len(mapped_axes)]:
        axis_number = axis.name[1:]
        kept_run: tuple[int, int, int] | None = (0, 0, axis.size)
        if axis_number in table_of:
            kept_run = contiguous_run(tables[table_of[axis_number]])
        if kept_run is None:
            return None
        input_stride, output_stride = (
            int(dispatch.uniforms[f"{letter}{axis_number}"]) for letter in "xy"
        )
        axes.append(_PaddedAxis(axis.size, input_stride, output_stride, *kept_run))
    lead_axis = _SINGLETON_AXIS if "0" in mapped_axes else axes.pop(0)
    return (
        _pad_dispatch(dispatch, lead_axis, axes, dtype)
        if len(axes) <= _MAX_IMAGE_AXES
        else None
    )


def _pad_dispatch(
    dispatch: KernelDispatch,
    lead_axis: _PaddedAxis,
    axes: list[_PaddedAxis],
    dtype: DType,
) -> KernelDispatch:
    source, target = dispatch.accesses[:2]
    axes = [_SINGLETON_AXIS] * (_MAX_IMAGE_AXES - len(axes)) + axes
    uniforms: dict[str, Any] = {"bits": _fill_bits(dispatch.uniforms["fill"], dtype)}
    for number, axis in enumerate(axes):
        uniforms |= {
            f"x_{number}": axis.input_stride,
            f"before{number}": axis.lead_count,
        }
        uniforms[f"kept{number}"] = axis.kept_count
    uniforms["x_lead"] = lead_axis.input_stride
    start = sum(axis.start * axis.input_stride for axis in axes)
    span = 1 + sum((axis.kept_count - 1) * axis.input_stride for axis in axes)
    box_axes = (
        IterationAxis(f"y{n}", axis.size, "whole") for n, axis in enumerate(axes)
    )
    return KernelDispatch(
        "pad_planes",
        axes=(IterationAxis("lead", lead_axis.size), *box_axes),
        accesses=(
            OperandAccess(
                source.ref, (lead_axis.input_stride, 0, 0, 0), offset=start, span=span
            ),
            OperandAccess(
                target.ref,
                (lead_axis.output_stride, *(axis.output_stride for axis in axes)),
                "write",
            ),
        ),
        grid=(("lead", 1), ("y0", 1), ("y1", 1), ("y2", 4)),
        uniforms=uniforms,
        uses=(element_type_include(dtype),),
    )


def _fill_bits(fill: float, dtype: DType) -> int:
    """Return the 32-bit word of the fill value in the type it is computed in."""
    if compute_scalar(dtype) != "f32":
        return int(fill)
    return int(np.float32(fill).view(np.uint32))


KERNELS = (
    KernelVariant(
        "pad, padded at once", "pad", whole_image_padding_rule(default_plan_rule("pad"))
    ),
)
