"""Memory layout of a tensor in its buffer: shape, strides and offset, all in elements.

View ops (transpose, slice, expand, reshape, frame) are arithmetic on a Layout and move
no data; a kernel that reads through a Layout gets the view for nothing. Pure data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlxweb.ir.shape_arithmetic import Shape, numel


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor whose last axis varies fastest."""
    strides, step = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class Layout:
    """Strided layout: element (i, j, …) is at `offset + i*strides[0] + j*strides[1] +
    …`.

    A stride may be negative: `offset` is where the first element is, not the lowest.
    """

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def dense(cls, shape: Shape) -> Layout:
        return cls(shape, row_major_strides(shape))

    @property
    def is_dense(self) -> bool:
        """True when the elements lie in row-major order from offset 0."""
        if self.offset:
            return False
        dense_stride = 1
        for dim, stride in zip(
            reversed(self.shape), reversed(self.strides), strict=True
        ):
            if stride != dense_stride and dim != 1:
                return numel(self.shape) == 0
            dense_stride *= dim
        return True

    @property
    def is_transposed(self) -> bool:
        """True if the layout is dense except that its last two axes are exchanged."""
        last = len(self.shape) - 1
        if last < 1 or self.is_dense:
            return False
        return self.transpose((*range(last - 1), last, last - 1)).is_dense

    @property
    def without_offset(self) -> Layout:
        """The same layout from offset 0."""
        return Layout(self.shape, self.strides) if self.offset else self

    def transpose(self, perm: Sequence[int]) -> Layout:
        return Layout(
            tuple(self.shape[p] for p in perm),
            tuple(self.strides[p] for p in perm),
            self.offset,
        )

    def narrow(self, axis: int, start: int, length: int, step: int = 1) -> Layout:
        """Return the layout of `length` positions of an axis from `start` on, every
        `step`-th of them.
        """
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])
        stride = self.strides[axis]
        strides = (*self.strides[:axis], stride * step, *self.strides[axis + 1 :])
        return Layout(shape, strides, self.offset + start * stride)

    def expand(self, target: Shape) -> Layout:
        """Broadcast to `target`: new and stretched axes get stride 0."""
        leading_axes = len(target) - len(self.shape)
        strides = [0] * leading_axes + [
            0 if size == 1 and target_size != 1 else stride
            for size, target_size, stride in zip(
                self.shape, target[leading_axes:], self.strides, strict=True
            )
        ]
        return Layout(target, tuple(strides), self.offset)

    def frame(self, length: int, hop: int, count: int) -> Layout:
        """Split the last axis into `count` overlapping frames (count, length)."""
        step = self.strides[-1]
        return Layout(
            (*self.shape[:-1], count, length),
            (*self.strides[:-1], step * hop, step),
            self.offset,
        )

    def reshape(self, target: Shape) -> Layout | None:
        """Return the layout of the same elements under another shape, or None if that
        needs a copy.
        """
        if numel(target) == 0:
            return Layout(target, row_major_strides(target), self.offset)
        dims = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        strides: list[int] = []
        remaining = list(target)
        begin = 0
        while begin < len(dims):
            # Grow one run of old axes and one run of new axes to the same size;
            # the old run must be dense inside itself for the new one to exist.
            old_size, end = dims[begin][0], begin + 1
            new_dims: list[int] = []
            new_size = 1
            while new_size != old_size:
                if new_size < old_size:
                    new_dims.append(remaining.pop(0))
                    new_size *= new_dims[-1]
                else:
                    if dims[end - 1][1] != dims[end][0] * dims[end][1]:
                        return None
                    old_size *= dims[end][0]
                    end += 1
            step = dims[end - 1][1]
            run_strides = [0] * len(new_dims)
            for i in range(len(new_dims) - 1, -1, -1):
                run_strides[i] = step
                step *= new_dims[i]
            strides += run_strides
            begin = end
        strides += [1] * len(remaining)
        return Layout(target, tuple(strides), self.offset)

    def coalesce(self, *others: Layout) -> tuple[Layout, ...]:
        """Merge axes of this and `others` (same shape) wherever all the layouts allow
        it.

        Axes of size 1 go; neighbours merge when in every layout the outer stride is
        the inner stride times the inner size. Fewer axes mean less index arithmetic.
        """
        layouts = (self, *others)
        shape: list[int] = []
        strides: list[list[int]] = [[] for _ in layouts]
        for axis, dim in enumerate(self.shape):
            if dim == 1:
                continue
            axis_strides = [layout.strides[axis] for layout in layouts]
            if shape and all(
                s[-1] == h * dim for s, h in zip(strides, axis_strides, strict=True)
            ):
                shape[-1] *= dim
                for s, h in zip(strides, axis_strides, strict=True):
                    s[-1] = h
            else:
                shape.append(dim)
                for s, h in zip(strides, axis_strides, strict=True):
                    s.append(h)
        return tuple(
            Layout(tuple(shape), tuple(s), layout.offset)
            for s, layout in zip(strides, layouts, strict=True)
        )
