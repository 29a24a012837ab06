"""Power spectra of whole rows by the kernels of Welch's estimate, one dispatch.

psd_real is the estimate of one segment that fills its row, under a window of ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlxweb.ir.lowering import Access, Recipe, Ref
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import numel
from rlxweb.limits import Limits
from rlxweb.recipes.fft_variants import RecipeFor

WINDOW = Ref("in", 1)


def as_estimate(welch: RecipeFor) -> RecipeFor:
    """The recipe of psd_real by one of welch_power."""

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        (x,) = inputs
        n, bins = x.shape[-1], out.shape[-1]
        signal = TensorType((numel(x.shape[:-1]), n), x.dtype)
        window = TensorType((n,), x.dtype)
        power = TensorType((signal.shape[0], bins), out.dtype)
        own = {"hop": n, "segments": 1, "nfft": n, "detrend": "none"}
        own |= {"doubling": False, "scale": 1.0 / bins}
        made = welch((signal, window), power, own, limits)
        return made and _under_ones(made, n)

    return recipe


def _under_ones(made: Recipe, n: int) -> Recipe:
    """The recipe with a table of ones where it reads a window."""
    ones = Ref("table", len(made.tables))

    def moved(access: Access) -> Access:
        return replace(access, ref=ones) if access.ref == WINDOW else access

    calls = (
        replace(call, accesses=tuple(map(moved, call.accesses))) for call in made.calls
    )
    tables = (*made.tables, np.ones(n, np.float32))
    return replace(made, calls=tuple(calls), tables=tables)
