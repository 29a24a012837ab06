"""Sliding windows over the spatial axes of [N, C, …]: sizes, and how they are padded.

Convolutions and pools agree on it. A window is `kernel` elements of an axis,
`dilations` apart; the next one begins `strides` further on, and the first `pads` in
front of the array. On a device what lies in the padding is written around a copy of
the array: a kernel has no edge to look at and may be cut anywhere. Arithmetic alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Call, Ref, Scratch
from rlxweb.ir.op import Attr, Attrs
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, numel, show
from rlxweb.recipes.reduce_calls import scalar_of
from rlxweb.recipes.remap_calls import Table, remap_recipe, shifted

MOST_AXES = 3
"""Spatial axes of a window."""
STRIDES, DILATIONS, PADS = (
    Attr(n, "ints", ()) for n in ("strides", "dilations", "pads")
)
CEIL = Attr("ceil_mode", "bool", False)


class Windows(NamedTuple):
    """Windows over spatial axes: how many, and where they lie.

    size    of the array; `before` zeros stand in front of it on each axis
    out     windows along each axis
    """

    size: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    out: Shape

    @property
    def reach(self) -> Shape:
        """Elements along each axis from the first window's first to the last's last."""
        return tuple(
            (o - 1) * s + (k - 1) * d + 1 if o else 0
            for o, k, s, d in zip(
                self.out, self.kernel, self.strides, self.dilations, strict=True
            )
        )

    @property
    def is_inside(self) -> bool:
        """No window touches padding."""
        reach = zip(self.reach, self.size, strict=True)
        return not any(self.before) and all(r <= n for r, n in reach)

    def in_three(self) -> Windows:
        """The same with axes of one element in front, three in all."""
        more = MOST_AXES - len(self.size)
        ones = (1,) * more
        return Windows(
            ones + self.size,
            ones + self.kernel,
            ones + self.strides,
            ones + self.dilations,
            (0,) * more + self.before,
            ones + self.out,
        )


def windows_of(size: Shape, kernel: Shape, attrs: Attrs) -> Windows:
    """The windows over spatial axes that an op's attributes ask for.

    strides, dilations   one number for all axes, or one each; none: 1
    pads                 the same on both sides, or all fronts and then all ends
    ceil_mode            also a window that begins inside and reaches out at the end

    Errors   ShapeError, AttributeRefused.
    """
    rank = len(size)
    if not 1 <= rank <= MOST_AXES:
        raise bad_shape(
            f"there are {rank} spatial axes",
            f"1 to {MOST_AXES} after [N, C]",
            "reshape it, or take it one axis at a time",
        )
    _check_kernel(kernel, rank)
    strides = of_each("strides", attrs["strides"], rank, 1)
    dilations = of_each("dilations", attrs["dilations"], rank, 1)
    before, after = pads_of(attrs["pads"], rank)
    out = []
    for at in range(rank):
        padded = before[at] + size[at] + after[at]
        room = padded - ((kernel[at] - 1) * dilations[at] + 1)
        if room < 0:
            raise bad_shape(
                f"a window of {padded - room} over spatial axis {at} of {size[at]}",
                f"with its padding the axis has {padded}",
                "take a smaller kernel or dilation, or pad more",
            )
        count = room // strides[at] + 1
        if attrs.get("ceil_mode") and room % strides[at]:
            count += count * strides[at] < before[at] + size[at]
        out.append(count)
    # Steps to where there is nothing more are none, however long they are.
    strides = tuple(s if o > 1 else 1 for s, o in zip(strides, out, strict=True))
    dilations = tuple(d if k > 1 else 1 for d, k in zip(dilations, kernel, strict=True))
    return Windows(size, kernel, strides, dilations, before, tuple(out))


def pool_windows(shape: Shape, attrs: Attrs) -> Windows:
    """The windows of a pool over [N, C, …]. Errors  ShapeError, AttributeRefused."""
    if len(shape) < 3:
        raise bad_shape(
            f"an array of rank {len(shape)}",
            "[N, C, spatial axes…]",
            "reshape one image to [1, C, …]",
        )
    kernel, rank = attrs["kernel"], len(shape) - 2
    kernel = kernel * rank if len(kernel) == 1 else kernel
    return windows_of(shape[2:], kernel, attrs)


def _check_kernel(kernel: Sequence[int], rank: int) -> None:
    if len(kernel) != rank or any(k < 1 for k in kernel):
        raise bad_shape(
            f"a kernel of {show(kernel)} over {rank} spatial axes",
            "one size for each of them, at least 1",
        )


def of_each(name: str, given: Sequence[int], rank: int, least: int) -> Shape:
    """One number for each axis, where one may stand for all and none for the least."""
    every = tuple(given) or (least,)
    every = every * rank if len(every) == 1 else every
    if len(every) != rank:
        rule = f"one number, or one for each of {rank} spatial axes"
        raise bad_attribute(f"{name}={show(given)}", rule)
    if any(one < least for one in every):
        raise bad_attribute(f"{name}={show(given)}", f"each is at least {least}")
    return every


def pads_of(pads: Sequence[int], rank: int) -> tuple[Shape, Shape]:
    """Padding in front of each axis and at its end. Errors  AttributeRefused."""
    if len(pads) == 2 * rank and rank > 0 and len(pads) > 1:
        both = of_each("pads", pads, 2 * rank, 0)
        return both[:rank], both[rank:]
    same = of_each("pads", pads, rank, 0)
    return same, same


def same_pads(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    upper: bool = True,
) -> Shape:
    """Pads with which there are ceil(size / stride) windows; fronts, then ends.

    upper   where the padding is odd, the larger part is at the end
    """
    whole = [
        max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        for n, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    less = [pad // 2 for pad in whole]
    more = [pad - half for pad, half in zip(whole, less, strict=True)]
    return (*less, *more) if upper else (*more, *less)


def lowest(dtype: np.dtype[Any]) -> float:
    """What no element of a type is below."""
    return -math.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


class Padded(NamedTuple):
    """Where windows read on a device, and what makes it.

    extents   of the three spatial axes there
    scratch   the temporary that it lies in, number 0 of the recipe, if any
    tables    what its calls read besides
    """

    ref: Ref
    extents: Shape
    calls: tuple[Call, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    tables: tuple[Table, ...] = ()


def padded(
    windows: Windows, lead: int, dtype: DType, fill: float = 0.0, *, first: int = 0
) -> Padded:
    """Operand 0 [lead, three spatial axes] as windows read it, `fill` around it.

    first   the number of its first table in the recipe
    """
    if windows.is_inside:
        return Padded(Ref("in"), windows.size)
    target, extents = Ref("scratch"), windows.reach
    tables = map(shifted, windows.size, windows.before, extents)
    made = remap_recipe(
        (lead, *windows.size),
        (None, *tables),
        dtype,
        fill,
        target=target,
        first=first,
    )
    scratch = Scratch(lead * numel(extents), scalar_of(dtype))
    return Padded(target, extents, made.calls, (scratch,), made.tables)


def any_is_empty(windows: Windows) -> bool:
    """Some window holds no element of the array."""
    for at, n in enumerate(windows.size):
        step = windows.dilations[at]
        extent = (windows.kernel[at] - 1) * step + 1
        last = (windows.out[at] - 1) * windows.strides[at] - windows.before[at]
        if windows.before[at] >= extent or last >= n:
            return True
        # A short array may lie between two elements of a window.
        if step > n and not _held(windows, at, 0, n).all():
            return True
    return False


def divisors(shape: Shape, attrs: Attrs) -> np.ndarray[Any, Any]:
    """What the sums of an average over [N, C, …] are divided by, over the spatial axes.

    With count_include_pad padding counts, but not what ceil_mode reaches beyond it.
    """
    windows = pool_windows(shape, attrs)
    ends = pads_of(attrs["pads"], len(windows.size))
    before, after = ends if attrs["count_include_pad"] else ((0,) * len(shape),) * 2
    made = np.ones((), np.int64)
    for at, n in enumerate(windows.size):
        held = _held(windows, at, -before[at], n + after[at])
        made = made[..., None] * held
    return made


def _held(windows: Windows, at: int, low: int, high: int) -> np.ndarray[Any, Any]:
    """How many elements of each window along an axis lie at low … high - 1."""
    start = np.arange(windows.out[at]) * windows.strides[at] - windows.before[at]
    step = windows.dilations[at]
    first = np.maximum(0, -((start - low) // step))
    last = np.minimum(windows.kernel[at] - 1, (high - 1 - start) // step)
    return np.asarray(np.maximum(0, last - first + 1))


def is_even(found: np.ndarray[Any, Any]) -> bool:
    """One number divides all of them."""
    return bool(found.size) and bool((found == found.flat[0]).all())


def volume(windows: Windows) -> int:
    """Elements of a window."""
    return math.prod(windows.kernel)
