"""WGSL's operators and functions on NumPy arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np


def _divide(x: Any, y: Any) -> Any:
    kinds = [getattr(v, "dtype", np.dtype(type(v))) for v in (x, y)]
    return x / y if any(k.kind == "f" for k in kinds) else x // y


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "&&": np.logical_and,
    "||": np.logical_or,
}


def _fma(x: Any, y: Any, z: Any) -> Any:
    return np.asarray(np.float64(x) * np.float64(y) + np.float64(z), np.float32)


def _select(no: Any, yes: Any, condition: Any) -> Any:
    kinds = [v.dtype for v in (no, yes) if hasattr(v, "dtype")]
    return np.where(condition, yes, no).astype(kinds[0] if kinds else np.float32)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fma": _fma,
    "select": _select,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "floor": np.floor,
    "countOneBits": np.bitwise_count,
}


def apply_componentwise(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    sizes = {len(v) for v in arguments if isinstance(v, tuple)}
    if not sizes:
        return function(*arguments)
    parts = [v if isinstance(v, tuple) else (v,) * max(sizes) for v in arguments]
    return tuple(function(*components) for components in zip(*parts, strict=True))


@cache
def parse_literal(text: str | int) -> Any:
    """Return the value of a literal: typed by its suffix, else of any type required."""
    if isinstance(text, int):
        return text
    if text.endswith("u"):
        return np.uint32(int(text[:-1], 0))
    if text.endswith("i"):
        return np.int32(int(text[:-1], 0))
    if text.startswith("0x"):
        return int(text, 0)
    if text.endswith("f"):
        return np.float32(text[:-1])
    return float(text) if set(text) & set(".eE") else int(text)
