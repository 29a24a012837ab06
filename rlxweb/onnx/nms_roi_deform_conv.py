"""Converters of detection ops: non-maximum suppression, RoiAlign, deformable
convolution.
"""

from __future__ import annotations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts

Ints = tuple[int, ...]


@converts("NonMaxSuppression", since=10)
def _non_max_suppression(
    ctx: ConversionContext,
    boxes: Tensor,
    scores: Tensor,
    max_boxes_per_class: Tensor | None = None,
    iou_limit: Tensor | None = None,
    min_score: Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> Value:
    """Convert NonMaxSuppression to rows [kept, 3] of batch, class and box; the number
    of kept boxes must be computed first.
    """
    g = ctx.graph
    box_limit = (
        0
        if max_boxes_per_class is None
        else int(
            ctx.require_number(
                max_boxes_per_class, "the maximum number of boxes per class"
            )
        )
    )
    if not box_limit:
        return ctx.constant_value(np.zeros((0, 3), np.int64))
    box_indices = g.apply(
        "non_max_suppression",
        boxes,
        scores,
        max_output=min(box_limit, boxes.shape[1]),
        iou_threshold=0.0
        if iou_limit is None
        else ctx.require_number(iou_limit, "the IoU threshold"),
        score_threshold=None
        if min_score is None
        else ctx.require_number(min_score, "the score threshold"),
        center_point_box=bool(center_point_box),
    )
    kept_positions = ctx.nonzero_indices(
        g.ge(box_indices, 0), "the number of selected boxes"
    )
    kept_boxes = g.gather_nd(box_indices, g.transpose(kept_positions, (1, 0)))
    columns = [kept_positions[0], kept_positions[1], kept_boxes]
    return g.stack(columns, 1).cast(DType.I64)


@converts("RoiAlign", since=10)
def _roi_align(
    ctx: ConversionContext,
    x: Tensor,
    rois: Tensor,
    images: Tensor,
    *,
    coordinate_transformation_mode: str = "",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Convert RoiAlign; before opset 16 the default coordinate mode is
    `output_half_pixel`.
    """
    default_mode = "half_pixel" if ctx.version >= 16 else "output_half_pixel"
    coordinate_mode = coordinate_transformation_mode or default_mode
    if coordinate_mode not in ("half_pixel", "output_half_pixel"):
        ctx.raise_invalid_model(
            f"coordinate_transformation_mode is {coordinate_mode!r}",
            "must be half_pixel or output_half_pixel",
        )
    size = (output_height, output_width)
    options = (sampling_ratio, spatial_scale, coordinate_mode == "half_pixel", mode)
    return ctx.graph.roi_align(x, rois, images, size, *options)


@converts("DeformConv", since=19)
def _deform_conv(
    ctx: ConversionContext,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    offset_group: int = 1,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    if kernel_shape is not None and kernel_shape != weight.shape[2:]:
        ctx.raise_invalid_model(
            f"kernel_shape is {kernel_shape}",
            f"the weight has the kernel shape {weight.shape[2:]}",
        )
    if x.rank != 4:
        ctx.raise_unsupported(
            f"x has rank {x.rank}", "must be 4: images with 2 spatial axes"
        )
    operands = (x, weight, offset) if mask is None else (x, weight, offset, mask)
    result = ctx.graph.apply(
        "deform_conv",
        *operands,
        strides=strides or (1, 1),
        dilations=dilations or (1, 1),
        pads=pads or (0, 0, 0, 0),
        groups=group,
        offset_groups=offset_group,
    )
    return result if bias is None else result + bias.reshape((-1, 1, 1))
