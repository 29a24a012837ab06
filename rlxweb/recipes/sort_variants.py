"""Sorting by merging, where a line fits a binding: a few passes in place of a network's
many.

A line is sorted in blocks, and then its sorted runs are merged in pairs until one is
left; every element finds its place by itself. Deleting it changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import numel
from rlxweb.limits import Limits
from rlxweb.recipes.reduce_calls import scalar_of, type_include
from rlxweb.recipes.sort_calls import Lines, Pair, ranked

BLOCK = 32
"""Elements that are put in order by looking at all of them."""
LISTED = 128
"""Of more places than these a row is sorted: its list would be walked too often."""
_OUT = Ref("out")


@dataclass(frozen=True, slots=True)
class Merging:
    """The order of lines; of each the first `keep` places are wanted."""

    lines: Lines
    keep: int

    def recipe(self) -> Recipe:
        n = self.lines.n
        widths = [
            BLOCK << turn for turn in range((max(n - 1, 0) // BLOCK).bit_length())
        ]
        pairs = [(Ref("scratch", 2 * p), Ref("scratch", 2 * p + 1)) for p in (0, 1)]
        calls = [self._blocks(self._into(pairs[0], not widths))]
        for turn, width in enumerate(widths):
            into = self._into(pairs[(turn + 1) % 2], width == widths[-1])
            calls.append(self._merge(width, pairs[turn % 2], into))
        numel = self.lines.count * n
        room = (Scratch(numel, "i32"), Scratch(numel, "u32"))
        return Recipe(tuple(calls), room * (2 if widths else 1))

    @staticmethod
    def _into(pair: Pair, is_last: bool) -> Pair:
        return (_OUT, pair[1]) if is_last else pair

    def _call(
        self, shader: str, reads: Sequence[Access], into: Pair, **how: Any
    ) -> Call:
        """A call of an invocation per element, each of which looks along its line."""
        lines, (places, keys) = self.lines, into
        dense, is_last = (lines.inner * lines.n, lines.n, 1), places.kind == "out"
        y = (self.keep * lines.inner, 1, lines.inner) if is_last else dense
        wanted = Access(places, y, "write")
        if is_last:  # they may be fewer than the axis is long
            span = max((self.keep - 1) * lines.inner + 1, 1)
            wanted = Access(places, (*y[:2], 0), "write", span=span)
        named = {"y_outer": y[0], "y_inner": y[1], "y_n": y[2], "keep": self.keep}
        more = {"z_outer": dense[0], "z_inner": dense[1], "last": int(is_last)}
        values = {**how.pop("values"), **named, **more}
        return Call(
            shader=shader,
            axes=(*lines.around, Axis("n", lines.n, "whole")),
            accesses=(*reads, wanted, Access(keys, dense, "write")),
            grid=(("outer", 1), ("inner", 1), ("n", 1)),
            values=values,
            **how,
        )

    def _blocks(self, into: Pair) -> Call:
        lines = self.lines
        x = {"x_outer": lines.x[0], "x_n": lines.x[2], "block": BLOCK}
        return self._call(
            "sort_blocks",
            (Access(Ref("in"), lines.x),),
            into,
            values={**x, **ranked(lines)},
            uses=(type_include(lines.dtype), f"rank_{scalar_of(lines.dtype)}"),
            turns=float(BLOCK),
        )

    def _merge(self, width: int, source: Pair, into: Pair) -> Call:
        dense = (self.lines.inner * self.lines.n, self.lines.n, 1)
        places, keys = source
        return self._call(
            "sort_merge",
            (Access(keys, dense), Access(places, dense)),
            into,
            values={"width": width},
            turns=float(width.bit_length() + 1),
        )


def merged(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """The recipe of argsort."""
    (x,) = inputs
    axis = attrs["axis"] % x.rank
    outer, inner = numel(x.shape[:axis]), numel(x.shape[axis + 1 :])
    lines = Lines(outer, x.shape[axis], inner, x.dtype, attrs["descending"])
    return Merging(lines, lines.n).recipe()


def longest_first(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """That of topk, where its lists would be long."""
    x, k = inputs[0], attrs["k"]
    if k <= LISTED:
        return None
    rows, n = numel(x.shape[:-1]), x.shape[-1]
    return Merging(Lines(rows, n, 1, x.dtype, True), k).recipe()
