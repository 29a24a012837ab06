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
from rlxweb.recipes import fft_fours, welch_fours, welch_team
from rlxweb.recipes import fft_variants as fft
from rlxweb.recipes import line_variants as line
from rlxweb.recipes import welch_variants as welch
from rlxweb.recipes.add_norm_calls import add_norm_recipe
from rlxweb.recipes.attention_blocks import attention_blocks
from rlxweb.recipes.conv_blocks import conv_blocks
from rlxweb.recipes.conv_variants import as_product, neighbours, small_tiles
from rlxweb.recipes.fft_team_rows import team_recipe
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.line_blocks import line_blocks
from rlxweb.recipes.linear_recurrence_calls import linear_row_recipe
from rlxweb.recipes.matmul_blocks import SIDES, matmul_blocks
from rlxweb.recipes.matmul_fours import TILES, matmul_fours
from rlxweb.recipes.matmul_variants import matmul_rows, matmul_tiled
from rlxweb.recipes.movement_variants import fours_copy, gather_rows, tiled_copy
from rlxweb.recipes.packed_calls import blocks_of_packed, few_rows, large_tiles
from rlxweb.recipes.padding_variants import own, padded_at_once
from rlxweb.recipes.peaks_variants import peaks_on_hardware, peaks_on_software
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
    """What a gate may look at: adapters on the CPU like other shapes than GPUs do.

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


def on_software(hardware: Hardware) -> bool:
    """Adapters that run on the CPU: a lane per row, no barriers."""
    return hardware.software


def on_slow_compilers(hardware: Hardware) -> bool:
    """Browsers' adapters on the CPU, told by what they alone are left without.

    Theirs is SwiftShader, whose compiler takes 0.2 to 0.6 s for the usual text.
    """
    room = hardware.limits.max_compute_workgroup_storage_size
    return on_software(hardware) and not room


def with_own_memory(hardware: Hardware) -> bool:
    """Adapters on the CPU whose kernels may use workgroup memory."""
    room = hardware.limits.max_compute_workgroup_storage_size
    return on_software(hardware) and room > 0


def on_hardware(hardware: Hardware) -> bool:
    """GPUs: a workgroup per row, shared memory."""
    return not hardware.software


def with_subgroups(hardware: Hardware) -> bool:
    """GPUs whose lanes can tell each other values without workgroup memory."""
    return on_hardware(hardware) and "subgroup" in hardware.features


def shaders_trusted(hardware: Hardware) -> Literal["none", "proven"]:
    """Our shaders that are compiled without checks: those that stay inside, or none.

    It gained nothing on adapters on the CPU. On an H100 the kernels of Welch's estimate
    take 0.6 to 0.8 of the time, products 0.9, transforms 1.0.
    """
    return "proven" if on_hardware(hardware) else "none"


def runs_overlap(hardware: Hardware) -> bool:
    """Where the next run of a job is handed over before the last one is read.

    An adapter on the CPU computes with the cores that would fill the buffers.
    """
    return on_hardware(hardware)


def always(hardware: Hardware) -> bool:
    """The gate that is never shut."""
    return True


def never(hardware: Hardware) -> bool:
    """The gate of what is run when it is asked for by name, to see what it brings."""
    return False


LINES = ("softmax", "layer_norm", "rms_norm")
TRANSFORMS = ("fft", "rfft", "irfft")
WELCH = ("welch_power", "welch_row_peaks")
PSD = ("psd_real",)

_MATMULS = (
    *(
        Variant(
            f"matmul, in fours, {side} by {side}",
            "matmul",
            on_software,
            matmul_fours(side, least),
        )
        for side, least in TILES
    ),
    Variant("matmul, 16 by 16 a lane", "matmul", on_software, matmul_rows),
    *(
        Variant(f"matmul, blocks of {side}", "matmul", on_hardware, matmul_blocks(side))
        for side in SIDES
    ),
    Variant("matmul, shared tiles", "matmul", on_hardware, matmul_tiled),
    Variant(
        "quantized_matmul, 16 by 8 a lane",
        "quantized_matmul",
        on_software,
        large_tiles,
    ),
    Variant(
        "quantized_matmul, workgroup four columns",
        "quantized_matmul",
        on_hardware,
        few_rows,
    ),
    *(
        Variant(
            f"quantized_matmul, blocks of {side}",
            "quantized_matmul",
            on_hardware,
            blocks_of_packed(side),
        )
        for side in SIDES
    ),
)
_CONVOLUTIONS = (
    *(
        Variant(
            f"conv, in fours, {side} by {side}",
            "conv",
            on_software,
            as_product(matmul_fours(side, least)),
        )
        for side, least in TILES
    ),
    Variant("conv, 16 by 16 a lane", "conv", on_software, as_product(matmul_rows)),
    *(
        Variant(
            f"conv, blocks of {side}",
            "conv",
            on_hardware,
            as_product(matmul_blocks(side)),
        )
        for side in SIDES
    ),
    Variant("conv, shared tiles", "conv", on_hardware, as_product(matmul_tiled)),
    *(
        Variant(
            f"conv, blocks of {side} windows",
            "conv",
            on_hardware,
            padded_at_once(conv_blocks(side)),
        )
        for side in SIDES
    ),
    Variant("conv, small tiles", "conv", on_hardware, padded_at_once(small_tiles)),
    Variant("conv, neighbours a lane", "conv", on_software, padded_at_once(neighbours)),
)
PADDING = ("pad", "conv", "max_pool", "max_pool_indices", "sum_pool")
_PADDED = tuple(
    Variant(f"{op}, padded at once", op, always, padded_at_once(own(op)))
    for op in PADDING
)
_SELECTIONS = (
    Variant("topk, workgroup a row", "topk", on_hardware, topk_group),
    Variant("topk, sorted rows", "topk", always, longest_first),
    Variant("power_peaks, ranked rows", "power_peaks", on_hardware, peaks_on_hardware),
    Variant("power_peaks, sorted rows", "power_peaks", on_software, peaks_on_software),
    Variant("argsort, runs merged", "argsort", always, merged),
    Variant(
        "non_max_suppression, runs merged",
        "non_max_suppression",
        always,
        suppress_merged,
    ),
    Variant("attention, one kernel", "attention", on_hardware, attention_blocks),
    Variant("add_norm, workgroup a row", "add_norm", on_hardware, add_norm_recipe),
    Variant("gather, rows by fours", "gather", on_hardware, gather_rows),
)
_REDUCTIONS = tuple(
    Variant(f"{kind}, many lanes a line", kind, on_hardware, line_reduction(kind))
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
    (LINES, "in registers", on_hardware, lambda op: line_blocks(op, False)),
    (LINES, "workgroup a row", on_hardware, line.group_recipe),
    (LINES, "in fours", on_software, line.four_recipe),
    (TRANSFORMS, "lane a row", on_software, fft.lane_recipe),
    (TRANSFORMS, "lane a row, in fours", on_software, fft_fours.four_recipe),
    (TRANSFORMS, "team of lanes a row", on_hardware, team_recipe()),
    (TRANSFORMS, "workgroup a row", on_hardware, fft.group_recipe),
    (TRANSFORMS, "unrolled passes", always, fft.pass_recipe),
    (
        PSD,
        "lane a row, in fours",
        with_own_memory,
        lambda op: as_estimate(welch_fours.four_recipe),
    ),
    (PSD, "lane a row", on_software, lambda op: as_estimate(welch.lane_recipe)),
    (
        PSD,
        "team of lanes a row",
        on_hardware,
        lambda op: as_estimate(welch_team.team_recipe()),
    ),
    (PSD, "workgroup a row", on_hardware, lambda op: as_estimate(welch.group_recipe)),
    (
        WELCH,
        "lane a row, short text",
        on_slow_compilers,
        lambda op: welch.short_lane_recipe,
    ),
    (
        WELCH,
        "lane a row, in fours",
        with_own_memory,
        lambda op: welch_fours.four_recipe,
    ),
    (WELCH, "lane a row", on_software, lambda op: welch.lane_recipe),
    (WELCH, "team of lanes a row", on_hardware, lambda op: welch_team.team_recipe()),
    (WELCH, "workgroup a row", on_hardware, lambda op: welch.group_recipe),
)
_TRIALS = (
    Variant("fft, team, unswizzled", "fft", never, team_recipe(False)("fft")),
    Variant("fft, team, radix 8", "fft", never, team_recipe(True, 8)("fft")),
    Variant(
        "welch_row_peaks, team, unswizzled",
        "welch_row_peaks",
        never,
        welch_team.team_recipe(False),
    ),
    Variant(
        "welch_row_peaks, team, radix 16",
        "welch_row_peaks",
        never,
        welch_team.team_recipe(True, 16),
    ),
    Variant(
        "welch_row_peaks, team, radix 8",
        "welch_row_peaks",
        never,
        welch_team.team_recipe(True, 8),
    ),
)
VARIANTS = (
    _MATMULS
    + _CONVOLUTIONS
    + _PADDED
    + _SELECTIONS
    + _REDUCTIONS
    + _NETWORKS
    + _TRIALS
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
    CopyVariant("copy, tiles of 32 by 32", on_hardware, tiled_copy),
    CopyVariant("copy, four by four", on_software, fours_copy),
)


def table_of(rows: Sequence[Variant]) -> str:
    """What tells tables of rows apart: figures of one are of no use to another."""
    return f"{crc32(repr([(row.op, row.name) for row in rows]).encode()):08x}"


def variants_of(op: str, rows: Sequence[Variant] = VARIANTS) -> tuple[Variant, ...]:
    """The rows of one op, in the order in which they are tried."""
    return tuple(v for v in rows if v.op == op)
