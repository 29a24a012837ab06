"""Builder methods that put elements at other places: padding, tiling, picking, sorting.

They have the names of NumPy and PyTorch; where the two differ the docstring says whose
meaning a name has. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlxweb.ir.moves_builder import Axes, MovesBuilder, integers
from rlxweb.ir.shape import (
    as_integer,
    bad_shape,
    distinct_axes,
    many,
    normal_axis,
    show,
)
from rlxweb.ir.tensor import Tensor, working

Widths = int | Sequence[int] | Sequence[Sequence[int]]


class PicksBuilder(MovesBuilder):
    """Builder methods that put elements at other places; mixed into Graph."""

    def pad(
        self, x: Tensor, pad_width: Widths, mode: str = "constant", value: float = 0.0
    ) -> Tensor:
        """More elements around an array, as numpy.pad.

        pad_width  (before, after) for each axis, or one such pair or number for all;
                   negative ones take elements away
        mode       "constant" (of `value`), "reflect", "symmetric", "edge", "wrap"

        Errors   ShapeError, AttributeRefused; DTypeError for a value the type has not.
        """
        with working("pad", x):
            pairs = _pairs(pad_width, x.rank)
        wide = [(a, b, e) for a, (b, e) in enumerate(pairs) if (b, e) != (0, 0)]
        axes, before, after = zip(*wide, strict=True) if wide else ((), (), ())
        how: dict[str, Any] = {"before": before, "after": after, "mode": mode}
        return self.apply("pad", x, axes=axes, value=value, **how)

    def center_crop_pad(
        self, x: Tensor, shape: Axes, axes: Axes | None = None, value: float = 0.0
    ) -> Tensor:
        """The middle of some axes, brought to these lengths by cropping or padding.

        Where what is added or taken is odd the larger half is at the end, as ONNX has
        it. axes  None: all. Errors  ShapeError.
        """
        with working("center_crop_pad", x):
            sizes = integers(shape, "a size")
            given = range(x.rank) if axes is None else integers(axes, "an axis")
            on = distinct_axes(tuple(given), x.rank)
            if len(on) != len(sizes) or any(size < 0 for size in sizes):
                raise bad_shape(
                    f"sizes {show(sizes)} for {len(on)} axes", "one >= 0 for each"
                )
        before, after = [], []
        for axis, size in zip(on, sizes, strict=True):
            more = size - x.shape[axis]
            first = more // 2 if more > 0 else -(-more // 2)
            before.append(first)
            after.append(more - first)
        return self.apply("pad", x, axes=on, before=before, after=after, value=value)

    def tile(self, x: Tensor, repeats: Axes) -> Tensor:
        """`x` again and again along its axes, as numpy.tile. Errors  ShapeError."""
        with working("tile", x):
            counts = integers(repeats, "a count")
        rank = max(x.rank, len(counts))
        if rank > x.rank:
            x = self.apply("reshape", x, shape=(*(1,) * (rank - x.rank), *x.shape))
        return self.apply("tile", x, repeats=(*(1,) * (rank - len(counts)), *counts))

    def repeat(self, x: Tensor, repeats: Axes, axis: int | None = None) -> Tensor:
        """Each element so many times, as numpy.repeat and PyTorch's repeat_interleave.

        repeats  one count, or one for each element of the axis
        axis     None: of the elements in their order

        Errors   ShapeError, AttributeRefused.
        """
        if axis is None:
            x, axis = self.apply("reshape", x, shape=(-1,)), 0
        with working("repeat", x):
            counts = integers(repeats, "a count")
        return self.apply("repeat", x, repeats=counts, axis=axis)

    def roll(self, x: Tensor, shift: Axes, axis: Axes | None = None) -> Tensor:
        """Elements moved on along axes, round the end, as numpy.roll.

        axis     None: along the elements in their order. Errors  ShapeError.
        """
        with working("roll", x):
            shifts = integers(shift, "a shift")
            axes = (0,) if axis is None else integers(axis, "an axis")
            if len(shifts) == 1:
                shifts *= len(axes)
            elif len(axes) == 1:  # NumPy adds up what is said of one axis
                shifts = (sum(shifts),)
            if len(shifts) != len(axes):
                raise bad_shape(
                    f"{len(shifts)} shifts for {len(axes)} axes", "one for each"
                )
        if axis is not None:
            return self.apply("roll", x, shifts=shifts, axes=axes)
        flat = self.apply("reshape", x, shape=(-1,))
        rolled = self.apply("roll", flat, shifts=shifts, axes=axes)
        return self.apply("reshape", rolled, shape=x.shape)

    def dilate(
        self, x: Tensor, steps: Axes, axes: Axes | None = None, value: float = 0.0
    ) -> Tensor:
        """`step` - 1 times `value` between neighbours of some axes, the last ones when
        `axes` is None. Errors  ShapeError, AttributeRefused.
        """
        with working("dilate", x):
            by = integers(steps, "a step")
        on = tuple(range(-len(by), 0)) if axes is None else axes
        return self.apply("dilate", x, axes=on, steps=by, value=value)

    def gather_elements(self, x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
        """An element of an axis for each index, as PyTorch's gather and ONNX.

        The other axes of the indices may be shorter than those of `x`: of these the
        first elements are used. Negative indices count from the end.
        Errors   IndexRefused when it is run; ShapeError, DTypeError.
        """
        with working("gather_elements", x, indices):
            at = normal_axis(axis, x.rank)
        for a, size in enumerate(indices.shape[: x.rank]):
            if a != at and size < x.shape[a]:
                x = self.apply("narrow", x, axis=a, start=0, length=size)
        return self.apply("gather_elements", x, indices, axis=axis)

    def take_along_axis(self, x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
        """`gather_elements` whose other axes broadcast, as numpy.take_along_axis."""
        with working("take_along_axis", x, indices):
            at = normal_axis(axis, x.rank)
            if indices.rank != x.rank:
                raise bad_shape(
                    f"indices of rank {indices.rank} for rank {x.rank}",
                    "both have the same rank",
                )
            rest = tuple(1 if a == at else d for a, d in enumerate(x.shape))
        indices = self.apply("expand", indices, shape=rest)
        rest = tuple(1 if a == at else d for a, d in enumerate(indices.shape))
        x = self.apply("expand", x, shape=rest)
        return self.apply("gather_elements", x, indices, axis=at)

    def gather_nd(self, x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
        """Rows by indices of several axes, which the last axis of `indices` holds.

        As ONNX's GatherND and TensorFlow's. Errors  IndexRefused when it is run.
        """
        return self.apply("gather_nd", x, indices, batch_dims=batch_dims)

    def scatter_elements(
        self,
        x: Tensor,
        indices: Tensor,
        values: Tensor,
        axis: int = 0,
        reduction: str = "none",
    ) -> Tensor:
        """`x` with values at places of an axis, as ONNX's ScatterElements.

        reduction  "none": of several the last; "add", "mul", "max", "min": combined
                   with what is there

        The other axes of the indices may be shorter than those of `x`.
        Errors   IndexRefused when it is run; ShapeError, DTypeError.
        """
        with working("scatter_elements", x, indices, values):
            at = normal_axis(axis, x.rank)
        short = [
            (a, n)
            for a, n in enumerate(indices.shape[: x.rank])
            if a != at and n < x.shape[a]
        ]
        if not short or indices.rank != x.rank:
            how: dict[str, Any] = {"axis": axis, "reduction": reduction}
            return self.apply("scatter_elements", x, indices, values, **how)
        # Put into the part that is named, which takes its place before the rest.
        a, n = short[0]
        part = self.apply("narrow", x, axis=a, start=0, length=n)
        made = self.scatter_elements(part, indices, values, axis, reduction)
        rest = self.apply("narrow", x, axis=a, start=n, length=x.shape[a] - n)
        return self.apply("concat", made, rest, axis=a)

    def scatter_nd(
        self,
        x: Tensor,
        indices: Tensor,
        values: Tensor,
        reduction: str = "none",
        batch_dims: int = 0,
    ) -> Tensor:
        """`x` with rows put in at places that the last axis of `indices` names.

        See `scatter_elements` for the reductions. As ONNX's ScatterND.
        Errors   IndexRefused when it is run; ShapeError, DTypeError.
        """
        how: dict[str, Any] = {"batch_dims": batch_dims, "reduction": reduction}
        return self.apply("scatter_nd", x, indices, values, **how)

    def space_to_depth(self, x: Tensor, blocksize: int) -> Tensor:
        """[N, C, H, W] → [N, C·b², H/b, W/b], as ONNX's SpaceToDepth.

        Errors   ShapeError unless both sides are multiples of the block.
        """
        with working("space_to_depth", x):
            n, c, h, w = _images(x, blocksize)
            if h % blocksize or w % blocksize:
                raise bad_shape(
                    f"images of {h} by {w} in blocks of {blocksize}",
                    "both sides are multiples of the block",
                )
        b = blocksize
        apart = self.apply("reshape", x, shape=(n, c, h // b, b, w // b, b))
        turned = self.apply("transpose", apart, perm=(0, 3, 5, 1, 2, 4))
        return self.apply("reshape", turned, shape=(n, c * b * b, h // b, w // b))

    def depth_to_space(self, x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
        """[N, C, H, W] → [N, C/b², H·b, W·b], as ONNX's DepthToSpace.

        mode   "DCR": the block's place is the slow part of the channel; "CRD": the
               fast one, as PyTorch's pixel_shuffle

        Errors   ShapeError.
        """
        with working("depth_to_space", x):
            n, c, h, w = _images(x, blocksize)
            if c % (blocksize * blocksize) or mode not in ("DCR", "CRD"):
                raise bad_shape(
                    f"{c} channels in blocks of {blocksize}, mode {mode!r}",
                    "a multiple of the block's square, and mode DCR or CRD",
                )
        b, rest = blocksize, c // (blocksize * blocksize)
        split = (n, b, b, rest, h, w) if mode == "DCR" else (n, rest, b, b, h, w)
        perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
        apart = self.apply("reshape", x, shape=split)
        turned = self.apply("transpose", apart, perm=perm)
        return self.apply("reshape", turned, shape=(n, rest, h * b, w * b))


def _images(x: Tensor, blocksize: int) -> tuple[int, ...]:
    blocksize = as_integer(blocksize, "a block")
    if x.rank != 4 or blocksize < 1:
        raise bad_shape(
            f"rank {x.rank}, blocksize {blocksize}",
            "images are [N, C, H, W], and a block has at least 1 element",
        )
    return x.shape


def _pairs(given: Widths, rank: int) -> list[tuple[int, int]]:
    """(before, after) for each axis. Errors  ShapeError."""
    rows = many(given) or ()
    if any(isinstance(row, Sequence | np.ndarray) for row in rows):
        pairs = [integers(row, "a width") for row in rows]
        pairs = pairs * rank if len(pairs) == 1 else pairs
        if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
            raise bad_shape(
                f"{len(pairs)} rows of widths for rank {rank}",
                "there is one pair (before, after) for each axis",
            )
        return [(before, after) for before, after in pairs]
    if not rows and not rank:
        return []
    flat = integers(given, "a width")
    if len(flat) not in (1, 2):
        raise bad_shape(f"{len(flat)} widths", "one number, or (before, after)")
    return [(flat[0], flat[-1])] * rank
