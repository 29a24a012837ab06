"""Welch estimates by machine code: for which of them there is a kernel, and its job.

How rows are shared out is in `compiled_rows.py`, which kernels there are by now in
`welch_kernels.py`; how they are written is the business of `rlxweb.machine`.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_char, c_double, c_int64, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.spec import DIGITAL, WelchSpec
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.machine.wasm import IN_A_TAB
from rlxweb.recipes.welch_plan import centred_ramp

if TYPE_CHECKING:  # what writes kernels is loaded where there is one to be made
    from rlxweb.machine.estimate import Estimate
    from rlxweb.machine.library import Code
    from rlxweb.machine.segments import Sample, Trend
    from rlxweb.machine.text import Real

LONGEST: Final = 1 << 16
"""Transforms up to this length are compiled."""
_LEAST_K: Final = 16
_OF_DTYPE: Final[dict[str, tuple[Sample, Real]]] = {
    "float32": ("float", "float"),
    "float64": ("double", "double"),
    DIGITAL: ("int", "double"),
}
_ADDRESS, _COUNT = c_void_p, c_int64
_FRONT = (_ADDRESS, _ADDRESS, _COUNT, _COUNT, _COUNT, _ADDRESS, _ADDRESS)


class Wanted(NamedTuple):
    """What one kernel serves: estimates of any window, hop, scale and batch.

    k   bins that it can search for, at least
    """

    n: int
    sample: Sample
    trend: Trend
    answer: Real
    k: int


@lru_of_small(256, lambda spec, k: spec.nperseg <= SMALL)
def wanted(spec: WelchSpec, k: int) -> Wanted | str:
    """The kernel for an estimate and its k strongest bins, or why there is none."""
    if spec.is_complex:
        return "complex samples are computed by NumPy only"
    if spec.average != "mean":
        return f"average='{spec.average}' is computed by NumPy only"
    if not spec.one_sided:
        return "two-sided spectra are computed by NumPy only"
    if spec.nfft > LONGEST:
        return f"transforms of more than {LONGEST:,} are computed by NumPy only"
    kinds = _OF_DTYPE[spec.dtype]
    room = _LEAST_K
    while room < k:
        room *= 2
    trend: Trend = spec.detrend or "none"
    return Wanted(spec.nfft, kinds[0], trend, kinds[1], room)


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A compiled estimate; `Estimate` and `sums.py` say what its functions take.

    peaks   None where so many bins are better searched for by other means
    tables  what the functions look up: they hold on to nothing themselves
    answer  dtype of the powers
    """

    estimate: Estimate
    power: Callable[..., int]
    peaks: Callable[..., int] | None
    sums: Callable[..., None]
    fold: Callable[..., None]
    tables: tuple[NDArray[Any], NDArray[np.int32]]
    answer: np.dtype[Any]


class Job(NamedTuple):
    """What a kernel is told of an estimate: the numbers, and the arrays they lie in."""

    address: int
    scratch: int
    held: tuple[NDArray[Any], ...]


@lru_of_small(64, lambda kernel, spec, segments, k, size: spec.nfft <= SMALL)
def job_of(kernel: Kernel, spec: WelchSpec, segments: int, k: int, size: int) -> Job:
    """Of rows of so many segments of samples of `size` bytes; k bins are searched."""
    from rlxweb.machine.sums import ADDRESSES, JOB

    estimate = kernel.estimate
    weights = np.full(estimate.bins, 0.5 * spec.scale / segments)
    weights[1 : (spec.nfft + 1) // 2] *= 2.0
    ramp = centred_ramp(spec.nperseg)
    window = spec.window_array
    arrays = (window, weights, ramp, *kernel.tables)
    together = estimate.sums.together(segments)
    numbers = {
        "nperseg": spec.nperseg,
        "hop": spec.hop,
        "k": k,
        "together": together,
        "size": size,
    }
    fields = [address(one) for one in arrays]
    fields += [numbers[name] for name in JOB[ADDRESSES:]]
    told = np.array(fields, np.int64)
    return Job(address(told), estimate.scratch(segments), (told, *arrays))


def address(array: NDArray[Any]) -> int:
    """Where an array begins."""
    if IN_A_TAB:  # the other ways take five times as long there
        return array.ctypes.data
    if array.flags.writeable and array.flags.c_contiguous and array.size:
        # A third of the time that the other way takes, which one row would feel.
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    where: int = array.__array_interface__["data"][0]
    return where


def loaded(estimate: Estimate, code: Code) -> Kernel:
    """The kernel of an estimate's code. Errors  RuntimeError where it is another's."""
    outs = (_ADDRESS, _ADDRESS, _ADDRESS)
    peaks = None
    if estimate.registers:
        peaks = code.function("peaks", c_int64, *_FRONT, *outs, _ADDRESS)
    tables = estimate.tables.arrays("double")
    return Kernel(
        estimate,
        code.function("power", c_int64, *_FRONT, *outs),
        peaks,
        code.function("sums", None, *_FRONT[:6], *outs[:2]),
        code.function("fold", None, _ADDRESS, _ADDRESS, c_double, _ADDRESS),
        tables,
        np.dtype(np.float32 if estimate.answer == "float" else np.float64),
    )
