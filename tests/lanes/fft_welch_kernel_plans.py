"""FFT and Welch kernels whose work is counted: one workgroup per row and
cooperative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlxweb.codegen.kernel_launch_records import KernelLaunch, build_launches
from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import KernelPlan
from rlxweb.ir.op import TensorType
from rlxweb.ops.fft.wgsl import variants as fft_kernel_variants
from rlxweb.ops.fft.wgsl.cooperative_plans import cooperative_fft_rule as fft_team
from rlxweb.ops.kernel_variant import WgslPlanRule
from rlxweb.ops.welch.wgsl import workgroup as welch_workgroup_kernel_variants
from rlxweb.ops.welch.wgsl.cooperative import (
    cooperative_welch_planner as welch_team,
)

DEVICE = Limits(
    max_compute_workgroup_storage_size=48 << 10,
    max_compute_invocations_per_workgroup=1024,
    max_compute_workgroup_size_x=1024,
)
ROWS = 64
KERNEL_PLANNERS: dict[
    str, tuple[Callable[[str], WgslPlanRule], Callable[[], WgslPlanRule]]
] = {
    "workgroup a row": (
        fft_kernel_variants.workgroup_fft_rule,
        lambda: welch_workgroup_kernel_variants.plan_welch_per_workgroup,
    ),
    "team of lanes a row": (fft_team(), welch_team),
    "team, unswizzled": (fft_team(False), lambda: welch_team(False)),
}


def fft_plan(variant: str, n: int, rows: int = ROWS) -> KernelPlan:
    """Return the plan of a forward transform of block rows."""
    row_type = TensorType((rows, 2 * n), DType.F32)
    attrs: dict[str, Any] = {"inverse": False, "norm": "backward"}
    plan = KERNEL_PLANNERS[variant][0]("fft")((row_type,), row_type, attrs, DEVICE)
    assert plan is not None
    return plan


def welch_plan(
    variant: str, n: int, segments: int = 2, k: int = 16, rows: int = ROWS
) -> KernelPlan:
    """Return the plan of Welch peaks of half-overlapped segments without detrending."""
    types = (
        TensorType((rows, n // 2 * (segments + 1)), DType.F32),
        TensorType((n,), DType.F32),
    )
    attrs: dict[str, Any] = {
        "hop": n // 2,
        "segments": segments,
        "nfft": 0,
        "detrend": "none",
        "doubling": True,
        "scale": 1.0,
        "k": k,
    }
    out = TensorType((rows, k, 2), DType.F32)
    plan = KERNEL_PLANNERS[variant][1]()(types, out, attrs, DEVICE)
    assert plan is not None
    return plan


def first_launch(plan: KernelPlan) -> KernelLaunch:
    """Return the first launch of a kernel plan."""
    dispatch = plan.dispatches[0]
    return build_launches(dispatch, [DType.F32] * len(dispatch.accesses), DEVICE)[0]


def labelled_launches() -> Iterator[tuple[str, KernelLaunch]]:
    """Yield (label, launch) of every kernel that is counted."""
    for n in (64, 256, 1024, 4096):
        for variant in ("workgroup a row", "team of lanes a row"):
            yield f"fft {n}, {variant}", first_launch(fft_plan(variant, n))
    for n in (256, 1024, 4096):
        for variant in ("workgroup a row", "team of lanes a row"):
            for segments in (2, 8):
                yield (
                    f"welch {n} × {segments}, {variant}",
                    first_launch(welch_plan(variant, n, segments)),
                )
