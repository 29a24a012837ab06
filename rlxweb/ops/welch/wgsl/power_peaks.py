"""Alternative kernels of power_peaks that rank the bins of each row, by sorting or by a
workgroup.

A ranking gives the strongest bins; one more dispatch puts each beside its power. The
kernel of `peaks_dispatch` keeps the list of each row in memory and may move k entries
of it for each bin, so it serves short lists of many rows only. Deleting this changes no
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.codegen.wgsl_entry_point import MAIN_LINES
from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
    redirect_buffers,
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ops.fft.wgsl.plan import RowPlanBuilder
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.sort.wgsl.merge_sort import MergeSortPlanner
from rlxweb.ops.sort.wgsl.plan import SortLines
from rlxweb.ops.sort.wgsl.topk import (
    MIN_WORKGROUP_SIZE,
    plan_topk_per_workgroup,
)
from rlxweb.ops.welch.wgsl.peaks_plan import peaks_dispatch

_PAIR_SHADER = "\n".join(
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


def plan_power_peaks(
    ranking: KernelPlan | None,
    power: BufferRef,
    rows: int,
    bins: int,
    k: int,
    first_scratch: int = 0,
) -> KernelPlan:
    """Plan the dispatches that write the k strongest bins of each row of power.

    `plan_ranking` is a plan of topk for such rows, and None keeps a list for each
    row; `power` is where [rows, bins] f32 lie, `first_scratch` the number of scratch
    buffers that stand before those of the result.
    """
    if ranking is None:
        return KernelPlan((peaks_dispatch(power, rows, bins, k),))
    order = BufferRef("scratch", first_scratch + len(ranking.scratch))
    refs = {BufferRef("in"): power, BufferRef("out"): order} | {
        BufferRef("scratch", n): BufferRef("scratch", first_scratch + n)
        for n in range(len(ranking.scratch))
    }
    pair_dispatch = KernelDispatch(
        shader="pairs of bin and power",
        axes=(IterationAxis("row", rows), IterationAxis("place", k)),
        accesses=(
            OperandAccess(order, (k, 1)),
            OperandAccess(power, (bins, 0), span=bins),
            OperandAccess(BufferRef("out"), (2 * k, 2), "write", span=2),
        ),
        grid=(("row", 1), ("place", 1)),
        uniforms={"k": k, "bins": bins},
        source=_PAIR_SHADER,
    )
    dispatches = (
        *(redirect_buffers(dispatch, refs) for dispatch in ranking.dispatches),
        pair_dispatch,
    )
    return KernelPlan(dispatches, (*ranking.scratch, ScratchBuffer(rows * k, "i32")))


def add_power_peaks(
    builder: RowPlanBuilder,
    ranking: KernelPlan | None,
    power: BufferRef,
    bins: int,
    k: int,
) -> None:
    """Add to `builder` the dispatches of `plan_power_peaks` for its rows of power in
    scratch.
    """
    plan = plan_power_peaks(
        ranking, power, builder.row_count, bins, k, len(builder.scratch)
    )
    builder.dispatches += plan.dispatches
    builder.scratch += plan.scratch


def plan_sorted_ranking(rows: int, bins: int, k: int) -> KernelPlan:
    """Plan the ranking of rows by sorting them."""
    return MergeSortPlanner(
        SortLines(rows, bins, 1, DType.F32, descending=True), k
    ).plan()


def plan_ranking(rows: int, bins: int, k: int, limits: Limits) -> KernelPlan | None:
    """Plan the ranking of rows by a workgroup per row, or else by sorting.

    Rows shorter than a workgroup keep lists: None.
    """
    if bins < MIN_WORKGROUP_SIZE:
        return None
    power, order = TensorType((rows, bins), DType.F32), TensorType((rows, k), DType.I32)
    workgroup_plan = plan_topk_per_workgroup((power,), order, {"k": k}, limits)
    return workgroup_plan or plan_sorted_ranking(rows, bins, k)


def plan_ranked_peaks(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Plan power_peaks by a ranking of its rows; None for short rows."""
    (rows, bins), k = inputs[0].shape, attrs["k"]
    ranking = plan_ranking(rows, bins, k, limits)
    return ranking and plan_power_peaks(ranking, BufferRef("in"), rows, bins, k)


KERNELS = (KernelVariant("power_peaks, ranked rows", "power_peaks", plan_ranked_peaks),)
