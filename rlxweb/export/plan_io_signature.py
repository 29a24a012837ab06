"""Signature of a plan's `run`: name, type and shape of every array."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

PlanSignature: TypeAlias = Mapping[str, tuple[str, list[int]]]
_WELCH_OUTPUT_DTYPES = {
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


def input_signature(plan: Mapping[str, Any]) -> PlanSignature:
    """Return dtype and shape of each input by name."""
    return {
        name: (array["dtype"], array["shape"]) for name, array in plan["inputs"].items()
    }


def output_signature(plan: Mapping[str, Any]) -> PlanSignature:
    """Return dtype and shape of each result by name; with `welch` these differ from the
    plan's outputs.
    """
    welch = plan["welch"]
    if welch is None:
        return {
            name: (array["dtype"], array["shape"])
            for name, array in plan["outputs"].items()
        }
    rows, bins, k = welch["rows"], welch["bins"], welch["k"]
    dtypes = _WELCH_OUTPUT_DTYPES[welch["output"]]
    shapes = {"count": [rows], "freqs": [bins], "spectrum": [rows, bins]}
    if welch["output"] == "power":
        shapes |= {"hz": [bins], "power": [rows, bins]}
    return {
        name: (dtype, shapes.get(name, [rows, k])) for name, dtype in dtypes.items()
    }


def is_js_identifier(name: str) -> bool:
    """Return whether a name can be written unquoted as a JavaScript property."""
    return re.fullmatch(r"[A-Za-z_$][A-Za-z0-9_$]*", name) is not None
