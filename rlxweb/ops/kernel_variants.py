"""Table of alternative kernels of ops, in the order in which they are tried.

Rule: deleting any row changes no result, only time. The first row whose feature the
device has and whose recipe fits the device's limits is taken; the op's own declaration
is the last resort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from zlib import crc32

from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import KernelDispatch
from rlxweb.ops.attention.wgsl import plan_fused_attention
from rlxweb.ops.conv.wgsl_implicit_gemm import implicit_gemm_rule
from rlxweb.ops.conv.wgsl_variants import (
    plan_conv_small_tiles,
    pointwise_conv_rule,
)
from rlxweb.ops.fft import wgsl_variants as fft
from rlxweb.ops.fft.wgsl_cooperative_plans import cooperative_fft_rule
from rlxweb.ops.fft.wgsl_variants import VariantPlanRule
from rlxweb.ops.gather.wgsl_transpose import (
    plan_vec4_gather,
    tiled_transpose,
    vec4_transpose,
)
from rlxweb.ops.layout.wgsl_padding import (
    default_plan_rule,
    whole_image_padding_rule,
)
from rlxweb.ops.matmul.wgsl_blocked import BLOCK_SIDES, blocked_matmul_rule
from rlxweb.ops.matmul.wgsl_variants import plan_tiled_matmul
from rlxweb.ops.norm import wgsl_per_workgroup as line
from rlxweb.ops.norm.wgsl_add_norm import plan_add_norm
from rlxweb.ops.norm.wgsl_in_registers import register_row_rule
from rlxweb.ops.quantized.wgsl import (
    blocked_quantized_matmul_rule,
    plan_few_rows,
)
from rlxweb.ops.recurrent.wgsl import plan_recurrent_rows
from rlxweb.ops.recurrent.wgsl_cell import GATE_COUNTS
from rlxweb.ops.recurrent.wgsl_linear_recurrence import plan_linear_rows
from rlxweb.ops.reduce.wgsl import REDUCTION_KINDS
from rlxweb.ops.reduce.wgsl_variants import row_reduction_planner
from rlxweb.ops.sort.wgsl_merge_sort import (
    plan_argsort_by_merging,
    plan_topk_by_sorting,
)
from rlxweb.ops.sort.wgsl_topk import plan_topk_per_workgroup
from rlxweb.ops.vision.wgsl_non_max_suppression import plan_nms_by_merging
from rlxweb.ops.welch import wgsl_cooperative as welch_cooperative_kernel_variants
from rlxweb.ops.welch import wgsl_workgroup as welch
from rlxweb.ops.welch.wgsl_power_peaks import plan_ranked_peaks
from rlxweb.ops.welch.wgsl_psd import psd_by_welch_rule


@dataclass(frozen=True, slots=True)
class Hardware:
    """Device properties by which kernels are chosen.

    features  what the device was opened with, by the names of the port
    """

    limits: Limits
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """One alternative kernel plan of an op.

    feature  of the device that its shaders use, by the name of the port; None: none
    """

    name: str
    op: str
    plan: VariantPlanRule
    feature: str | None = None

    def is_supported(self, hardware: Hardware) -> bool:
        """Return whether a device has the feature that the shaders use."""
        return self.feature is None or self.feature in hardware.features


SOFTMAX_NORM_OPS = ("softmax", "layer_norm", "rms_norm")
FFT_OPS = ("fft", "rfft", "irfft")
WELCH_OPS = ("welch_power", "welch_row_peaks")
PSD_OPS = ("psd_real",)

_MATMUL_VARIANTS = (
    *(
        KernelVariant(f"matmul, blocks of {side}", "matmul", blocked_matmul_rule(side))
        for side in BLOCK_SIDES
    ),
    KernelVariant("matmul, shared tiles", "matmul", plan_tiled_matmul),
    KernelVariant(
        "quantized_matmul, workgroup four columns", "quantized_matmul", plan_few_rows
    ),
    *(
        KernelVariant(
            f"quantized_matmul, blocks of {side}",
            "quantized_matmul",
            blocked_quantized_matmul_rule(side),
        )
        for side in BLOCK_SIDES
    ),
)
_CONVOLUTION_VARIANTS = (
    *(
        KernelVariant(
            f"conv, blocks of {side}",
            "conv",
            pointwise_conv_rule(blocked_matmul_rule(side)),
        )
        for side in BLOCK_SIDES
    ),
    KernelVariant("conv, shared tiles", "conv", pointwise_conv_rule(plan_tiled_matmul)),
    *(
        KernelVariant(
            f"conv, blocks of {side} windows",
            "conv",
            whole_image_padding_rule(implicit_gemm_rule(side)),
        )
        for side in BLOCK_SIDES
    ),
    KernelVariant(
        "conv, small tiles", "conv", whole_image_padding_rule(plan_conv_small_tiles)
    ),
)
PADDING_OPS = ("pad", "conv", "max_pool", "max_pool_indices", "sum_pool")
_PADDING_VARIANTS = tuple(
    KernelVariant(
        f"{op}, padded at once", op, whole_image_padding_rule(default_plan_rule(op))
    )
    for op in PADDING_OPS
)
_SINGLE_OP_VARIANTS = (
    KernelVariant("topk, workgroup a row", "topk", plan_topk_per_workgroup),
    KernelVariant("topk, sorted rows", "topk", plan_topk_by_sorting),
    KernelVariant("power_peaks, ranked rows", "power_peaks", plan_ranked_peaks),
    KernelVariant("argsort, runs merged", "argsort", plan_argsort_by_merging),
    KernelVariant(
        "non_max_suppression, runs merged",
        "non_max_suppression",
        plan_nms_by_merging,
    ),
    KernelVariant("attention, one kernel", "attention", plan_fused_attention),
    KernelVariant("add_norm, workgroup a row", "add_norm", plan_add_norm),
    KernelVariant("gather, rows by fours", "gather", plan_vec4_gather),
)
_REDUCTION_VARIANTS = tuple(
    KernelVariant(f"{kind}, many lanes a line", kind, row_reduction_planner(kind))
    for kind in REDUCTION_KINDS
)
_RECURRENT_VARIANTS = tuple(
    KernelVariant(f"{kind}, workgroup a row", kind, partial(plan_recurrent_rows, kind))
    for kind in GATE_COUNTS
)
_RECURRENT_VARIANTS += (
    KernelVariant(
        "linear_recurrence, workgroup a row",
        "linear_recurrence",
        plan_linear_rows,
    ),
)
_VARIANT_FAMILIES: tuple[
    tuple[tuple[str, ...], str, Callable[[str], VariantPlanRule], str | None], ...
] = (
    (
        SOFTMAX_NORM_OPS,
        "in registers, by subgroups",
        lambda op: register_row_rule(op, True),
        "subgroup",
    ),
    (SOFTMAX_NORM_OPS, "in registers", lambda op: register_row_rule(op, False), None),
    (SOFTMAX_NORM_OPS, "workgroup a row", line.workgroup_row_rule, None),
    (FFT_OPS, "team of lanes a row", cooperative_fft_rule(), None),
    (FFT_OPS, "workgroup a row", fft.workgroup_fft_rule, None),
    (FFT_OPS, "unrolled passes", fft.unrolled_fft_rule, None),
    (
        PSD_OPS,
        "team of lanes a row",
        lambda op: psd_by_welch_rule(
            welch_cooperative_kernel_variants.cooperative_welch_planner()
        ),
        None,
    ),
    (
        PSD_OPS,
        "workgroup a row",
        lambda op: psd_by_welch_rule(welch.plan_welch_per_workgroup),
        None,
    ),
    (
        WELCH_OPS,
        "team of lanes a row",
        lambda op: welch_cooperative_kernel_variants.cooperative_welch_planner(),
        None,
    ),
    (WELCH_OPS, "workgroup a row", lambda op: welch.plan_welch_per_workgroup, None),
)
VARIANTS = (
    _MATMUL_VARIANTS
    + _CONVOLUTION_VARIANTS
    + _PADDING_VARIANTS
    + _SINGLE_OP_VARIANTS
    + _REDUCTION_VARIANTS
    + _RECURRENT_VARIANTS
    + tuple(
        KernelVariant(f"{op}, {name}", op, recipe(op), feature)
        for ops, name, recipe, feature in _VARIANT_FAMILIES
        for op in ops
    )
)


CopyPlanner = Callable[[Layout, Layout, DType, Limits], KernelDispatch | None]
"""Function (source, target, dtype, limits) → the dispatch of a copy, or None if it does
not serve the case.
"""


@dataclass(frozen=True, slots=True)
class CopyVariant:
    """One alternative kernel for copies between layouts, which are not an op."""

    name: str
    plan_copy: CopyPlanner


COPY_VARIANTS = (
    CopyVariant("copy, four by four", vec4_transpose),
    CopyVariant("copy, tiles of 32 by 32", tiled_transpose),
)


def variant_table_id(variants: Sequence[KernelVariant]) -> str:
    """Return an identifier of a table of variants; measurements of one table are of no
    use to another.
    """
    names = [(variant.op, variant.name) for variant in variants]
    return f"{crc32(repr(names).encode()):08x}"


def variants_for_op(
    op: str, variants: Sequence[KernelVariant] = VARIANTS
) -> tuple[KernelVariant, ...]:
    """Return the variants of one op, in the order in which they are tried."""
    return tuple(variant for variant in variants if variant.op == op)
