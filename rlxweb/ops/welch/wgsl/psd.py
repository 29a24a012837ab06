"""Alternative kernels of the power spectra of whole rows: the fused kernels of Welch's
estimate, in one dispatch.

psd_real is the estimate of one segment that fills its row, under a window of ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import BufferRef, KernelPlan, OperandAccess
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape_arithmetic import numel
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule
from rlxweb.ops.welch.wgsl.cooperative import cooperative_welch_planner
from rlxweb.ops.welch.wgsl.workgroup import plan_welch_per_workgroup

WINDOW_REF = BufferRef("in", 1)


def psd_by_welch_rule(welch_rule: WgslPlanRule) -> WgslPlanRule:
    """Return the plan rule of psd_real by a rule of welch_power."""

    def build_plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        (x,) = inputs
        n, bins = x.shape[-1], out.shape[-1]
        signal = TensorType((numel(x.shape[:-1]), n), x.dtype)
        window = TensorType((n,), x.dtype)
        power = TensorType((signal.shape[0], bins), out.dtype)
        welch_attrs = {"hop": n, "segments": 1, "nfft": n, "detrend": "none"}
        welch_attrs |= {"doubling": False, "scale": 1.0 / bins}
        plan = welch_rule((signal, window), power, welch_attrs, limits)
        return plan and _with_window_of_ones(plan, n)

    return build_plan


def _with_window_of_ones(plan: KernelPlan, n: int) -> KernelPlan:
    """Return the plan with a table of ones in place of the window."""
    ones = BufferRef("table", len(plan.tables))

    def replace_window(access: OperandAccess) -> OperandAccess:
        return replace(access, ref=ones) if access.ref == WINDOW_REF else access

    dispatches = (
        replace(dispatch, accesses=tuple(map(replace_window, dispatch.accesses)))
        for dispatch in plan.dispatches
    )
    tables = (*plan.tables, np.ones(n, np.float32))
    return replace(plan, dispatches=tuple(dispatches), tables=tables)


KERNELS = (
    KernelVariant(
        "psd_real, team of lanes a row",
        "psd_real",
        psd_by_welch_rule(cooperative_welch_planner()),
    ),
    KernelVariant(
        "psd_real, workgroup a row",
        "psd_real",
        psd_by_welch_rule(plan_welch_per_workgroup),
    ),
)
