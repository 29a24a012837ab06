"""Values put into an array at places that may be the same, in the words of NumPy.

What references of scatters are written with, for every library that stands for NumPy.
No device is known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ops.kinds import is_float
from rlxweb.ops.outside import as_places


def last_wins(xp: Any, flat: Any, places: Any, values: Any) -> Any:
    """An array with values at places; of several at one place the last stays."""
    if xp is np:
        out = xp.asarray(flat, copy=True)
        out[places] = values
        return out
    # Which one is put in last is not said of any other library; a largest number is.
    order = as_places(xp, xp.arange(values.shape[0]), values.shape[0])
    none = xp.zeros((flat.shape[0],), dtype=order.dtype) - 1
    last = combined(xp, none, places, order, "max")
    found = xp.take(values, xp.where(last < 0, last * 0, last), axis=0)
    return xp.where(last < 0, flat, found)


_OF_TORCH = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
_OF_UPDATES = {
    "add": ("add",),
    "mul": ("multiply",),
    "max": ("maximum", "max"),
    "min": ("minimum", "min"),
}


def combined(xp: Any, flat: Any, places: Any, values: Any, how: str) -> Any:
    """Each library's own way to combine values at places that may be the same."""
    if hasattr(flat, "scatter_reduce"):  # PyTorch
        wide = xp.asarray(places, dtype=xp.int64)
        return flat.scatter_reduce(0, wide, values, reduce=_OF_TORCH[how])
    if hasattr(flat, "at"):  # JAX, MLX
        there = flat.at[places]
        name = next(n for n in _OF_UPDATES[how] if hasattr(there, n))
        made = getattr(there, name)(values)
        if how in ("max", "min") and is_float(xp, flat):  # MLX's leave NaN out
            nothing = xp.zeros_like(values)
            made = made.at[places].add(xp.where(xp.isnan(values), values, nothing))
            made = xp.where(xp.isnan(flat), flat, made)
        return made
    out = xp.asarray(flat, copy=True)
    getattr(xp, _OF_UPDATES[how][0]).at(out, places, values)
    return out
