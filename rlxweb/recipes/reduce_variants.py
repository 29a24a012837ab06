"""Another shape of reductions along the last axes, for GPUs: many lanes an output.

Lines that lie side by side in memory are read by neighbouring invocations, four
elements at a time where the length allows. A long line is cut into parts, whose results
are reduced in turn. Deleting it changes no result but the order of additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import normal_axes
from rlxweb.limits import Limits
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.reduce_calls import KINDS, Kind, grouped, scalar_of, type_include

# shaders/reduce_lines.wgsl has room for so many invocations.
GROUP = 256
LEAST = 32
"""Shorter lines are left to one invocation each."""
PART = 1 << 14
"""Elements one workgroup reduces where lines are few."""
ENOUGH = 512
"""Lines that keep a GPU busy without being cut."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """`lines` of n elements, each in `parts` of `length`."""

    kind: Kind
    dtype: DType
    lines: int
    n: int
    source: Ref
    target: Ref

    @property
    def length(self) -> int:
        return self.n if self.lines >= ENOUGH else min(self.n, PART)

    @property
    def parts(self) -> int:
        return -(-self.n // self.length)

    @property
    def width(self) -> int:
        """Elements a load moves."""
        return 1 if self.n % 4 or self.length % 4 else 4

    @property
    def lanes(self) -> int:
        """Four loads a lane, if there are so many."""
        loads = self.length // self.width // 4
        return max(4, min(GROUP, 1 << max(0, loads.bit_length() - 1)))

    def call(self) -> Call:
        wide = self.width == 4
        together = GROUP // self.lanes
        turns = self.length / self.width / self.lanes + self.lanes.bit_length() + 4
        return Call(
            shader="reduce_lines",
            axes=(
                Axis("part", self.parts),
                Axis("line", self.lines),
                Axis("n", self.length, "whole"),
            ),
            accesses=(
                Access(self.source, (self.length, self.n, 1), wide=wide),
                Access(self.target, (1, self.parts, 0), "write"),
            ),
            grid=(("part", 1), ("line", together)),
            per="workgroup",
            workgroup=GROUP,
            values={
                "x_line": self.n,
                "y_line": self.parts,
                "whole": self.n,
                "width": self.width,
            },
            constants={"KIND": KINDS.index(self.kind), "LANES": self.lanes},
            uses=(
                type_include(self.dtype),
                "combine",
                "fold_wide" if wide else "fold_single",
            ),
            shared_bytes=4 * self.width * GROUP,
            turns=turns / self.length,
            finishes="stores",
        )


def line_reduction(kind: Kind) -> RecipeFor:
    """The recipe of a reduction of the last axes with many invocations an output.

    None for other axes, for short lines and for workgroups of fewer than 256.
    """

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        x = inputs[0]
        kept, reduced = grouped(x.shape, normal_axes(attrs["axes"], x.rank))
        room = limits.workgroup_lanes
        along = len(reduced) == 1 and reduced[0].x == 1 and len(kept) <= 1
        along = along and x.dtype is not DType.BOOL
        if not along or reduced[0].size < LEAST or room < GROUP:
            return None
        lines = kept[0].size if kept else 1
        one = _Lines(kind, x.dtype, lines, reduced[0].size, Ref("in"), Ref("out"))
        calls, scratch = [], list[Scratch]()
        while one.parts > 1:
            ref = Ref("scratch", len(scratch))
            scratch.append(Scratch(lines * one.parts, scalar_of(x.dtype)))
            calls.append(replace(one, target=ref).call())
            one = replace(one, n=one.parts, source=ref)
        return Recipe((*calls, one.call()), tuple(scratch))

    return recipe
