"""Faster ways to run an op on some devices, each behind a gate.

Rule: deleting any row changes no result, only time. The first row whose gate opens and
whose recipe fits the device's limits is taken; the op's own declaration is the last
resort.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlxweb.limits import Limits
from rlxweb.recipes import fft_variants as fft
from rlxweb.recipes import line_variants as line
from rlxweb.recipes import welch_variants as welch
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.matmul_variants import matmul_rows, matmul_tiled

Gate = Callable[["Hardware"], bool]


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a gate may look at: adapters on the CPU like other shapes than GPUs do."""

    software: bool
    limits: Limits


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


def on_hardware(hardware: Hardware) -> bool:
    """GPUs: a workgroup per row, shared memory."""
    return not hardware.software


def always(hardware: Hardware) -> bool:
    """The gate that is never shut."""
    return True


LINES = ("softmax", "layer_norm", "rms_norm")
TRANSFORMS = ("fft", "rfft", "irfft")
WELCH = ("welch_power", "welch_row_peaks")

_MATMULS = (
    Variant("matmul, 16 by 16 a lane", "matmul", on_software, matmul_rows),
    Variant("matmul, shared tiles", "matmul", on_hardware, matmul_tiled),
)
_FAMILIES: tuple[tuple[tuple[str, ...], str, Gate, Callable[[str], RecipeFor]], ...] = (
    (LINES, "workgroup a row", on_hardware, line.group_recipe),
    (TRANSFORMS, "lane a row", on_software, fft.lane_recipe),
    (TRANSFORMS, "workgroup a row", on_hardware, fft.group_recipe),
    (TRANSFORMS, "unrolled passes", always, fft.pass_recipe),
    (WELCH, "lane a row", on_software, lambda op: welch.lane_recipe),
    (WELCH, "workgroup a row", on_hardware, lambda op: welch.group_recipe),
)
VARIANTS = _MATMULS + tuple(
    Variant(f"{op}, {name}", op, gate, recipe(op))
    for ops, name, gate, recipe in _FAMILIES
    for op in ops
)


def variants_of(op: str) -> tuple[Variant, ...]:
    """The rows of one op, in the order in which they are tried."""
    return tuple(v for v in VARIANTS if v.op == op)
