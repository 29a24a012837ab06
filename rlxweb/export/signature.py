"""What `run` of a plan takes and gives: name, type and shape of every array."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

Signature: TypeAlias = Mapping[str, tuple[str, list[int]]]
_WELCH = {
    "peaks": {"hz": "f64", "power": "f32", "bins": "i32", "count": "i32"},
    "power": {"hz": "f64", "power": "f32"},
    "both": {
        "hz": "f64",
        "power": "f32",
        "bins": "i32",
        "count": "i32",
        "freqs": "f64",
        "spectrum": "f32",
    },
}


def inputs_of(plan: Mapping[str, Any]) -> Signature:
    """By name: dtype and shape."""
    return {n: (one["dtype"], one["shape"]) for n, one in plan["inputs"].items()}


def outputs_of(plan: Mapping[str, Any]) -> Signature:
    """Of the results, which are not the plan's outputs where there is `welch`."""
    welch = plan["welch"]
    if welch is None:
        return {n: (one["dtype"], one["shape"]) for n, one in plan["outputs"].items()}
    rows, bins, k = welch["rows"], welch["bins"], welch["k"]
    kinds = _WELCH[welch["output"]]
    shapes = {"count": [rows], "freqs": [bins], "spectrum": [rows, bins]}
    if welch["output"] == "power":
        shapes |= {"hz": [bins], "power": [rows, bins]}
    return {n: (kind, shapes.get(n, [rows, k])) for n, kind in kinds.items()}


def is_identifier(name: str) -> bool:
    """Can it stand in JavaScript as it is, as the name of a property?"""
    return re.fullmatch(r"[A-Za-z_$][A-Za-z0-9_$]*", name) is not None
