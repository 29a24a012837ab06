"""Builder methods of detectors: boxes suppressed, regions pooled, windows deformed.

They have torchvision's names. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import as_integer, bad_shape, show
from rlxweb.ir.tensor import Tensor, working


class RegionBuilder(OpBuilder):
    """Builder methods over `apply`; mixed into Graph."""

    def nms(
        self,
        boxes: Tensor,
        scores: Tensor,
        iou_threshold: float = 0.5,
        max_output: int | None = None,
        score_threshold: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The places of the boxes that are kept, and how many they are.

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
        with working("nms", boxes, scores):
            if boxes.rank != 2 or scores.rank not in (1, 2):
                raise bad_shape(
                    f"boxes {show(boxes.shape)} and scores {show(scores.shape)}",
                    "[n, 4] and [n], or [classes, n]",
                    'of a batch: apply("non_max_suppression", …)',
                )
            most = boxes.shape[0] if max_output is None else max_output
        every = (1, -1, scores.shape[-1])
        found = self.apply(
            "non_max_suppression",
            self.apply("reshape", boxes, shape=(1, *boxes.shape)),
            self.apply("reshape", scores, shape=every),
            max_output=most,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
        )
        lead = scores.shape[:-1]
        found = self.apply("reshape", found, shape=(*lead, found.shape[-1]))
        none = self.apply("sub", found, found)
        there = self.apply("cast", self.apply("ge", found, none), to="i32")
        return found, self.apply("sum", there, axes=(-1,))

    def roi_align(
        self,
        x: Tensor,
        rois: Tensor,
        images: Tensor,
        output_size: int | Sequence[int],
        sampling_ratio: int = 0,
        spatial_scale: float = 1.0,
        aligned: bool = True,
        mode: str = "avg",
    ) -> Tensor:
        """Regions of images brought to one size: [R, C, *output_size].

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
        with working("roi_align", x, rois, images):
            one = isinstance(output_size, int)
            size = (output_size,) * 2 if one else tuple(output_size)  # type: ignore[arg-type]
            samples = max(as_integer(sampling_ratio, "a ratio"), 0)
        how: dict[str, Any] = {"aligned": aligned, "mode": mode}
        how |= {"sampling": samples, "scale": spatial_scale}
        return self.apply("roi_align", x, rois, images, size=size, **how)

    def deform_conv2d(
        self,
        x: Tensor,
        offset: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        mask: Tensor | None = None,
    ) -> Tensor:
        """A convolution whose taps are moved by offsets, as torchvision's.

        x        [N, C, H, W]
        offset   [N, 2·offset_groups·h·w, …]: how far down and across each tap is moved
        weight   [O, C/groups, h, w]
        bias     [O]
        mask     [N, offset_groups·h·w, …]: what each tap counts

        The groups follow from the shapes. Errors  ShapeError, AttributeRefused.
        """
        with working("deform_conv2d", x, offset, weight):
            if {x.rank, offset.rank, weight.rank} != {4}:
                raise bad_shape(
                    f"ranks {x.rank}, {offset.rank} and {weight.rank}",
                    "images, offsets and weight have 4 axes",
                )
            taps = 2 * weight.shape[2] * weight.shape[3]
            stride, padding, dilation = (
                (one,) * 2 if isinstance(one, int) else tuple(one)
                for one in (stride, padding, dilation)
            )
        given = (x, weight, offset) if mask is None else (x, weight, offset, mask)
        made = self.apply(
            "deform_conv",
            *given,
            strides=stride,
            dilations=dilation,
            pads=(*padding, *padding),
            groups=max(x.shape[1] // max(weight.shape[1], 1), 1),
            offset_groups=max(offset.shape[1] // max(taps, 1), 1),
        )
        if bias is None:
            return made
        each = self.apply("reshape", bias, shape=(-1, 1, 1))
        return self.apply("add", made, each)
