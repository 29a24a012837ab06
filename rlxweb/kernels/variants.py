"""Faster ways to run an op on some devices, each behind a gate.

Rule: deleting any row changes no result, only time. The first row whose gate opens and
whose recipe fits the device's limits is taken; the op's own declaration is the last
resort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.gpu.limits import Limits
from rlxweb.ir.lowering import Recipe
from rlxweb.ir.op import TensorType

Types = tuple[TensorType, ...]
Gate = Callable[["Hardware", Types, TensorType, Mapping[str, Any]], bool]
RecipeFor = Callable[[Types, TensorType, Mapping[str, Any], Limits], Recipe | None]


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a gate may look at: adapters on the CPU like other shapes than GPUs do."""

    software: bool
    features: frozenset[str]
    limits: Limits


@dataclass(frozen=True, slots=True)
class Variant:
    """One alternative recipe of an op."""

    name: str
    op: str
    gate: Gate
    recipe: RecipeFor


def always(
    hardware: Hardware, inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> bool:
    """The gate that is never shut."""
    return True


VARIANTS: tuple[Variant, ...] = ()


def variants_of(op: str) -> tuple[Variant, ...]:
    return tuple(v for v in VARIANTS if v.op == op)
