"""What the arguments of a call came to, for the next call with the very same ones.

One short row is computed in less time than it takes to look twenty arguments over. A
call is the same when all of them are, to their types, and its array has the shape and
dtype of the one before; nothing is kept of the samples.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.choose.chooser import Asked
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.scaled import Caller

MOST: Final = 256
_SMALL: Final = 1 << 16
"""Samples of a row up to which what is kept weighs little."""


class KnownCall(NamedTuple):
    """Checked arguments: the job, who is asked, and how its answer is put together.

    k, band   peaks that are wanted, and where; None: anywhere
    spectrum  the power is kept as well
    """

    job: WelchJob
    asked: Asked
    caller: Caller
    hz: NDArray[np.float64]
    fs: float
    prominence: float | None
    strict: bool
    nan: Any
    k: int
    band: Band | None = None
    spectrum: bool = False


_known: dict[Any, KnownCall] = {}


def key_of(x: object, given: tuple[object, ...]) -> Any:
    """What tells calls apart; None for those that are not kept."""
    if type(x) is not np.ndarray or x.ndim not in (1, 2) or x.shape[-1] > _SMALL:
        return None
    kinds = tuple(map(type, given))
    if np.ndarray in kinds:  # samples of a window
        given = tuple(map(_held, given))
    key = x.shape, x.dtype, given, kinds
    try:
        hash(key)
    except TypeError:  # a list of them
        return None
    return key


def _held(one: object) -> object:
    """An array as it is now, its type and its bytes."""
    if type(one) is not np.ndarray or one.size > _SMALL:
        return one
    return one.dtype, one.shape, one.tobytes()


def known_call(key: Any) -> KnownCall | None:
    """The call, if it was made before."""
    return None if key is None else _known.get(key)


def keep_call(key: Any, call: KnownCall) -> None:
    """For the next time."""
    if key is None or call.job.key is None:
        return
    if len(_known) >= MOST:
        _known.clear()
    _known[key] = call
