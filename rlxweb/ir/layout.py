"""How a tensor lies in its buffer: shape, strides and offset, all in elements.

View ops (transpose, slice, expand, reshape, frame) are arithmetic on a Layout and move
no data; a kernel that reads through a Layout gets the view for nothing. Pure data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlxweb.ir.shape import Shape, numel


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor whose last axis is the fastest."""
    out, step = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        out[axis] = step
        step *= shape[axis]
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Layout:
    """Element (i, j, …) lives at `offset + i*strides[0] + j*strides[1] + …`.

    A stride may be negative: `offset` is where the first element is, not the lowest.
    """

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def dense(cls, shape: Shape) -> Layout:
        return cls(shape, row_major(shape))

    @property
    def is_dense(self) -> bool:
        """True when the elements lie in row-major order from offset 0."""
        if self.offset:
            return False
        return numel(self.shape) == 0 or all(
            dim == 1 or stride == want
            for dim, stride, want in zip(
                self.shape, self.strides, row_major(self.shape), strict=True
            )
        )

    @property
    def is_turned(self) -> bool:
        """True when it is dense but for its last two axes, which are exchanged."""
        last = len(self.shape) - 1
        if last < 1 or self.is_dense:
            return False
        return self.transpose((*range(last - 1), last, last - 1)).is_dense

    def transpose(self, perm: Sequence[int]) -> Layout:
        return Layout(
            tuple(self.shape[p] for p in perm),
            tuple(self.strides[p] for p in perm),
            self.offset,
        )

    def narrow(self, axis: int, start: int, length: int, step: int = 1) -> Layout:
        """`length` positions of an axis from `start` on, every `step`-th of them."""
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])
        stride = self.strides[axis]
        strides = (*self.strides[:axis], stride * step, *self.strides[axis + 1 :])
        return Layout(shape, strides, self.offset + start * stride)

    def expand(self, target: Shape) -> Layout:
        """Broadcast to `target`: new and stretched axes get stride 0."""
        lead = len(target) - len(self.shape)
        strides = [0] * lead + [
            0 if have == 1 and want != 1 else stride
            for have, want, stride in zip(
                self.shape, target[lead:], self.strides, strict=True
            )
        ]
        return Layout(target, tuple(strides), self.offset)

    def frame(self, length: int, hop: int, count: int) -> Layout:
        """The last axis cut into `count` overlapping frames (count, length)."""
        step = self.strides[-1]
        return Layout(
            (*self.shape[:-1], count, length),
            (*self.strides[:-1], step * hop, step),
            self.offset,
        )

    def reshape(self, target: Shape) -> Layout | None:
        """The same elements under another shape, or None when that needs a copy."""
        if numel(target) == 0:
            return Layout(target, row_major(target), self.offset)
        dims = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        strides: list[int] = []
        want = list(target)
        at = 0
        while at < len(dims):
            # Grow one run of old axes and one run of new axes to the same size;
            # the old run must be dense inside itself for the new one to exist.
            have, end = dims[at][0], at + 1
            taken: list[int] = []
            size = 1
            while size != have:
                if size < have:
                    taken.append(want.pop(0))
                    size *= taken[-1]
                else:
                    if dims[end - 1][1] != dims[end][0] * dims[end][1]:
                        return None
                    have *= dims[end][0]
                    end += 1
            step = dims[end - 1][1]
            run = [0] * len(taken)
            for i in range(len(taken) - 1, -1, -1):
                run[i] = step
                step *= taken[i]
            strides += run
            at = end
        strides += [1] * len(want)
        return Layout(target, tuple(strides), self.offset)

    def coalesced(self, *others: Layout) -> tuple[Layout, ...]:
        """Self and `others` (same shape) with axes merged wherever all allow it.

        Axes of size 1 go; neighbours merge when in every layout the outer stride is
        the inner stride times the inner size. Fewer axes mean less index arithmetic.
        """
        all_of = (self, *others)
        shape: list[int] = []
        strides: list[list[int]] = [[] for _ in all_of]
        for axis, dim in enumerate(self.shape):
            if dim == 1:
                continue
            here = [layout.strides[axis] for layout in all_of]
            if shape and all(
                s[-1] == h * dim for s, h in zip(strides, here, strict=True)
            ):
                shape[-1] *= dim
                for s, h in zip(strides, here, strict=True):
                    s[-1] = h
            else:
                shape.append(dim)
                for s, h in zip(strides, here, strict=True):
                    s.append(h)
        return tuple(
            Layout(tuple(shape), tuple(s), layout.offset)
            for s, layout in zip(strides, all_of, strict=True)
        )
