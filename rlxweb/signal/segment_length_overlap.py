"""Segment lengths and overlaps of the functions over segments, with SciPy's
defaults.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from rlxweb.core.argument_validation import coerce_integer
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.welch_request import (
    DEFAULT_NPERSEG,
    WelchRequest,
    welch_errors_named,
)

OverlapRule = Callable[[int], int]


def half_overlap(nperseg: int) -> int:
    """Return half a segment, SciPy's default overlap except for spectrograms."""
    return nperseg // 2


def fit_nperseg(
    window: object, nperseg: Any, n_samples: int | None, context: str
) -> Any:
    """Return nperseg for a row of n_samples: 256 by default, at most the row.

    A window's own samples settle it, so it is left as it is then; so it is for a row of
    a length that does not matter, None.

    Errors   UsageError. Warns  UserWarning where it had to be shortened, as SciPy.
    """
    if n_samples is None or not isinstance(window, str | tuple):
        return nperseg
    requested = DEFAULT_NPERSEG
    if nperseg is not None:
        requested = coerce_integer("nperseg", nperseg, context, accept_float=True)
    if requested > n_samples:
        warnings.warn(
            f"nperseg={requested} is greater than signal length {n_samples}, "
            f"using nperseg={n_samples}",
            UserWarning,
            stacklevel=caller_stacklevel(),
        )
    return min(requested, n_samples)


def segment_spec(
    context: str,
    n_samples: int | None,
    dtype: str,
    default_overlap: OverlapRule,
    **options: Any,
) -> WelchSpec:
    """Return the estimate of consecutive segments, for rows of n_samples.

    default_overlap  nperseg → noverlap, where it is left out
    options  the fields of `WelchRequest`
    Errors   UsageError.
    """
    options["nperseg"] = fit_nperseg(
        options["window"], options["nperseg"], n_samples, context
    )
    with welch_errors_named(context):
        spec = WelchRequest(**options).spec(n_samples, dtype)
        if options["noverlap"] is None:
            options["noverlap"] = default_overlap(spec.nperseg)
            spec = WelchRequest(**options).spec(n_samples, dtype)
        return spec
