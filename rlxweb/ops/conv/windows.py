"""Sliding windows of convolutions and pools over the spatial axes of [N, C, …]: sizes
and padding.

Convolutions and pools agree on it. A window is `kernel` elements of an axis,
`dilations` apart; the next one begins `strides` further on, and the first `pads` in
front of the array. On a device what lies in the padding is written around a copy of
the array: a kernel has no edge to look at and may be cut anywhere. Arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import BufferRef, KernelDispatch, ScratchBuffer
from rlxweb.ir.op import Attr, Attrs
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    bad_shape,
    format_shape,
    numel,
)
from rlxweb.ops.layout.wgsl.index_map import IndexTable, plan_index_map, shift_table
from rlxweb.ops.reduce.wgsl.plan import compute_scalar

MAX_SPATIAL_AXES = 3
"""Largest number of spatial axes of a window."""
STRIDES_ATTR, DILATIONS_ATTR, PADS_ATTR = (
    Attr(n, "ints", ()) for n in ("strides", "dilations", "pads")
)


class SlidingWindows(NamedTuple):
    """Number and positions of windows over spatial axes.

    spatial_shape  of the array; `pads_before` zeros stand in front of it on each axis
    out_shape  windows along each axis
    """

    spatial_shape: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    pads_before: Shape
    out_shape: Shape

    @property
    def extents(self) -> Shape:
        """Elements along each axis from the first element of the first window to the
        last of the last.
        """
        return tuple(
            (o - 1) * s + (k - 1) * d + 1 if o else 0
            for o, k, s, d in zip(
                self.out_shape, self.kernel, self.strides, self.dilations, strict=True
            )
        )

    @property
    def is_inside(self) -> bool:
        """True if no window touches padding."""
        reach = zip(self.extents, self.spatial_shape, strict=True)
        return not any(self.pads_before) and all(r <= n for r, n in reach)

    def expand_to_three_axes(self) -> SlidingWindows:
        """Return the same windows over three axes, with axes of one element in
        front.
        """
        missing = MAX_SPATIAL_AXES - len(self.spatial_shape)
        ones = (1,) * missing
        return SlidingWindows(
            ones + self.spatial_shape,
            ones + self.kernel,
            ones + self.strides,
            ones + self.dilations,
            (0,) * missing + self.pads_before,
            ones + self.out_shape,
        )


def sliding_windows(size: Shape, kernel: Shape, attrs: Attrs) -> SlidingWindows:
    """Return the windows over spatial axes that an op's attributes describe.

    strides, dilations   one number for all axes, or one each; none: 1
    pads                 the same on both sides, or all fronts and then all ends
    ceil_mode            also a window that begins inside and reaches out at the end

    Errors   ShapeError, AttributeRefused.
    """
    rank = len(size)
    if not 1 <= rank <= MAX_SPATIAL_AXES:
        raise bad_shape(
            f"got {rank} spatial axes",
            f"expected 1 to {MAX_SPATIAL_AXES} after [N, C]",
            "reshape the array, or process one axis at a time",
        )
    _check_kernel(kernel, rank)
    strides = expand_per_axis("strides", attrs["strides"], rank, 1)
    dilations = expand_per_axis("dilations", attrs["dilations"], rank, 1)
    pads_before, pads_after = split_pads(attrs["pads"], rank)
    out = []
    for axis in range(rank):
        padded = pads_before[axis] + size[axis] + pads_after[axis]
        slack = padded - ((kernel[axis] - 1) * dilations[axis] + 1)
        if slack < 0:
            raise bad_shape(
                f"a window spans {padded - slack} elements on spatial axis {axis} "
                f"(size {size[axis]})",
                f"with padding the axis has {padded} elements",
                "use a smaller kernel or dilation, or more padding",
            )
        count = slack // strides[axis] + 1
        if attrs.get("ceil_mode") and slack % strides[axis]:
            count += count * strides[axis] < pads_before[axis] + size[axis]
        out.append(count)
    # Steps to where there is nothing more are none, however long they are.
    strides = tuple(s if o > 1 else 1 for s, o in zip(strides, out, strict=True))
    dilations = tuple(d if k > 1 else 1 for d, k in zip(dilations, kernel, strict=True))
    return SlidingWindows(size, kernel, strides, dilations, pads_before, tuple(out))


def _check_kernel(kernel: Sequence[int], rank: int) -> None:
    """Raise an error unless the kernel has one size >= 1 for each spatial axis."""
    if len(kernel) != rank or any(k < 1 for k in kernel):
        raise bad_shape(
            f"got a kernel {format_shape(kernel)} for {rank} spatial axes",
            "expected one size per axis, each at least 1",
        )


def expand_per_axis(name: str, values: Sequence[int], rank: int, minimum: int) -> Shape:
    """Return one number for each axis, where one may stand for all and none for the
    minimum.
    """
    per_axis = tuple(values) or (minimum,)
    per_axis = per_axis * rank if len(per_axis) == 1 else per_axis
    if len(per_axis) != rank:
        rule = f"expected one number, or one for each of {rank} spatial axes"
        raise bad_attribute(f"{name}={format_shape(values)}", rule)
    if any(value < minimum for value in per_axis):
        raise bad_attribute(
            f"{name}={format_shape(values)}", f"each must be at least {minimum}"
        )
    return per_axis


def split_pads(pads: Sequence[int], rank: int) -> tuple[Shape, Shape]:
    """Return the padding in front of each axis and at its end. Errors
    AttributeRefused.
    """
    if len(pads) == 2 * rank and rank > 0 and len(pads) > 1:
        both = expand_per_axis("pads", pads, 2 * rank, 0)
        return both[:rank], both[rank:]
    same = expand_per_axis("pads", pads, rank, 0)
    return same, same


def same_pads(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_end_more: bool = True,
) -> Shape:
    """Return the pads with which there are ceil(size / stride) windows; fronts, then
    ends.

    pads_end_more  where the padding is odd, the larger part is at the end
    """
    total = [
        max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        for n, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    smaller = [pad // 2 for pad in total]
    larger = [pad - half for pad, half in zip(total, smaller, strict=True)]
    return (*smaller, *larger) if pads_end_more else (*larger, *smaller)


class PaddedInput(NamedTuple):
    """Input of the windows on a device, and the dispatches that pad it.

    extents   of the three spatial axes there
    scratch   the temporary that it lies in, number 0 of the plan, if any
    tables    what its dispatches read besides
    """

    ref: BufferRef
    extents: Shape
    dispatches: tuple[KernelDispatch, ...] = ()
    scratch: tuple[ScratchBuffer, ...] = ()
    tables: tuple[IndexTable, ...] = ()


def plan_padding(
    windows: SlidingWindows,
    leading_size: int,
    dtype: DType,
    fill: float = 0.0,
    *,
    first_table: int = 0,
) -> PaddedInput:
    """Return operand 0 [lead, three spatial axes] as the windows read it, padded with
    `fill`.

    first_table  the number of its first table in the plan
    """
    if windows.is_inside:
        return PaddedInput(BufferRef("in"), windows.spatial_shape)
    target, extents = BufferRef("scratch"), windows.extents
    tables = map(shift_table, windows.spatial_shape, windows.pads_before, extents)
    plan = plan_index_map(
        (leading_size, *windows.spatial_shape),
        (None, *tables),
        dtype,
        fill,
        target=target,
        first_table=first_table,
    )
    scratch = ScratchBuffer(leading_size * numel(extents), compute_scalar(dtype))
    return PaddedInput(target, extents, plan.dispatches, (scratch,), plan.tables)
