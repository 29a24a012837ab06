"""`welch`: scipy.signal.welch's signature and defaults, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlxweb.devices.device import DeviceLike
from rlxweb.signal.choose import choose_engine
from rlxweb.signal.engine import WelchJob
from rlxweb.signal.resolve import resolve
from rlxweb.signal.samples import NanPolicy, Precision, as_rows, refuse_nonfinite
from rlxweb.signal.spectrum import frequencies
from rlxweb.signal.windows import WindowLike

DOING = "welch"


def welch(
    x: ArrayLike,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | None = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
    *,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Power spectral density by Welch's method: mean over overlapping segments.

    Shapes   x (…, T, …) with time on `axis` → freqs (F,), power with F in its place
    Units    x in U, fs in Hz → freqs in Hz, power in U²/Hz ("density") or U²
    Numerics float32 in → float32 out; all else in float64 on the CPU, unless
             precision="f32"; a device is never asked to narrow silently
    Errors   UsageError for arguments outside their domain (an explicit nperseg longer
             than the signal is refused, where scipy warns and shrinks it);
             NotFinite for NaN or infinity unless nan="propagate"; DTypeError,
             Unsupported, AdapterMissing when the asked device cannot do it
    Source   Welch 1967; conventions of scipy.signal.welch
    """
    rows, batch = as_rows(x, axis, precision, DOING)
    spec = resolve(
        rows.shape[1],
        fs=fs,
        window=window,
        nperseg=nperseg,
        noverlap=noverlap,
        nfft=nfft,
        detrend=detrend,
        return_onesided=return_onesided,
        scaling=scaling,
        average=average,
        dtype=rows.dtype,
    )
    refuse_nonfinite(rows, batch, nan, DOING)
    job = WelchJob(spec, rows.shape[0], rows.shape[1], 0)
    pick = choose_engine(job, device, adapter)
    power = pick.engine.power(rows, spec).reshape(*batch, spec.n_freqs)
    if axis not in (-1, power.ndim - 1):
        power = np.moveaxis(power, -1, axis)
    return frequencies(spec, fs), power
