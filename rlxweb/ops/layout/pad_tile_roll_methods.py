"""Graph methods for padding, tiling, rolling, and pixels that become channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import (
    as_integer,
    as_integers,
    as_tuple,
    bad_shape,
    format_shape,
    normalize_axes,
    short_repr,
)
from rlxweb.ir.tensor import Axes, Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

PadWidths = int | Sequence[int] | Sequence[Sequence[int]]


@graph_method
def pad(
    g: Graph,
    x: Tensor,
    pad_width: PadWidths,
    mode: str = "constant",
    value: float = 0.0,
) -> Tensor:
    """Add elements around an array, as numpy.pad.

    pad_width  (before, after) for each axis, or one such pair or number for all;
               negative ones take elements away
    mode       "constant" (of `value`), "reflect", "symmetric", "edge", "wrap"

    Errors   ShapeError, AttributeRefused; DTypeError for a value the type has not.
    """
    pairs = _pad_pairs(pad_width, x.rank)
    padded_axes = [
        (axis, front, back)
        for axis, (front, back) in enumerate(pairs)
        if (front, back) != (0, 0)
    ]
    axes, before, after = (
        zip(*padded_axes, strict=True) if padded_axes else ((), (), ())
    )
    return g.apply(
        "pad", x, axes=axes, before=before, after=after, mode=mode, value=value
    )


@graph_method
def center_crop_pad(
    g: Graph, x: Tensor, shape: Axes, axes: Axes | None = None, value: float = 0.0
) -> Tensor:
    """Crop or pad some axes around their middle to the given lengths.

    Where what is added or taken is odd the larger half is at the end, as ONNX has
    it. axes  None: all. Errors  ShapeError.
    """
    sizes = as_integers(shape, "a size")
    requested_axes = range(x.rank) if axes is None else as_integers(axes, "an axis")
    resized_axes = normalize_axes(tuple(requested_axes), x.rank)
    if len(resized_axes) != len(sizes) or any(size < 0 for size in sizes):
        raise bad_shape(
            f"got sizes {format_shape(sizes)} for {len(resized_axes)} axes",
            "expected one size >= 0 per axis",
        )
    before, after = [], []
    for axis, size in zip(resized_axes, sizes, strict=True):
        growth = size - x.shape[axis]
        front = growth // 2 if growth > 0 else -(-growth // 2)
        before.append(front)
        after.append(growth - front)
    return g.apply("pad", x, axes=resized_axes, before=before, after=after, value=value)


@graph_method
def tile(g: Graph, x: Tensor, repeats: Axes) -> Tensor:
    """Repeat `x` as a whole along its axes, as numpy.tile. Errors  ShapeError."""
    counts = as_integers(repeats, "a count")
    rank = max(x.rank, len(counts))
    if rank > x.rank:
        x = g.apply("reshape", x, shape=(*(1,) * (rank - x.rank), *x.shape))
    return g.apply("tile", x, repeats=(*(1,) * (rank - len(counts)), *counts))


@graph_method
def repeat(g: Graph, x: Tensor, repeats: Axes, axis: int | None = None) -> Tensor:
    """Repeat each element, as numpy.repeat and PyTorch's repeat_interleave.

    repeats  one count, or one for each element of the axis
    axis     None: of the elements in their order

    Errors   ShapeError, AttributeRefused.
    """
    if axis is None:
        x, axis = g.apply("reshape", x, shape=(-1,)), 0
    counts = as_integers(repeats, "a count")
    return g.apply("repeat", x, repeats=counts, axis=axis)


@graph_method
def roll(g: Graph, x: Tensor, shift: Axes, axis: Axes | None = None) -> Tensor:
    """Shift elements cyclically along axes, as numpy.roll.

    axis     None: along the elements in their order. Errors  ShapeError.
    """
    shifts = as_integers(shift, "a shift")
    axes = (0,) if axis is None else as_integers(axis, "an axis")
    if len(shifts) == 1:
        shifts *= len(axes)
    elif len(axes) == 1:  # NumPy adds up what is said of one axis
        shifts = (sum(shifts),)
    if len(shifts) != len(axes):
        raise bad_shape(
            f"got {len(shifts)} shifts for {len(axes)} axes",
            "expected one shift per axis",
        )
    if axis is not None:
        return g.apply("roll", x, shifts=shifts, axes=axes)
    flat = g.apply("reshape", x, shape=(-1,))
    rolled = g.apply("roll", flat, shifts=shifts, axes=axes)
    return g.apply("reshape", rolled, shape=x.shape)


@graph_method
def dilate(
    g: Graph, x: Tensor, steps: Axes, axes: Axes | None = None, value: float = 0.0
) -> Tensor:
    """Insert `step` - 1 times `value` between neighbours along some axes, the last
    ones when `axes` is None. Errors  ShapeError, AttributeRefused.
    """
    factors = as_integers(steps, "a step")
    dilated_axes = tuple(range(-len(factors), 0)) if axes is None else axes
    return g.apply("dilate", x, axes=dilated_axes, steps=factors, value=value)


@graph_method
def space_to_depth(g: Graph, x: Tensor, blocksize: int) -> Tensor:
    """Move blocks of pixels into channels: [N, C, H, W] → [N, C·b², H/b, W/b], as
    ONNX's SpaceToDepth.

    Errors   ShapeError unless both sides are multiples of the block.
    """
    n, c, h, w = _image_shape(x, blocksize)
    if h % blocksize or w % blocksize:
        raise bad_shape(
            f"the images are {h} by {w} pixels, blocksize is {blocksize}",
            "height and width must be multiples of blocksize",
        )
    b = blocksize
    blocks = g.apply("reshape", x, shape=(n, c, h // b, b, w // b, b))
    transposed = g.apply("transpose", blocks, perm=(0, 3, 5, 1, 2, 4))
    return g.apply("reshape", transposed, shape=(n, c * b * b, h // b, w // b))


@graph_method
def depth_to_space(g: Graph, x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """Move channels into blocks of pixels: [N, C, H, W] → [N, C/b², H·b, W·b], as
    ONNX's DepthToSpace.

    mode   "DCR": the block's place is the slow part of the channel; "CRD": the
           fast one, as PyTorch's pixel_shuffle

    Errors   ShapeError.
    """
    n, c, h, w = _image_shape(x, blocksize)
    if c % (blocksize * blocksize) or mode not in ("DCR", "CRD"):
        raise bad_shape(
            f"got {c} channels, blocksize {blocksize} and mode {mode!r}",
            f"the number of channels must be a multiple of blocksize² = "
            f"{blocksize * blocksize}, and mode must be DCR or CRD",
        )
    b, channels_out = blocksize, c // (blocksize * blocksize)
    split_shape = (
        (n, b, b, channels_out, h, w)
        if mode == "DCR"
        else (n, channels_out, b, b, h, w)
    )
    perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    blocks = g.apply("reshape", x, shape=split_shape)
    transposed = g.apply("transpose", blocks, perm=perm)
    return g.apply("reshape", transposed, shape=(n, channels_out, h * b, w * b))


def _image_shape(x: Tensor, blocksize: int) -> tuple[int, ...]:
    """Return the shape [N, C, H, W] of images. Errors  ShapeError."""
    blocksize = as_integer(blocksize, "blocksize")
    if x.rank != 4 or blocksize < 1:
        raise bad_shape(
            f"got rank {x.rank}, blocksize {blocksize}",
            "images must be [N, C, H, W] and blocksize must be >= 1",
        )
    return x.shape


def _pad_pairs(widths: PadWidths, rank: int) -> list[tuple[int, int]]:
    """Return (before, after) for each axis. Errors  ShapeError."""
    rows = as_tuple(widths) or ()
    if any(isinstance(row, Sequence | np.ndarray) for row in rows):
        pairs = [as_integers(row, "a width") for row in rows]
        pairs = pairs * rank if len(pairs) == 1 else pairs
        if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
            raise bad_shape(
                f"the pad widths are {short_repr(widths)}, the rank is {rank}",
                "expected one pair (before, after) per axis",
            )
        return [(before, after) for before, after in pairs]
    if not rows and not rank:
        return []
    flat = as_integers(widths, "a width")
    if len(flat) not in (1, 2):
        raise bad_shape(
            f"got {len(flat)} pad widths",
            "expected one number, one pair (before, after), or one pair per axis",
        )
    return [(flat[0], flat[-1])] * rank
