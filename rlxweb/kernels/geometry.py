"""Cuts an iteration box into pieces a device can take, and folds their grids.

A piece is legal when every binding it touches is small enough and its workgroups fit
the grid. A box that is not legal is halved along the axis that helps most, depth first
and low half first, so that the pieces of a serial axis come out in order. Pure integer
arithmetic: no device, no tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlxweb.advice import Advice
from rlxweb.errors import LimitExceeded
from rlxweb.ir.lowering import ALL, Access, Call
from rlxweb.limits import MAX_TURNS, Limits

# A plan with more dispatches than this for one step is a bug, not a split.
MAX_PIECES = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A sub-box: where it starts and how large it is on each axis."""

    start: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Geometry:
    """A call on a device: element bytes per access, which reads share one binding."""

    call: Call
    widths: tuple[int, ...]
    merged: frozenset[int]
    limits: Limits

    @property
    def workgroup(self) -> int:
        """The wanted workgroup size under the device's limits, a power of two."""
        top = min(self.call.workgroup, self.limits.workgroup_lanes)
        return 1 << (top.bit_length() - 1)

    def items(self, piece: Piece) -> int:
        at = {axis.name: n for n, axis in enumerate(self.call.axes)}
        return math.prod(
            -(-piece.size[at[name]] // tile) for name, tile in self.call.grid
        )

    def groups(self, piece: Piece) -> int:
        items = self.items(piece)
        each = self.workgroup if self.call.per == "invocation" else 1
        return max(1, -(-items // each))

    def turns(self, piece: Piece) -> float:
        """Loop turns of one invocation of this piece."""
        gridded = {name for name, _ in self.call.grid}
        steps = math.prod(
            n
            for n, axis in zip(piece.size, self.call.axes, strict=True)
            if axis.name not in gridded
        )
        return self.call.turns * max(1, steps)

    def origin(self, access: Access, piece: Piece) -> int:
        """First element of the access in this piece."""
        return access.offset + sum(
            s * t for s, t in zip(piece.start, access.strides, strict=True)
        )

    def lowest(self, access: Access, piece: Piece) -> int:
        """The element that lies lowest of those touched: where strides are negative
        the first one does not.
        """
        return self.origin(access, piece) + sum(
            (max(n, 1) - 1) * t
            for n, t in zip(piece.size, access.strides, strict=True)
            if t < 0
        )

    def extent(self, access: Access, piece: Piece) -> int:
        """Elements from the lowest to the highest one touched, both included."""
        reach = sum(
            (max(n, 1) - 1) * abs(t)
            for n, t in zip(piece.size, access.strides, strict=True)
        )
        return reach + access.span

    def bound_bytes(self, k: int, piece: Piece) -> int:
        """Bytes the binding of access k takes, alignment slack included."""
        access = self.call.accesses[k]
        width = self.widths[k]
        slack = 0
        if k not in self.merged:
            align = self.limits.min_storage_buffer_offset_alignment
            slack = self.lowest(access, piece) * width % align
        return -(-(self.extent(access, piece) * width + slack) // 4) * 4

    @property
    def _most_bound(self) -> int:
        """Bytes of the largest binding; none is larger than its buffer."""
        limits = self.limits
        return min(limits.max_storage_buffer_binding_size, limits.max_buffer_size)

    def excess(self, piece: Piece) -> int | None:
        """The access whose binding breaks the limit most, or None."""
        sizes = [self.bound_bytes(k, piece) for k in range(len(self.call.accesses))]
        together = sum(sizes[k] + 4 for k in self.merged)
        bound = [together if k in self.merged else n for k, n in enumerate(sizes)]
        over = [k for k, nbytes in enumerate(bound) if nbytes > self._most_bound]
        return max(reversed(over), key=lambda k: sizes[k], default=None)

    def pieces(self) -> Iterator[Piece]:
        """All pieces, in an order that respects serial axes.

        Errors   LimitExceeded when no cuttable axis is left; the fields of the message
        hold the limit and what one piece still needs.
        """
        whole = Piece((0,) * len(self.call.axes), tuple(a.size for a in self.call.axes))
        todo = [whole]
        made = 0
        while todo:
            piece = todo.pop()
            axis = self._cut_axis(piece)
            if axis is None:
                made += 1
                if made > MAX_PIECES:
                    raise LimitExceeded(
                        f"kernel '{self.call.shader}'",
                        "splitting needs too many dispatches",
                        f"more than {MAX_PIECES:,}",
                        Advice("use a smaller problem or {}", device="cpu"),
                    )
                yield piece
            else:
                low, high = self._halves(piece, axis)
                todo += [high, low]

    def _cut_axis(self, piece: Piece) -> int | None:
        """The axis to halve, or None when the piece is legal."""
        worst = self.excess(piece)
        if worst is not None:
            return self._widest(
                piece, [abs(t) for t in self.call.accesses[worst].strides], worst
            )
        gridded = [a.name in dict(self.call.grid) for a in self.call.axes]
        if self.turns(piece) > MAX_TURNS:
            return self._widest(piece, [int(not g) for g in gridded], None)
        side = self.limits.max_compute_workgroups_per_dimension
        if self.groups(piece) <= side**3:
            return None
        return self._widest(piece, [int(g) for g in gridded], None)

    def _widest(self, piece: Piece, weights: Sequence[int], access: int | None) -> int:
        # Whole tiles first; inside a tile only when nothing else helps, because the
        # shader's bounds checks then idle most of it.
        gains = [(size - 1) * w for size, w in zip(piece.size, weights, strict=True)]
        cuttable = [n for n, a in enumerate(self.call.axes) if a.kind != "whole"]
        leasts = (self._tile, lambda n: 1)
        for least in leasts[:1] if self.call.whole_tiles else leasts:
            found = [n for n in cuttable if gains[n] > 0 and piece.size[n] > least(n)]
            if found:
                return max(found, key=lambda n: gains[n])
        raise self._refusal(piece, access)

    def _tile(self, axis: int) -> int:
        name = self.call.axes[axis].name
        tile = dict(self.call.grid).get(name, 1)
        return 1 if tile == ALL else tile

    def _halves(self, piece: Piece, axis: int) -> tuple[Piece, Piece]:
        tile, size = self._tile(axis), piece.size[axis]
        tile = tile if size > tile else 1
        first = -(-((size + 1) // 2) // tile) * tile
        if first >= size:
            first = tile * ((size - 1) // tile)

        def part(start: int, length: int) -> Piece:
            return Piece(
                (*piece.start[:axis], start, *piece.start[axis + 1 :]),
                (*piece.size[:axis], length, *piece.size[axis + 1 :]),
            )

        begin = piece.start[axis]
        return part(begin, first), part(begin + first, size - first)

    def _refusal(self, piece: Piece, access: int | None) -> LimitExceeded:
        limits = self.limits
        if access is not None:
            size = self.bound_bytes(access, piece)
            problem = f"one piece needs a binding of {size:,} bytes"
            rule = f"this device allows {self._most_bound:,} bytes"
        elif self.turns(piece) > MAX_TURNS:
            problem = f"one invocation would make {self.turns(piece):,.0f} loop turns"
            rule = f"drivers end loops at {MAX_TURNS:,}"
        else:
            problem = f"it needs {self.groups(piece):,} workgroups at once"
            side = limits.max_compute_workgroups_per_dimension
            rule = f"this device takes {side:,} per dimension"
        hint = Advice("use a smaller problem or {}", device="cpu")
        return LimitExceeded(f"kernel '{self.call.shader}'", problem, rule, hint)


def fold(groups: int, side: int) -> tuple[int, int, int]:
    """A workgroup count as a grid with no dimension over `side`."""
    if groups <= side:
        return (groups, 1, 1)
    if groups <= side * side:
        y = -(-groups // side)
        return (-(-groups // y), y, 1)
    z = -(-groups // (side * side))
    y = min(side, -(-groups // (side * z)))
    return (min(side, -(-groups // (y * z))), y, z)


def merged_reads(call: Call, limits: Limits) -> frozenset[int]:
    """Read-only accesses to gather into one binding because there are too many.

    Errors   LimitExceeded when the writes alone are too many.
    """
    room = limits.max_storage_buffers_per_shader_stage - int(call.faults)
    count = len(call.accesses)
    if count <= room:
        return frozenset()
    reads = [k for k, a in enumerate(call.accesses) if a.mode == "read"]
    take = count - room + 1
    if len(reads) < take:
        raise LimitExceeded(
            f"kernel '{call.shader}'",
            f"it touches {count + int(call.faults)} buffers",
            "this device binds "
            f"{limits.max_storage_buffers_per_shader_stage} per shader stage",
            Advice("use {}", device="cpu"),
        )
    return frozenset(reads[-take:])
