"""A detrend of the caller's own: applied to each segment before anybody computes.

The segments it gives back become rows without overlap, so that any engine takes the
estimate from there. They take about twice the memory where segments overlap by half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import DTypeError, ShapeError
from rlxweb.given import array_of
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frames
from rlxweb.signal.scaled import Caller

OwnDetrend = Callable[[NDArray[Any]], Any]


def own_detrend(detrend: Any) -> OwnDetrend | None:
    """The argument, where it is a function; a class is none."""
    is_own = callable(detrend) and not isinstance(detrend, type)
    return detrend if is_own else None


def detrended_by(
    own: OwnDetrend,
    rows: NDArray[Any],
    spec: WelchSpec,
    caller: Caller,
) -> tuple[NDArray[Any], WelchSpec, Caller]:
    """Rows [B, S * nperseg] of detrended segments, their estimate, and who asks for it.

    own      segment (*batch, nperseg), time last, of the spec's dtype → the same shape;
             called once per segment, as SciPy does
    spec     of rows [B, T], with nothing removed
    Errors   ShapeError, DTypeError for what the function gives back.
    """
    n_segments, doing = spec.segments_of(rows.shape[1]), "the detrend function"
    cut = frames(rows, spec.nperseg, spec.hop, n_segments)
    out = np.empty((len(rows), n_segments, spec.nperseg), spec.dtype)
    for at in range(n_segments):
        # A copy: the function may work in place, on samples that segments share.
        segment = cut[:, at].astype(spec.dtype, order="C")
        out[:, at] = _checked(own, segment.reshape(*caller.batch, -1), doing, segment)
    whole = replace(spec, hop=spec.nperseg, n_segments=n_segments)
    after = caller._replace(doing=f"{caller.doing}, after {doing}")
    return out.reshape(len(rows), -1), whole, after


def _checked(
    own: OwnDetrend, segment: NDArray[Any], doing: str, rows: NDArray[Any]
) -> NDArray[Any]:
    dtype = segment.dtype
    found = array_of(own(segment), doing)
    if found.shape != segment.shape:
        rule = "the shape must stay as it is"
        said = f"it made {list(found.shape)} of {list(segment.shape)}"
        raise ShapeError(doing, said, rule)
    if found.dtype.kind == "c" and dtype.kind != "c":
        said = f"it made {found.dtype} of {dtype}"
        raise DTypeError(doing, said, "real samples must stay real")
    return found.reshape(rows.shape)
