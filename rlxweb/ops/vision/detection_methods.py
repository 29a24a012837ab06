"""Graph methods for object detection: non-maximum suppression and ROI align.

They have torchvision's names. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import as_integer, as_pair, bad_shape, format_shape
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def nms(
    g: Graph,
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float = 0.5,
    max_output: int | None = None,
    score_threshold: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the indices of the boxes that non-maximum suppression keeps, and their
    number.

    boxes            [n, 4], two opposite corners each
    scores           [n]; with classes [C, n], each of which is suppressed apart
    iou_threshold    what a box may share, of what both cover, with one of a higher
                     score
    max_output       how many are kept at most (of a class); None: n
    score_threshold  what scores have to be above; None: any number will do

    → places [max_output or n], or [C, …], and counts [] or [C], all i32; behind the
    last place stands -1. As torchvision's nms; of equal scores the smaller place is
    first, and NaN is no score. Errors  ShapeError, AttributeRefused.
    """
    if boxes.rank != 2 or scores.rank not in (1, 2):
        raise bad_shape(
            f"boxes has shape {format_shape(boxes.shape)}, scores "
            f"{format_shape(scores.shape)}",
            "boxes must be [n, 4] and scores [n] or [classes, n]",
            'for a batch, use apply("non_max_suppression", …)',
        )
    max_boxes = boxes.shape[0] if max_output is None else max_output
    batched_shape = (1, -1, scores.shape[-1])
    indices = g.apply(
        "non_max_suppression",
        g.apply("reshape", boxes, shape=(1, *boxes.shape)),
        g.apply("reshape", scores, shape=batched_shape),
        max_output=max_boxes,
        iou_threshold=iou_threshold,
        score_threshold=score_threshold,
    )
    class_shape = scores.shape[:-1]
    indices = g.apply("reshape", indices, shape=(*class_shape, indices.shape[-1]))
    zeros = g.apply("sub", indices, indices)
    is_selected = g.apply("cast", g.apply("ge", indices, zeros), to="i32")
    return indices, g.apply("sum", is_selected, axes=(-1,))


@graph_method
def roi_align(
    g: Graph,
    x: Tensor,
    rois: Tensor,
    images: Tensor,
    output_size: int | Sequence[int],
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    aligned: bool = True,
    mode: str = "avg",
) -> Tensor:
    """Resample regions of images to one size: [R, C, *output_size].

    x               [N, C, H, W]
    rois            [R, 4]: x1 y1 x2 y2, times `spatial_scale` in elements of x
    images          [R] integers: which image each is of
    output_size     (height, width), or one number for both
    sampling_ratio  samples along each side of a bin; 0 and below: as many as it has
                    elements
    aligned         whether half an element is taken off, so that a place is where
                    an element's middle is; without, regions are 1 large at least
    mode            "avg", or "max" of each sample's weighted corners

    As torchvision's and ONNX's, whose defaults differ in `aligned`.
    Errors   IndexRefused when it is run; ShapeError, AttributeRefused, DTypeError.
    """
    size = as_pair(output_size)
    samples = max(as_integer(sampling_ratio, "sampling_ratio"), 0)
    return g.apply(
        "roi_align",
        x,
        rois,
        images,
        size=size,
        sampling=samples,
        scale=spatial_scale,
        aligned=aligned,
        mode=mode,
    )
