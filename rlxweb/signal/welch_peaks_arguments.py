"""Arguments of `welch_peaks`: their checks, and a cache of calls that were checked."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_float, coerce_integer
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.select.chooser import PlaceRequest
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.spectrum_peaks import PeakSearch, check_mode
from rlxweb.signal.welch_candidates import WelchJob

# --- Validation of the numeric arguments of `welch_peaks`

CONTEXT = "welch_peaks"


def validate_band(
    hz: NDArray[np.float64], fs: float, fmin: float, fmax: float | None, k: int
) -> BinRange | None:
    """Return the band of bins that is searched; None for all bins. Raises
    UsageError.
    """
    band = BinRange.from_frequencies(hz, fs, fmin, fmax, CONTEXT)
    if len(band) == len(hz):
        return None
    if k > len(band):
        raise UsageError(
            CONTEXT,
            f"k is {k}",
            f"must be 1 to {len(band)}, the number of bins in the band",
            Advice("request fewer peaks, or use a larger {}", nperseg=Blank("N")),
        )
    return band


def validate_k(k: int, n_freqs: int, mode: str) -> int:
    """Return k as an int within its domain. Raises UsageError with both numbers."""
    check_mode(CONTEXT, mode)
    hint = Advice("request fewer peaks, or use a larger {}", nperseg=Blank("N"))
    return _validate_count("k", k, n_freqs, "the number of bins", hint)


def validate_min_segments(min_segments: int | None, segments: int) -> int | None:
    """Return min_segments as an int within its domain, or None.

    Errors   UsageError with both numbers.
    """
    if min_segments is None:
        return None
    return _validate_count(
        "min_segments", min_segments, segments, "the number of averaged segments"
    )


def validate_max_error(max_error: float | None) -> float:
    """Return max_error as a number; 0 if no error is allowed. Raises UsageError."""
    if max_error is None:
        return 0.0
    value = coerce_float("max_error", max_error, CONTEXT)
    if not 0 < value < 1:
        rule = "must be a fraction of the power, above 0 and below 1"
        raise UsageError(
            CONTEXT, f"max_error is {value}", rule, "pass 1e-3 for one part in 1,000"
        )
    return value


def _validate_count(
    name: str, value: int, max_count: int, limit_name: str, hint: str = ""
) -> int:
    """Return a count as an int from 1 to max_count. Raises UsageError."""
    count = coerce_integer(name, value, CONTEXT)
    if not 1 <= count <= max_count:
        rule = f"must be 1 to {max_count}, {limit_name}"
        raise UsageError(CONTEXT, f"{name} is {count}", rule, hint)
    return count


# --- Cache of checked arguments of `welch_peaks`, for the next call with the very
# same ones
#
# One short row is computed in less time than it takes to look twenty arguments over.
# A call is the same when all of them are, to their types, and its array has the shape
# and dtype of the one before; nothing is kept of the samples.

MAX_CALLS: Final = 256
_MAX_SAMPLES: Final = 1 << 16
"""Maximum number of samples in a row of a cached call, so that an entry stays small."""


class CachedCall(NamedTuple):
    """Checked arguments of a call: the job, the device request, and how the answer is
    assembled.

    search    peaks that are wanted
    band      bins among which they are searched; None: all
    spectrum  the power is kept as well
    """

    job: WelchJob
    request: PlaceRequest
    caller: RowErrorContext
    hz: NDArray[np.float64]
    fs: float
    search: PeakSearch
    strict: bool
    nan: Any
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
