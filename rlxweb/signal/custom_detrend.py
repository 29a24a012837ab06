"""Detrending by a caller's function, applied to each segment before an engine runs.

The segments it gives back become rows without overlap, so that any engine takes the
estimate from there. They take about twice the memory where segments overlap by half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import DTypeError, ShapeError
from rlxweb.ops.welch.cpu.spectrum import segment_view
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.row_preparation import RowErrorContext

CustomDetrend = Callable[[NDArray[Any]], Any]


def as_custom_detrend(detrend: Any) -> CustomDetrend | None:
    """Return the detrend argument if it is a function, else None; a class is not taken
    as one.
    """
    is_function = callable(detrend) and not isinstance(detrend, type)
    return detrend if is_function else None


def apply_custom_detrend(
    detrend: CustomDetrend,
    rows: NDArray[Any],
    spec: WelchSpec,
    caller: RowErrorContext,
) -> tuple[NDArray[Any], WelchSpec, RowErrorContext]:
    """Detrend each segment; return the rows [B, S * nperseg] of the detrended segments,
    their spec and their caller.

    detrend  segment (*batch, nperseg), time last, of the spec's dtype → the same shape;
             called once per segment, as SciPy does
    spec     of rows [B, T], with nothing removed
    Errors   ShapeError, DTypeError for what the function gives back.
    """
    n_segments, context = spec.segments_per_row(rows.shape[1]), "the detrend function"
    segments = segment_view(rows, spec.nperseg, spec.hop, n_segments)
    out = np.empty((len(rows), n_segments, spec.nperseg), spec.dtype)
    for index in range(n_segments):
        # A copy: the function may work in place, on samples that segments share.
        segment = segments[:, index].astype(spec.dtype, order="C")
        out[:, index] = _checked_segment(
            detrend, segment.reshape(*caller.batch_shape, -1), context, segment
        )
    new_spec = replace(spec, hop=spec.nperseg, n_segments=n_segments)
    new_caller = caller._replace(context=f"{caller.context}, after {context}")
    return out.reshape(len(rows), -1), new_spec, new_caller


def _checked_segment(
    detrend: CustomDetrend, segment: NDArray[Any], context: str, rows: NDArray[Any]
) -> NDArray[Any]:
    """Apply the function to one segment and return the result, checked for shape and
    dtype.
    """
    dtype = segment.dtype
    detrended = as_array(detrend(segment), context)
    if detrended.shape != segment.shape:
        rule = "the result must have the shape of the segment"
        problem = (
            f"it returned shape {list(detrended.shape)} for a segment of shape "
            f"{list(segment.shape)}"
        )
        raise ShapeError(context, problem, rule)
    if detrended.dtype.kind == "c" and dtype.kind != "c":
        problem = f"it returned {detrended.dtype} for samples of {dtype}"
        raise DTypeError(context, problem, "the result must be real for real samples")
    return detrended.reshape(rows.shape)
