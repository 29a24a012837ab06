"""What detectors do: boxes suppressed, regions pooled, windows deformed."""

from __future__ import annotations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, Value, converts

Ints = tuple[int, ...]


@converts("NonMaxSuppression", since=10)
def _non_max_suppression(
    call: Call,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    least: Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> Value:
    """[kept, 3]: batch, class and box; how many are kept has to be known."""
    g = call.g
    keep = 0 if most is None else int(call.number(most, "the most boxes of a class"))
    if not keep:
        return call.hold(np.zeros((0, 3), np.int64))
    places = g.apply(
        "non_max_suppression",
        boxes,
        scores,
        max_output=min(keep, boxes.shape[1]),
        iou_threshold=0.0 if overlap is None else call.number(overlap, "the overlap"),
        score_threshold=None
        if least is None
        else call.number(least, "the least score"),
        center_point_box=bool(center_point_box),
    )
    found = call.found(g.ge(places, 0), "how many boxes are kept")
    which = g.gather_nd(places, g.transpose(found, (1, 0)))
    rows = [found[0], found[1], which]
    return g.stack(rows, 1).cast(DType.I64)


@converts("RoiAlign", since=10)
def _roi_align(
    call: Call,
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
    """Before opset 16 regions are of whole elements."""
    usual = "half_pixel" if call.version >= 16 else "output_half_pixel"
    given = coordinate_transformation_mode or usual
    if given not in ("half_pixel", "output_half_pixel"):
        call.contradict(f"coordinate_transformation_mode is {given!r}")
    size = (output_height, output_width)
    how = (sampling_ratio, spatial_scale, given == "half_pixel", mode)
    return call.g.roi_align(x, rois, images, size, *how)


@converts("DeformConv", since=19)
def _deform_conv(
    call: Call,
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
        call.contradict(
            f"kernel_shape is {kernel_shape}", f"the weight has {weight.shape[2:]}"
        )
    if x.rank != 4:
        call.refuse(f"x has rank {x.rank}", "images have 2 spatial axes")
    given = (x, weight, offset) if mask is None else (x, weight, offset, mask)
    made = call.g.apply(
        "deform_conv",
        *given,
        strides=strides or (1, 1),
        dilations=dilations or (1, 1),
        pads=pads or (0, 0, 0, 0),
        groups=group,
        offset_groups=offset_group,
    )
    return made if bias is None else made + bias.reshape((-1, 1, 1))
