"""What a Welch call will give, told by its arguments, the samples' shape and dtype.

For who must know the shape of an answer before there are samples. The rules are those
of the calls themselves; nothing is computed and no device is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rlxweb.arguments import number, one_of, switch
from rlxweb.device import is_open, parse_device
from rlxweb.digital import is_digital
from rlxweb.errors import UsageError
from rlxweb.host.spectrum import frequencies
from rlxweb.signal import welch, welch_peaks
from rlxweb.signal.band import Reach, bins_between
from rlxweb.signal.learned.file import model_for
from rlxweb.signal.learned.strategy import NAME as LEARNED
from rlxweb.signal.own_detrend import own_detrend
from rlxweb.signal.peaks_asked import checked_band, checked_error
from rlxweb.signal.peaks_of_power import check_prominence
from rlxweb.signal.precision import PRECISIONS, Taken, taken

Given = dict[str, Any]
"""The arguments of a call by name, but for the samples."""


@dataclass(frozen=True, slots=True)
class DeclaredPeaks:
    """What `welch_peaks` gives for every row."""

    k: int
    mode: str
    fs: float
    power: np.dtype[Any]


@dataclass(frozen=True, slots=True, eq=False)
class DeclaredPower:
    """What `welch` gives: the frequencies, and the dtype of the power at them.

    nperseg  as it is computed: that of a short signal is shortened
    """

    hz: NDArray[np.float64]
    power: np.dtype[Any]
    nperseg: int


def declared_peaks(
    shape: tuple[int, ...], dtype: DTypeLike, axis: int, given: Given
) -> DeclaredPeaks:
    """Of samples of that shape, time on `axis`, which is 0 … rank - 1.

    Errors   UsageError, DTypeError: those of `welch_peaks` that need no samples.
    """
    doing = welch_peaks.DOING
    wanted, how = _checked(shape, dtype, axis, given, doing)
    batch = _without(shape, axis)
    if not prod(batch):
        raise UsageError(doing, f"the batch {list(batch)} has no rows", "rows >= 1")
    prominence = wanted.pop("prominence")
    fmin, fmax = wanted.pop("fmin"), wanted.pop("fmax")
    checked_error(wanted.pop("max_error"))
    model = wanted.pop("model")
    job = welch_peaks.job_of((prod(batch), shape[axis]), how, **wanted)
    hz = frequencies(job.spec, wanted["fs"])
    band = checked_band(hz, wanted["fs"], fmin, fmax, job.k)
    if model is not None or job.strategy == LEARNED:
        near = None if band is None else band.beside(len(hz), job.mode)
        model_for(model, replace(job, band=near), wanted["fs"])
    check_prominence(prominence, job.mode, doing)
    return DeclaredPeaks(job.k, job.mode, wanted["fs"], job.spec.power_dtype)


def declared_power(
    shape: tuple[int, ...], dtype: DTypeLike, axis: int, given: Given
) -> DeclaredPower:
    """The same for `welch`."""
    wanted, how = _checked(shape, dtype, axis, given, welch.DOING)
    fmin, fmax = wanted.pop("fmin"), wanted.pop("fmax")
    is_own = own_detrend(given["detrend"]) is not None
    spec = welch.spec_of(shape[axis], how.kind, is_own, **wanted)
    hz = frequencies(spec, wanted["fs"])
    band = bins_between(hz, fmin, fmax, welch.DOING, Reach.of_rate(wanted["fs"]))
    kept = hz if band is None else hz[band]
    return DeclaredPower(kept, spec.power_dtype, spec.nperseg)


def _checked(
    shape: tuple[int, ...], dtype: DTypeLike, axis: int, given: Given, doing: str
) -> tuple[Given, Taken]:
    """The arguments of the estimate, and how the samples are taken."""
    wanted = dict(given)
    own = own_detrend(wanted["detrend"])
    kind = np.dtype(dtype)
    if own is not None:
        kind = np.dtype(np.float64) if is_digital(kind) else kind
        wanted["detrend"] = None if doing == welch_peaks.DOING else wanted["detrend"]
    if (precision := wanted.pop("precision")) is not None:
        one_of("precision", precision, PRECISIONS, doing)
    device = wanted.pop("device")
    if device is not None and not is_open(device):
        parse_device(device)
    switch("strict", wanted.pop("strict"), doing)
    one_of("nan", wanted.pop("nan"), ("raise", "propagate"), doing)
    del wanted["adapter"]
    if wanted.pop("spectrum", False):
        said, rule = "spectrum=True was given", "chunks keep no spectra"
        raise UsageError(doing, said, rule, "ask for them: rlxweb.dask.welch")
    how = taken(kind, precision, doing)
    if not shape[axis]:
        raise UsageError(
            doing, "the signal has no samples", f"shape {shape}", "give T >= 1"
        )
    wanted["fs"] = number("fs", wanted["fs"], doing)
    return wanted, how


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
