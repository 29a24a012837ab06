"""Split an iteration box into chunks that a device can run, and fold their grids.

A piece is legal when every binding it touches is small enough and its workgroups fit
the grid. A box that is not legal is halved along the axis that helps most, depth first
and low half first, so that the pieces of a serial axis come out in order. Pure integer
arithmetic: no device, no tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlxweb.core.errors import LimitExceeded
from rlxweb.core.limits import MAX_LOOP_ITERATIONS, Limits
from rlxweb.core.message_text import Advice
from rlxweb.ir.lowering import WHOLE_AXIS, KernelDispatch, OperandAccess

# A plan with more dispatches than this for one step is a bug, not a split.
MAX_CHUNKS = 1 << 20


@dataclass(frozen=True, slots=True)
class IterationChunk:
    """Sub-box of an iteration box: its start and its size on each axis."""

    start: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DispatchSplitter:
    """Splitter of one dispatch for a device: element bytes per access, reads that share
    one binding, limits.
    """

    dispatch: KernelDispatch
    element_nbytes: tuple[int, ...]
    merged_reads: frozenset[int]
    limits: Limits

    @property
    def workgroup_size(self) -> int:
        """Requested workgroup size under the device's limits, a power of two."""
        max_size = min(
            self.dispatch.workgroup_size, self.limits.max_linear_workgroup_size
        )
        return 1 << (max_size.bit_length() - 1)

    def item_count(self, chunk: IterationChunk) -> int:
        """Return the number of items of a chunk."""
        position = {axis.name: n for n, axis in enumerate(self.dispatch.axes)}
        return math.prod(
            -(-chunk.size[position[name]] // tile) for name, tile in self.dispatch.grid
        )

    def workgroup_count(self, chunk: IterationChunk) -> int:
        """Return the number of workgroups of a chunk."""
        items = self.item_count(chunk)
        per_workgroup = (
            self.workgroup_size if self.dispatch.item_unit == "invocation" else 1
        )
        return max(1, -(-items // per_workgroup))

    def iterations(self, chunk: IterationChunk) -> float:
        """Return the loop iterations of one invocation of a chunk."""
        grid_axes = {name for name, _ in self.dispatch.grid}
        steps = math.prod(
            n
            for n, axis in zip(chunk.size, self.dispatch.axes, strict=True)
            if axis.name not in grid_axes
        )
        return self.dispatch.iterations * max(1, steps)

    def first_element(self, access: OperandAccess, chunk: IterationChunk) -> int:
        """Return the first element of an access in a chunk."""
        return access.offset + sum(
            s * t for s, t in zip(chunk.start, access.strides, strict=True)
        )

    def lowest_element(self, access: OperandAccess, chunk: IterationChunk) -> int:
        """Return the lowest element touched, which differs from the first one where
        strides are negative.
        """
        return self.first_element(access, chunk) + sum(
            (max(n, 1) - 1) * t
            for n, t in zip(chunk.size, access.strides, strict=True)
            if t < 0
        )

    def extent(self, access: OperandAccess, chunk: IterationChunk) -> int:
        """Return the number of elements from the lowest to the highest one touched,
        both included.
        """
        reach = sum(
            (max(n, 1) - 1) * abs(t)
            for n, t in zip(chunk.size, access.strides, strict=True)
        )
        return reach + access.span

    def binding_nbytes(self, k: int, chunk: IterationChunk) -> int:
        """Return the bytes of the binding of access k, alignment slack included."""
        access = self.dispatch.accesses[k]
        width = self.element_nbytes[k]
        slack = 0
        if k not in self.merged_reads:
            align = self.limits.min_storage_buffer_offset_alignment
            slack = self.lowest_element(access, chunk) * width % align
        return -(-(self.extent(access, chunk) * width + slack) // 4) * 4

    @property
    def _max_binding_nbytes(self) -> int:
        """Bytes of the largest binding; none is larger than its buffer."""
        limits = self.limits
        return min(limits.max_storage_buffer_binding_size, limits.max_buffer_size)

    def largest_excess(self, chunk: IterationChunk) -> int | None:
        """Return the access whose binding exceeds the limit most, or None."""
        sizes = [
            self.binding_nbytes(k, chunk) for k in range(len(self.dispatch.accesses))
        ]
        merged_nbytes = sum(sizes[k] + 4 for k in self.merged_reads)
        binding_sizes = [
            merged_nbytes if k in self.merged_reads else n for k, n in enumerate(sizes)
        ]
        excessive = [
            k
            for k, nbytes in enumerate(binding_sizes)
            if nbytes > self._max_binding_nbytes
        ]
        return max(reversed(excessive), key=lambda k: sizes[k], default=None)

    def chunks(self) -> Iterator[IterationChunk]:
        """Yield all chunks, in an order that respects serial axes.

        Errors   LimitExceeded when no cuttable axis is left; the fields of the message
        hold the limit and what one piece still needs.
        """
        whole_box = IterationChunk(
            (0,) * len(self.dispatch.axes), tuple(a.size for a in self.dispatch.axes)
        )
        stack = [whole_box]
        count = 0
        while stack:
            chunk = stack.pop()
            axis = self._split_axis(chunk)
            if axis is None:
                count += 1
                if count > MAX_CHUNKS:
                    raise LimitExceeded(
                        f"kernel '{self.dispatch.shader}'",
                        "the kernel requires too many dispatches",
                        f"at most {MAX_CHUNKS:,} are allowed",
                        Advice("use a smaller problem or {}", device="cpu"),
                    )
                yield chunk
            else:
                low, high = self._halve(chunk, axis)
                stack += [high, low]

    def _split_axis(self, chunk: IterationChunk) -> int | None:
        """Return the axis to halve, or None when the chunk is legal."""
        access = self.largest_excess(chunk)
        if access is not None:
            return self._longest_axis(
                chunk, [abs(t) for t in self.dispatch.accesses[access].strides], access
            )
        is_grid_axis = [a.name in dict(self.dispatch.grid) for a in self.dispatch.axes]
        if self.iterations(chunk) > MAX_LOOP_ITERATIONS:
            return self._longest_axis(
                chunk, [int(not is_grid) for is_grid in is_grid_axis], None
            )
        max_workgroups = self.limits.max_compute_workgroups_per_dimension
        if self.workgroup_count(chunk) <= max_workgroups**3:
            return None
        return self._longest_axis(
            chunk, [int(is_grid) for is_grid in is_grid_axis], None
        )

    def _longest_axis(
        self, chunk: IterationChunk, weights: Sequence[int], access: int | None
    ) -> int:
        """Return the axis whose halving helps most by these weights."""
        # Whole tiles first; inside a tile only when nothing else helps, because the
        # shader's bounds checks then idle most of it.
        gains = [(size - 1) * w for size, w in zip(chunk.size, weights, strict=True)]
        cuttable = [n for n, a in enumerate(self.dispatch.axes) if a.kind != "whole"]
        min_lengths = (self._items_per_tile, lambda n: 1)
        for min_length in (
            min_lengths[:1] if self.dispatch.needs_whole_tiles else min_lengths
        ):
            candidates = [
                n for n in cuttable if gains[n] > 0 and chunk.size[n] > min_length(n)
            ]
            if candidates:
                return max(candidates, key=lambda n: gains[n])
        raise self._limit_error(chunk, access)

    def _items_per_tile(self, axis: int) -> int:
        """Return the length of a tile on an axis."""
        name = self.dispatch.axes[axis].name
        tile = dict(self.dispatch.grid).get(name, 1)
        return 1 if tile == WHOLE_AXIS else tile

    def _halve(
        self, chunk: IterationChunk, axis: int
    ) -> tuple[IterationChunk, IterationChunk]:
        """Return the two halves of a chunk along an axis, cut between tiles where there
        are several.
        """
        tile, size = self._items_per_tile(axis), chunk.size[axis]
        tile = tile if size > tile else 1
        first = -(-((size + 1) // 2) // tile) * tile
        if first >= size:
            first = tile * ((size - 1) // tile)

        def sub_chunk(start: int, length: int) -> IterationChunk:
            return IterationChunk(
                (*chunk.start[:axis], start, *chunk.start[axis + 1 :]),
                (*chunk.size[:axis], length, *chunk.size[axis + 1 :]),
            )

        begin = chunk.start[axis]
        return sub_chunk(begin, first), sub_chunk(begin + first, size - first)

    def _limit_error(self, chunk: IterationChunk, access: int | None) -> LimitExceeded:
        """Return the error that explains why a chunk cannot be split further."""
        limits = self.limits
        if access is not None:
            size = self.binding_nbytes(access, chunk)
            problem = (
                "the smallest part into which the kernel can be split needs a binding "
                f"of {size:,} bytes"
            )
            rule = f"this device allows {self._max_binding_nbytes:,} bytes per binding"
        elif self.iterations(chunk) > MAX_LOOP_ITERATIONS:
            problem = (
                f"one invocation would run {self.iterations(chunk):,.0f} loop "
                "iterations"
            )
            rule = f"drivers stop loops after {MAX_LOOP_ITERATIONS:,} iterations"
        else:
            problem = f"one dispatch needs {self.workgroup_count(chunk):,} workgroups"
            max_workgroups = limits.max_compute_workgroups_per_dimension
            rule = f"this device allows {max_workgroups:,} in each of 3 dimensions"
        hint = Advice("use a smaller problem or {}", device="cpu")
        return LimitExceeded(f"kernel '{self.dispatch.shader}'", problem, rule, hint)


def fold_grid(workgroup_count: int, max_size: int) -> tuple[int, int, int]:
    """Return a workgroup count as a grid with no dimension over `max_size`."""
    if workgroup_count <= max_size:
        return (workgroup_count, 1, 1)
    if workgroup_count <= max_size * max_size:
        y = -(-workgroup_count // max_size)
        return (-(-workgroup_count // y), y, 1)
    z = -(-workgroup_count // (max_size * max_size))
    y = min(max_size, -(-workgroup_count // (max_size * z)))
    return (min(max_size, -(-workgroup_count // (y * z))), y, z)


def reads_to_merge(dispatch: KernelDispatch, limits: Limits) -> frozenset[int]:
    """Return the read-only accesses to gather into one binding because there are too
    many.

    Errors   LimitExceeded when the writes alone are too many.
    """
    max_bindings = limits.max_storage_buffers_per_shader_stage - int(
        dispatch.reports_faults
    )
    count = len(dispatch.accesses)
    if count <= max_bindings:
        return frozenset()
    reads = [k for k, a in enumerate(dispatch.accesses) if a.mode == "read"]
    merge_count = count - max_bindings + 1
    if len(reads) < merge_count:
        raise LimitExceeded(
            f"kernel '{dispatch.shader}'",
            f"the kernel uses {count + int(dispatch.reports_faults)} storage buffers",
            "this device supports at most "
            f"{limits.max_storage_buffers_per_shader_stage} per shader stage",
            Advice("use {}", device="cpu"),
        )
    return frozenset(reads[-merge_count:])
