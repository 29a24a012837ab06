"""Variants of power_peaks that rank the bins of each row, by sorting or by a workgroup.

A ranking gives the strongest bins; one more dispatch puts each beside its power. The
kernel of `peaks_call` keeps the list of each row in memory and may move k entries of it
for each bin, so it serves short lists of many rows only. Deleting this changes no
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch, redirected
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import Limits
from rlxweb.recipes.entry import MAIN_LINES
from rlxweb.recipes.fft_calls import Work
from rlxweb.recipes.select_calls import peaks_call
from rlxweb.recipes.sort_calls import Lines
from rlxweb.recipes.sort_variants import Merging
from rlxweb.recipes.topk_variants import LEAST, topk_group

_PAIRS = "\n".join(
    [
        *MAIN_LINES,
        "  let place = item % u.place;",
        "  let row = item / u.place;",
        "  let bin = ld0(row * u.k + place);",
        "  let pair = 2u * (row * u.k + place);",
        "  st2(pair, f32(bin));",
        "  st2(pair + 1u, ld1(row * u.bins + u32(bin)));",
        "}",
    ]
)


def peaks_recipe(
    ranking: Recipe | None, power: Ref, rows: int, bins: int, k: int, first: int = 0
) -> Recipe:
    """Return the dispatches that write the k strongest bins of each row of power.

    `ranking` is a recipe of topk for such rows, and None keeps a list for each row;
    `power` is where [rows, bins] f32 lie, `first` the number of scratch buffers that
    stand before those of the result.
    """
    if ranking is None:
        return Recipe((peaks_call(power, rows, bins, k),))
    order = Ref("scratch", first + len(ranking.scratch))
    refs = {Ref("in"): power, Ref("out"): order} | {
        Ref("scratch", n): Ref("scratch", first + n)
        for n in range(len(ranking.scratch))
    }
    pairs = Call(
        shader="pairs of bin and power",
        axes=(Axis("row", rows), Axis("place", k)),
        accesses=(
            Access(order, (k, 1)),
            Access(power, (bins, 0), span=bins),
            Access(Ref("out"), (2 * k, 2), "write", span=2),
        ),
        grid=(("row", 1), ("place", 1)),
        values={"k": k, "bins": bins},
        source=_PAIRS,
    )
    dispatches = (*(redirected(call, refs) for call in ranking.calls), pairs)
    return Recipe(dispatches, (*ranking.scratch, Scratch(rows * k, "i32")))


def add_peaks(
    work: Work, ranking: Recipe | None, power: Ref, bins: int, k: int
) -> None:
    """Add to `work` what `peaks_recipe` returns for its rows of power in scratch."""
    peaks = peaks_recipe(ranking, power, work.rows, bins, k, len(work.scratch))
    work.calls += peaks.calls
    work.scratch += peaks.scratch


def sorted_ranking(rows: int, bins: int, k: int) -> Recipe:
    """Return the ranking of rows by sorting them."""
    return Merging(Lines(rows, bins, 1, DType.F32, descending=True), k).recipe()


def ranking(rows: int, bins: int, k: int, limits: Limits) -> Recipe | None:
    """Return the ranking of rows by a workgroup a row, else by sorting.

    Rows shorter than a workgroup keep lists: None.
    """
    if bins < LEAST:
        return None
    power, order = TensorType((rows, bins), DType.F32), TensorType((rows, k), DType.I32)
    by_group = topk_group((power,), order, {"k": k}, limits)
    return by_group or sorted_ranking(rows, bins, k)


def ranked_peaks(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """Return power_peaks by a ranking of its rows; None for short rows."""
    (rows, bins), k = inputs[0].shape, attrs["k"]
    by = ranking(rows, bins, k, limits)
    return by and peaks_recipe(by, Ref("in"), rows, bins, k)
