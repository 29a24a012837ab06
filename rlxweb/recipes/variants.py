"""Faster ways to run an op on some devices, each behind a gate.

Rule: deleting any row changes no result, only time. The first row whose gate opens and
whose recipe fits the device's limits is taken; the op's own declaration is the last
resort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal
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

Gate = Callable[["Hardware"], bool]


@dataclass(frozen=True, slots=True)
class Hardware:
    """Properties of a device that a gate may look at.

    features  what the device was opened with, by the names of the port
    vendor    who made it, as the adapter says
    """

    software: bool
    limits: Limits
    features: frozenset[str] = frozenset()
    vendor: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """One alternative recipe of an op."""

    name: str
    op: str
    gate: Gate
    recipe: RecipeFor


def always(hardware: Hardware) -> bool:
    """Return True: the gate that is never shut."""
    return True


def with_subgroups(hardware: Hardware) -> bool:
    """Return whether lanes can tell each other values without workgroup memory."""
    return not hardware.software and "subgroup" in hardware.features


def shaders_trusted(hardware: Hardware) -> Literal["none", "proven"]:
    """Our shaders that are compiled without checks: those that stay inside, or none.

    It gained nothing on adapters on the CPU. On an H100 the kernels of Welch's estimate
    take 0.6 to 0.8 of the time, products 0.9, transforms 1.0.
    """
    return "none" if hardware.software else "proven"


def runs_overlap(hardware: Hardware) -> bool:
    """Where the next run of a job is handed over before the last one is read.

    An adapter on the CPU computes with the cores that would fill the buffers.
    """
    return not hardware.software


LINES = ("softmax", "layer_norm", "rms_norm")
TRANSFORMS = ("fft", "rfft", "irfft")
WELCH = ("welch_power", "welch_row_peaks")
PSD = ("psd_real",)

_MATMULS = (
    *(
        Variant(f"matmul, blocks of {side}", "matmul", always, matmul_blocks(side))
        for side in SIDES
    ),
    Variant("matmul, shared tiles", "matmul", always, matmul_tiled),
    Variant(
        "quantized_matmul, workgroup four columns",
        "quantized_matmul",
        always,
        few_rows,
    ),
    *(
        Variant(
            f"quantized_matmul, blocks of {side}",
            "quantized_matmul",
            always,
            blocks_of_packed(side),
        )
        for side in SIDES
    ),
)
_CONVOLUTIONS = (
    *(
        Variant(
            f"conv, blocks of {side}", "conv", always, as_product(matmul_blocks(side))
        )
        for side in SIDES
    ),
    Variant("conv, shared tiles", "conv", always, as_product(matmul_tiled)),
    *(
        Variant(
            f"conv, blocks of {side} windows",
            "conv",
            always,
            padded_at_once(conv_blocks(side)),
        )
        for side in SIDES
    ),
    Variant("conv, small tiles", "conv", always, padded_at_once(small_tiles)),
)
PADDING = ("pad", "conv", "max_pool", "max_pool_indices", "sum_pool")
_PADDED = tuple(
    Variant(f"{op}, padded at once", op, always, padded_at_once(own(op)))
    for op in PADDING
)
_SELECTIONS = (
    Variant("topk, workgroup a row", "topk", always, topk_group),
    Variant("topk, sorted rows", "topk", always, longest_first),
    Variant("power_peaks, ranked rows", "power_peaks", always, ranked_peaks),
    Variant("argsort, runs merged", "argsort", always, merged),
    Variant(
        "non_max_suppression, runs merged",
        "non_max_suppression",
        always,
        suppress_merged,
    ),
    Variant("attention, one kernel", "attention", always, attention_blocks),
    Variant("add_norm, workgroup a row", "add_norm", always, add_norm_recipe),
    Variant("gather, rows by fours", "gather", always, gather_rows),
)
_REDUCTIONS = tuple(
    Variant(f"{kind}, many lanes a line", kind, always, line_reduction(kind))
    for kind in KINDS
)
_NETWORKS = tuple(
    Variant(f"{kind}, workgroup a row", kind, always, partial(row_recipe, kind))
    for kind in GATES
)
_NETWORKS += (
    Variant(
        "linear_recurrence, workgroup a row",
        "linear_recurrence",
        always,
        linear_row_recipe,
    ),
)
_FAMILIES: tuple[tuple[tuple[str, ...], str, Gate, Callable[[str], RecipeFor]], ...] = (
    (
        LINES,
        "in registers, by subgroups",
        with_subgroups,
        lambda op: line_blocks(op, True),
    ),
    (LINES, "in registers", always, lambda op: line_blocks(op, False)),
    (LINES, "workgroup a row", always, line.group_recipe),
    (TRANSFORMS, "team of lanes a row", always, team_recipe()),
    (TRANSFORMS, "workgroup a row", always, fft.group_recipe),
    (TRANSFORMS, "unrolled passes", always, fft.pass_recipe),
    (
        PSD,
        "team of lanes a row",
        always,
        lambda op: as_estimate(welch_team.team_recipe()),
    ),
    (PSD, "workgroup a row", always, lambda op: as_estimate(welch.group_recipe)),
    (WELCH, "team of lanes a row", always, lambda op: welch_team.team_recipe()),
    (WELCH, "workgroup a row", always, lambda op: welch.group_recipe),
)
VARIANTS = (
    _MATMULS
    + _CONVOLUTIONS
    + _PADDED
    + _SELECTIONS
    + _REDUCTIONS
    + _NETWORKS
    + tuple(
        Variant(f"{op}, {name}", op, gate, recipe(op))
        for ops, name, gate, recipe in _FAMILIES
        for op in ops
    )
)


CopyFor = Callable[[Layout, Layout, DType, Limits], Call | None]
"""(source, target, dtype, limits) → the call of a copy, or None: not this way"""


@dataclass(frozen=True, slots=True)
class CopyVariant:
    """One alternative way to copy between layouts, which no op stands for."""

    name: str
    gate: Gate
    call: CopyFor


COPIES = (
    CopyVariant("copy, four by four", always, fours_copy),
    CopyVariant("copy, tiles of 32 by 32", always, tiled_copy),
)


def table_of(rows: Sequence[Variant]) -> str:
    """What tells tables of rows apart: figures of one are of no use to another."""
    return f"{crc32(repr([(row.op, row.name) for row in rows]).encode()):08x}"


def variants_of(op: str, rows: Sequence[Variant] = VARIANTS) -> tuple[Variant, ...]:
    """The rows of one op, in the order in which they are tried."""
    return tuple(v for v in rows if v.op == op)
