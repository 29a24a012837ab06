"""Cache of calls of `welch_peaks`: checked arguments, and how the last one was run.

One short row is computed in less time than it takes to look twenty arguments over and
to choose a device. A call is the same when all arguments are, to their types, and its
array has the shape and dtype of the one before; nothing is kept of the samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.select.chooser import DevicePick, PlaceRequest, choose_reusable
from rlxweb.select.device_pick_cache import CachedPick
from rlxweb.signal.compiled_welch_single_pass import (
    SinglePassKernel,
    single_pass_kernel,
)
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.spectrum_peaks import PeakSearch
from rlxweb.signal.welch_candidates import WelchJob, resolve_pick
from rlxweb.signal.welch_engine import WelchEngine

MAX_CALLS: Final = 256
_MAX_SAMPLES: Final = 1 << 16
"""Maximum number of samples in a row of a cached call, so that an entry stays small."""


class CallPlan(NamedTuple):
    """Pick of a call with what runs it.

    job          the call's job as the picked candidate computes it
    single_pass  compiled kernel that also checks the rows; None where there is none, or
                 none was looked for
    """

    pick: DevicePick[WelchJob]
    job: WelchJob
    engine: WelchEngine
    single_pass: SinglePassKernel | None = None

    @classmethod
    def from_pick(cls, pick: DevicePick[WelchJob]) -> CallPlan:
        """Return the plan of a pick."""
        return cls(pick, *resolve_pick(pick))


@dataclass(slots=True, eq=False)
class CheckedCall:
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
    _last: tuple[CachedPick, int, CallPlan] | None = None

    def plan(self) -> CallPlan:
        """Return the plan of the last call if it is still good, else a new one."""
        if self._last is not None:
            entry, kernel_count, plan = self._last
            is_current = kernel_count == welch_kernels.change_count
            if is_current and entry.is_current() and entry.use():
                return plan
        kernel_count = welch_kernels.change_count
        entry = choose_reusable(self.job, self.request)
        plan = CallPlan(
            entry.pick, *resolve_pick(entry.pick), single_pass_kernel(entry.pick)
        )
        self._last = entry, kernel_count, plan
        return plan


_calls: dict[Any, CheckedCall] = {}


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


def find_call(key: Any) -> CheckedCall | None:
    """Return the cached call of a key; None if there is none."""
    return None if key is None else _calls.get(key)


def store_call(key: Any, call: CheckedCall) -> None:
    """Store a call for the next time."""
    if key is None or call.job.key is None:
        return
    if len(_calls) >= MAX_CALLS:
        _calls.clear()
    _calls[key] = call
