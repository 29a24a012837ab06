"""How far a spectrum that was computed in a shorter way is from the exact one.

One measure, for what is planned, what is learned and what is checked while it runs: the
root mean square over all bins and rows of each bin's relative error. Bins a million
times weaker than their row's strongest are measured by that.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice
from rlxweb.digital import Digital
from rlxweb.errors import Inexact
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.signal.band_peaks import Band

SEGMENTS: Final = 4
"""That a row is checked by, from its middle on."""
ROWS: Final = 64
"""One of so many is checked."""
_FLOOR: Final = 1e-6

Way = Callable[[Any, WelchSpec], Awaitable[NDArray[Any]]]


def spectrum_error(found: NDArray[Any], right: NDArray[Any]) -> float:
    """Of power (B, F) against the exact one; 0 where there is none."""
    if not right.size:
        return 0.0
    right = right.astype(np.float64, copy=False)
    floor = _FLOOR * right.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        off = (found - right) / (right + floor)
    if not floor.all():  # a silent row: right where it is 0 too
        off[found == right] = 0.0
    return math.sqrt(float(np.vdot(off, off)) / off.size)


def checked_rows(n_rows: int) -> int:
    """How many of the rows are checked."""
    return -(-n_rows // ROWS)


async def check(
    x: Any,
    spec: WelchSpec,
    band: Band,
    limit: float,
    by: Way,
    exact: Way | None = None,
) -> float:
    """The error of a few segments of a few rows against the exact answer.

    by      computes the power of the band (B, F) of rows for a spec, in the short way
    exact   in the long way; NumPy where it is not given
    Errors  Inexact where it is over the limit.
    """
    count = min(SEGMENTS, spec.segments_of(x.shape[1]))
    first = (spec.segments_of(x.shape[1]) - count) // 2 * spec.hop
    stop = first + spec.nperseg + (count - 1) * spec.hop
    some = _cut(x, slice(None, None, ROWS), slice(first, stop))
    own = replace(spec, n_segments=count)
    if exact is None:
        samples = some.physical() if isinstance(some, Digital) else some
        right = welch_power(samples, own)[:, band.bins]
    else:
        right = await exact(some, own)
    found = await by(some, own)
    finite = np.isfinite(right).all(axis=1)
    if not finite.all():
        found, right = found[finite], right[finite]
    error = spectrum_error(found, right)
    if error > limit:
        raise Inexact(
            "welch_peaks",
            f"the power of the band would be wrong by {error:.2g}, relative",
            f"{limit:.2g} is allowed; rows that were compared with the exact answer:"
            f" {int(finite.sum())}",
            Advice("allow more, or ask for {}", strategy="fast"),
        )
    return error


def _cut(x: Any, rows: slice, samples: slice) -> Any:
    if isinstance(x, Digital):
        some = x.rows(rows)
        return Digital(some.counts[:, samples], some.gain, some.offset)
    return x[rows, samples]
