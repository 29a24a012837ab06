"""Geometry of non-max suppression on a device.

Scores are sorted, and then a line of them is walked from the highest on: a box is kept
if it overlaps none of those kept before. A long walk is cut; what a piece leaves behind
are the places kept so far, and how many. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch, redirected
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import Limits
from rlxweb.recipes.sort_calls import Lines, sort_recipe
from rlxweb.recipes.sort_variants import Merging

_BOXES, _SCORES, _OUT = Ref("in"), Ref("in", 1), Ref("out")


@dataclass(frozen=True, slots=True)
class Suppressing:
    """How boxes are kept.

    sizes     batches, classes, boxes of each batch
    keep      of each class at most
    """

    sizes: tuple[int, int, int]
    keep: int
    dtype: DType
    overlap: float
    least: float | None
    centered: bool

    @property
    def lines(self) -> Lines:
        batches, classes, boxes = self.sizes
        return Lines(batches * classes, boxes, 1, self.dtype, True)

    def after(self, sorting: Recipe) -> Recipe:
        """The recipe behind one that sorts scores, which it is told to read."""
        places = Ref("scratch", len(sorting.scratch))
        moved = {Ref("in"): _SCORES, _OUT: places}
        calls = tuple(redirected(call, moved) for call in sorting.calls)
        batches, classes, boxes = self.sizes
        lines = batches * classes
        room = (Scratch(lines * boxes, "i32"), Scratch(lines, "i32"))
        walk = self._walk(places, Ref("scratch", places.index + 1))
        return Recipe((*calls, walk), (*sorting.scratch, *room), sorting.tables)

    def _walk(self, places: Ref, counts: Ref) -> Call:
        batches, classes, boxes = self.sizes
        line, kept = (classes * boxes, boxes), (classes * self.keep, self.keep)
        return Call(
            shader="non_max_suppression",
            axes=(
                Axis("batch", batches),
                Axis("class_", classes),
                Axis("n", boxes, "serial"),
            ),
            accesses=(
                Access(_BOXES, (4 * boxes, 0, 0), span=max(4 * boxes, 1)),
                Access(_SCORES, (*line, 0), span=max(boxes, 1)),
                Access(places, (*line, 1)),
                Access(_OUT, (*kept, 0), "update", span=max(self.keep, 1)),
                Access(counts, (classes, 1, 0), "update"),
            ),
            grid=(("batch", 1), ("class_", 1)),
            values={
                "boxes": boxes,
                "classes": classes,
                "keep": self.keep,
                "centered": int(self.centered),
                "limited": int(self.least is not None),
                "overlap": float(self.overlap),
                "least": float(self.least or 0.0),
            },
            uses=("nan",),
            turns=self.keep + 2.0,
        )


def suppress_recipe(one: Suppressing) -> Recipe:
    """Sorted by a network."""
    return one.after(sort_recipe(one.lines))


def suppressing(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Suppressing:
    """What the op's types and attributes say."""
    boxes, scores = inputs
    return Suppressing(
        (boxes.shape[0], scores.shape[1], boxes.shape[1]),
        out.shape[2],
        scores.dtype,
        attrs["iou_threshold"],
        attrs["score_threshold"],
        attrs["center_point_box"],
    )


def suppress_merged(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe:
    """Sorted by merging: a variant, where a line fits a binding."""
    one = suppressing(inputs, out, attrs)
    return one.after(Merging(one.lines, one.lines.n).recipe())
