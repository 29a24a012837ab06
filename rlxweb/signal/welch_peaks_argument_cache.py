"""Cache of checked arguments of `welch_peaks`, for the next call with the very same
ones.

One short row is computed in less time than it takes to look twenty arguments over. A
call is the same when all of them are, to their types, and its array has the shape and
dtype of the one before; nothing is kept of the samples.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.select.chooser import PlaceRequest
from rlxweb.signal.bin_range import BinRange
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.welch_candidates import WelchJob

MAX_CALLS: Final = 256
_MAX_SAMPLES: Final = 1 << 16
"""Maximum number of samples in a row of a cached call, so that an entry stays small."""


class CachedCall(NamedTuple):
    """Checked arguments of a call: the job, the device request, and how the answer is
    assembled.

    k, band   peaks that are wanted, and where; None: anywhere
    spectrum  the power is kept as well
    """

    job: WelchJob
    request: PlaceRequest
    caller: RowErrorContext
    hz: NDArray[np.float64]
    fs: float
    prominence: float | None
    strict: bool
    nan: Any
    k: int
    band: BinRange | None = None
    spectrum: bool = False


_cached_calls: dict[Any, CachedCall] = {}


def call_key(x: object, arguments: tuple[object, ...]) -> Any:
    """Return the cache key of a call; None for a call that is not cached."""
    if type(x) is not np.ndarray or x.ndim not in (1, 2) or x.shape[-1] > _MAX_SAMPLES:
        return None
    argument_types = tuple(map(type, arguments))
    if np.ndarray in argument_types:  # samples of a window
        arguments = tuple(map(_hashable_argument, arguments))
    key = x.shape, x.dtype, arguments, argument_types
    try:
        hash(key)
    except TypeError:  # a list of them
        return None
    return key


def _hashable_argument(argument: object) -> object:
    """Return an argument in hashable form; of an array its type, shape and bytes."""
    if type(argument) is not np.ndarray or argument.size > _MAX_SAMPLES:
        return argument
    return argument.dtype, argument.shape, argument.tobytes()


def find_call(key: Any) -> CachedCall | None:
    """Return the cached call of a key; None if there is none."""
    return None if key is None else _cached_calls.get(key)


def store_call(key: Any, call: CachedCall) -> None:
    """Store a call for the next time."""
    if key is None or call.job.key is None:
        return
    if len(_cached_calls) >= MAX_CALLS:
        _cached_calls.clear()
    _cached_calls[key] = call
