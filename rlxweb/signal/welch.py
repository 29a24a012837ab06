"""`welch`: scipy.signal.welch's signature and defaults, on any device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlxweb.device import DeviceLike
from rlxweb.host.spectrum import frequencies
from rlxweb.signal.choose import choose_engine, choose_engine_async
from rlxweb.signal.engine import WelchJob
from rlxweb.signal.resolve import resolve
from rlxweb.signal.samples import NanPolicy, Precision, as_rows, refuse_nonfinite
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
    asked = _asked(
        x,
        fs,
        window,
        nperseg,
        noverlap,
        nfft,
        detrend,
        return_onesided,
        scaling,
        axis,
        average,
        precision=precision,
        nan=nan,
    )
    pick = choose_engine(asked.job, device, adapter)
    return asked.result(pick.engine.power(asked.rows, asked.job.spec))


async def welch_async(
    x: ArrayLike,
    fs: float = 1.0,
    *arguments: Any,
    device: DeviceLike | None = None,
    adapter: str = "",
    **options: Any,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """`welch` where the GPU must be awaited: a browser without JSPI.

    Takes the same arguments and gives the same result, and the same errors.
    """
    asked = _asked(x, fs, *arguments, **options)
    pick = await choose_engine_async(asked.job, device, adapter)
    return asked.result(await pick.engine.power_async(asked.rows, asked.job.spec))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call whose arguments were checked: rows [B, T] and the job they make."""

    rows: NDArray[Any]
    batch: tuple[int, ...]
    fs: float
    axis: int
    job: WelchJob

    def result(self, power: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Frequencies, and power [B, F] in the shape of the call."""
        spec = self.job.spec
        shaped = power.reshape(*self.batch, spec.n_freqs)
        if self.axis not in (-1, shaped.ndim - 1):
            shaped = np.moveaxis(shaped, -1, self.axis)
        return frequencies(spec, self.fs), shaped


def _asked(
    x: ArrayLike,
    fs: float,
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
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
) -> _Asked:
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
    return _Asked(rows, batch, fs, axis, job)
