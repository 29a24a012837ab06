"""Faster kernels of an op than its own, in the order in which they are tried.

Rule: deleting any row changes no result, only time. The first row whose feature the
device has and whose recipe fits the device's limits is taken; the op's own declaration
is the last resort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from zlib import crc32

from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Call
from rlxweb.limits import Limits
from rlxweb.recipes import fft_variants as fft
from rlxweb.recipes import line_variants as line
from rlxweb.recipes import welch_team
from rlxweb.recipes import welch_variants as welch
from rlxweb.recipes.add_norm_calls import add_norm_recipe
from rlxweb.recipes.attention_blocks import attention_blocks
from rlxweb.recipes.conv_blocks import conv_blocks
from rlxweb.recipes.conv_variants import as_product, small_tiles
from rlxweb.recipes.fft_team_rows import team_recipe
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.line_blocks import line_blocks
from rlxweb.recipes.linear_recurrence_calls import linear_row_recipe
from rlxweb.recipes.matmul_blocks import SIDES, matmul_blocks
from rlxweb.recipes.matmul_variants import matmul_tiled
from rlxweb.recipes.movement_variants import fours_copy, gather_rows, tiled_copy
from rlxweb.recipes.packed_calls import blocks_of_packed, few_rows
from rlxweb.recipes.padding_variants import own, padded_at_once
from rlxweb.recipes.peaks_variants import ranked_peaks
from rlxweb.recipes.psd_variants import as_estimate
from rlxweb.recipes.recurrent_calls import row_recipe
from rlxweb.recipes.recurrent_cells import GATES
from rlxweb.recipes.reduce_calls import KINDS
from rlxweb.recipes.reduce_variants import line_reduction
from rlxweb.recipes.sort_variants import longest_first, merged
from rlxweb.recipes.suppress_calls import suppress_merged
from rlxweb.recipes.topk_variants import topk_group


@dataclass(frozen=True, slots=True)
class Hardware:
    """Properties of a device that its kernels are chosen by.

    features  what the device was opened with, by the names of the port
    """

    limits: Limits
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Variant:
    """One alternative recipe of an op.

    feature  of the device that its shaders use, by the name of the port; None: none
    """

    name: str
    op: str
    recipe: RecipeFor
    feature: str | None = None

    def is_open(self, hardware: Hardware) -> bool:
        """Return whether a device has the feature that the shaders use."""
        return self.feature is None or self.feature in hardware.features


LINES = ("softmax", "layer_norm", "rms_norm")
TRANSFORMS = ("fft", "rfft", "irfft")
WELCH = ("welch_power", "welch_row_peaks")
PSD = ("psd_real",)

_MATMULS = (
    *(
        Variant(f"matmul, blocks of {side}", "matmul", matmul_blocks(side))
        for side in SIDES
    ),
    Variant("matmul, shared tiles", "matmul", matmul_tiled),
    Variant("quantized_matmul, workgroup four columns", "quantized_matmul", few_rows),
    *(
        Variant(
            f"quantized_matmul, blocks of {side}",
            "quantized_matmul",
            blocks_of_packed(side),
        )
        for side in SIDES
    ),
)
_CONVOLUTIONS = (
    *(
        Variant(f"conv, blocks of {side}", "conv", as_product(matmul_blocks(side)))
        for side in SIDES
    ),
    Variant("conv, shared tiles", "conv", as_product(matmul_tiled)),
    *(
        Variant(
            f"conv, blocks of {side} windows",
            "conv",
            padded_at_once(conv_blocks(side)),
        )
        for side in SIDES
    ),
    Variant("conv, small tiles", "conv", padded_at_once(small_tiles)),
)
PADDING = ("pad", "conv", "max_pool", "max_pool_indices", "sum_pool")
_PADDED = tuple(
    Variant(f"{op}, padded at once", op, padded_at_once(own(op))) for op in PADDING
)
_SELECTIONS = (
    Variant("topk, workgroup a row", "topk", topk_group),
    Variant("topk, sorted rows", "topk", longest_first),
    Variant("power_peaks, ranked rows", "power_peaks", ranked_peaks),
    Variant("argsort, runs merged", "argsort", merged),
    Variant(
        "non_max_suppression, runs merged",
        "non_max_suppression",
        suppress_merged,
    ),
    Variant("attention, one kernel", "attention", attention_blocks),
    Variant("add_norm, workgroup a row", "add_norm", add_norm_recipe),
    Variant("gather, rows by fours", "gather", gather_rows),
)
_REDUCTIONS = tuple(
    Variant(f"{kind}, many lanes a line", kind, line_reduction(kind)) for kind in KINDS
)
_NETWORKS = tuple(
    Variant(f"{kind}, workgroup a row", kind, partial(row_recipe, kind))
    for kind in GATES
)
_NETWORKS += (
    Variant(
        "linear_recurrence, workgroup a row",
        "linear_recurrence",
        linear_row_recipe,
    ),
)
_FAMILIES: tuple[
    tuple[tuple[str, ...], str, Callable[[str], RecipeFor], str | None], ...
] = (
    (
        LINES,
        "in registers, by subgroups",
        lambda op: line_blocks(op, True),
        "subgroup",
    ),
    (LINES, "in registers", lambda op: line_blocks(op, False), None),
    (LINES, "workgroup a row", line.group_recipe, None),
    (TRANSFORMS, "team of lanes a row", team_recipe(), None),
    (TRANSFORMS, "workgroup a row", fft.group_recipe, None),
    (TRANSFORMS, "unrolled passes", fft.pass_recipe, None),
    (
        PSD,
        "team of lanes a row",
        lambda op: as_estimate(welch_team.team_recipe()),
        None,
    ),
    (PSD, "workgroup a row", lambda op: as_estimate(welch.group_recipe), None),
    (WELCH, "team of lanes a row", lambda op: welch_team.team_recipe(), None),
    (WELCH, "workgroup a row", lambda op: welch.group_recipe, None),
)
VARIANTS = (
    _MATMULS
    + _CONVOLUTIONS
    + _PADDED
    + _SELECTIONS
    + _REDUCTIONS
    + _NETWORKS
    + tuple(
        Variant(f"{op}, {name}", op, recipe(op), feature)
        for ops, name, recipe, feature in _FAMILIES
        for op in ops
    )
)


CopyFor = Callable[[Layout, Layout, DType, Limits], Call | None]
"""(source, target, dtype, limits) → the call of a copy, or None: not this way"""


@dataclass(frozen=True, slots=True)
class CopyVariant:
    """One alternative way to copy between layouts, which no op stands for."""

    name: str
    call: CopyFor


COPIES = (
    CopyVariant("copy, four by four", fours_copy),
    CopyVariant("copy, tiles of 32 by 32", tiled_copy),
)


def table_of(rows: Sequence[Variant]) -> str:
    """What tells tables of rows apart: figures of one are of no use to another."""
    return f"{crc32(repr([(row.op, row.name) for row in rows]).encode()):08x}"


def variants_of(op: str, rows: Sequence[Variant] = VARIANTS) -> tuple[Variant, ...]:
    """The rows of one op, in the order in which they are tried."""
    return tuple(v for v in rows if v.op == op)
