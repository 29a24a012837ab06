"""Builder methods that move values: slices, new and dropped axes, parts, repetitions.

They have the names of NumPy and PyTorch; where the two differ the docstring says whose
meaning a name has. Most are views or a few ops of `rlxweb.ops`. Nothing is computed
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from rlxweb.ir.indexing import taken
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import (
    as_integer,
    bad_shape,
    distinct_axes,
    many,
    normal_axis,
    numel,
    short,
    show,
    solve_expand,
)
from rlxweb.ir.tensor import Tensor, listed, working

_FAR = 1 << 62
"""A bound of a slice beyond every axis."""
Axes = int | Sequence[int]
Bounds = int | None | Sequence[int | None]


class MovesBuilder(OpBuilder):
    """Builder methods over `apply` that move values; mixed into Graph."""

    def slice(
        self,
        x: Tensor,
        starts: Bounds,
        stops: Bounds,
        axes: Axes | None = None,
        steps: Axes | None = None,
    ) -> Tensor:
        """`x[start:stop:step]` on each of `axes`, the first ones when it is None.

        Bounds are Python's: negative ones count from the end, None is the end that a
        slice begins or ends at. A view, backwards too.
        Errors   ShapeError, AttributeRefused.
        """
        with working("slice", x):
            first, last = _bounds(starts), _bounds(stops)
            by = (1,) * len(first) if steps is None else integers(steps, "a step")
            on = range(len(first)) if axes is None else integers(axes, "an axis")
            if not len(first) == len(last) == len(by) == len(on):
                counts = f"{len(first)}, {len(last)}, {len(by)} and {len(on)}"
                raise bad_shape(
                    f"{counts} starts, stops, steps and axes", "one of each for an axis"
                )
        ends = [(_FAR, -_FAR) if step < 0 else (0, _FAR) for step in by]
        return self.apply(
            "slice",
            x,
            axes=tuple(on),
            starts=tuple(
                e[0] if f is None else f for f, e in zip(first, ends, strict=True)
            ),
            stops=tuple(
                e[1] if s is None else s for s, e in zip(last, ends, strict=True)
            ),
            steps=by,
        )

    def flip(self, x: Tensor, axes: Axes | None = None) -> Tensor:
        """The axes backwards, all of them when it is None; a view."""
        with working("flip", x):
            on = tuple(range(x.rank)) if axes is None else integers(axes, "an axis")
        ends = (None,) * len(on)
        return self.slice(x, ends, ends, on, (-1,) * len(on)) if on else x

    def windows(
        self,
        x: Tensor,
        sizes: Axes,
        axes: Axes | None = None,
        steps: Axes = 1,
        dilations: Axes = 1,
    ) -> Tensor:
        """Sliding windows, as numpy.lib.stride_tricks.sliding_window_view; a view.

        axes       one for each size, the last ones when it is None
        steps      every how many-th window; one for all or one for each
        dilations  how far apart the elements of a window are

        [..., n, ...] → [..., places, ..., *sizes]: the axes become the windows' places,
        and their elements the new last axes. Errors  ShapeError, AttributeRefused.
        """
        with working("windows", x):
            wide = integers(sizes, "a size")
            by, apart = integers(steps, "a step"), integers(dilations, "a dilation")
        on = tuple(range(-len(wide), 0)) if axes is None else axes
        how: dict[str, Any] = {
            name: given * len(wide) if len(given) == 1 else given
            for name, given in (("steps", by), ("dilations", apart))
        }
        return self.apply("windows", x, axes=on, sizes=wide, **how)

    def broadcast_to(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """`x` repeated to exactly this shape, as NumPy's. Errors  ShapeError.

        `expand` broadcasts both ways, so that a 1 in its shape leaves an axis alone.
        """
        with working("broadcast_to", x):
            target = integers(shape, "a dimension")
            if solve_expand(x.shape, target) != target:
                raise bad_shape(
                    f"cannot broadcast {show(x.shape)} to {show(target)}",
                    "right-aligned, each dimension must be 1 or the target's",
                    "`expand` broadcasts both ways",
                )
        return self.apply("expand", x, shape=target)

    def squeeze(self, x: Tensor, axes: Axes | None = None) -> Tensor:
        """Without these axes of size 1, or without all such axes; a view.

        Errors   ShapeError for an axis of another size.
        """
        with working("squeeze", x):
            ones = tuple(a for a, d in enumerate(x.shape) if d == 1)
            gone = (
                ones
                if axes is None
                else distinct_axes(integers(axes, "an axis"), x.rank)
            )
            for axis in gone:
                if x.shape[axis] != 1:
                    raise bad_shape(
                        f"axis {axis} of {show(x.shape)} has {x.shape[axis]} elements",
                        "an axis that is left out has 1",
                        "take one of them: x[..., 0]",
                    )
        kept = tuple(d for a, d in enumerate(x.shape) if a not in gone)
        return self.apply("reshape", x, shape=kept)

    def unsqueeze(self, x: Tensor, axes: Axes) -> Tensor:
        """With axes of size 1 at these places of the result; a view.

        Errors   ShapeError.
        """
        with working("unsqueeze", x):
            given = integers(axes, "an axis")
            rank = x.rank + len(given)
            new = distinct_axes(given, rank)
        rest = iter(x.shape)
        shape = tuple(1 if a in new else next(rest) for a in range(rank))
        return self.apply("reshape", x, shape=shape)

    expand_dims = unsqueeze

    def flatten(self, x: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """The axes from `start_axis` to `end_axis` as one, as PyTorch's; a view."""
        with working("flatten", x):
            if not x.rank:
                return self.apply("reshape", x, shape=(1,))
            first, last = (normal_axis(a, x.rank) for a in (start_axis, end_axis))
            if first > last:
                raise bad_shape(
                    f"axis {first} stands behind axis {last}", "start_axis <= end_axis"
                )
        count = numel(x.shape[first : last + 1])
        shape = (*x.shape[:first], count, *x.shape[last + 1 :])
        return self.apply("reshape", x, shape=shape)

    def moveaxis(self, x: Tensor, source: Axes, destination: Axes) -> Tensor:
        """Axes at other places, the rest in their order, as NumPy's; a view."""
        with working("moveaxis", x):
            old = distinct_axes(integers(source, "an axis"), x.rank)
            new = distinct_axes(integers(destination, "an axis"), x.rank)
            if len(old) != len(new):
                raise bad_shape(
                    f"{len(old)} axes are to be moved to {len(new)} places",
                    "each has one place",
                )
        to = dict(zip(new, old, strict=True))
        rest = iter(a for a in range(x.rank) if a not in old)
        perm = tuple(to[a] if a in to else next(rest) for a in range(x.rank))
        return self.apply("transpose", x, perm=perm)

    def swapaxes(self, x: Tensor, first: int, second: int) -> Tensor:
        """Two axes exchanged, as NumPy's; a view."""
        with working("swapaxes", x):
            a, b = (normal_axis(axis, x.rank) for axis in (first, second))
        perm = list(range(x.rank))
        perm[a], perm[b] = b, a
        return self.apply("transpose", x, perm=perm)

    def split(self, x: Tensor, parts: Axes, axis: int = 0) -> list[Tensor]:
        """Parts of an axis, one behind the other; views.

        parts   their sizes, as PyTorch's `split` and ONNX take them; one number: how
                many parts of equal size, as NumPy takes it

        Errors   ShapeError when they are not the whole axis.
        """
        with working("split", x):
            axis = normal_axis(axis, x.rank)
            sizes = _sizes(x.shape[axis], parts)
        starts = accumulate(sizes, initial=0)
        return [
            self.apply("narrow", x, axis=axis, start=start, length=size)
            for start, size in zip(starts, sizes, strict=False)
        ]

    def stack(self, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Tensors of one shape along a new axis. Errors  ShapeError."""
        every = listed(xs, "stack", "stack([a, b])")
        apart = [self.unsqueeze(x, axis) for x in every]
        found = normal_axis(axis, apart[0].rank) if apart else 0
        return self.apply("concat", *apart, axis=found)

    def take(self, x: Tensor, indices: Any, axis: int | None = None) -> Tensor:
        """Elements of an axis by index, as NumPy's: negative ones count from its end.

        indices   integers, an array of them or an integer tensor
        axis      None: of the elements in their order

        `gather` takes indices as they are and refuses negative ones.
        Errors   IndexRefused, when it is run for those of a tensor.
        """
        if axis is None:
            x, axis = self.apply("reshape", x, shape=(-1,)), 0
        with working("take", x):
            return taken(x, indices, normal_axis(axis, x.rank))


def _bounds(given: Bounds) -> tuple[int | None, ...]:
    every = (None,) if given is None else many(given)
    if every is None:
        raise bad_shape(f"{short(given)} is given as bounds", "integers or None")
    return tuple(b if b is None else as_integer(b, "a bound") for b in every)


def integers(given: object, what: str) -> tuple[int, ...]:
    """One integer or several. Errors  ShapeError."""
    every = many(given)
    if every is None:
        raise bad_shape(f"{what} is an integer, got {short(given)}")
    return tuple(as_integer(one, what) for one in every)


def _sizes(whole: int, parts: Axes) -> tuple[int, ...]:
    if not isinstance(parts, Sequence | np.ndarray):
        count = as_integer(parts, "the number of parts")
        if count < 1 or whole % count:
            raise bad_shape(
                f"an axis of {whole} cannot be split into {count} equal parts",
                f"{whole} is to be a multiple of their number",
                "give the size of each part",
            )
        return (whole // count,) * count
    sizes = integers(parts, "the size of a part")
    if sum(sizes) != whole or any(size < 0 for size in sizes):
        raise bad_shape(
            f"parts of {', '.join(map(str, sizes)) or 'nothing'} elements",
            f"they are 0 or more each and {whole} together, not {sum(sizes)}",
        )
    return sizes
