"""`spectrogram`: scipy.signal.spectrogram's signature and defaults, on any device."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlxweb.arguments import bound, one_of, switch
from rlxweb.choose.chooser import Asked
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.host.spectrum import frequencies
from rlxweb.signal.band import Reach, bins_between
from rlxweb.signal.in_range import into_range, mean_squares
from rlxweb.signal.labelled import takes_objects
from rlxweb.signal.own_detrend import detrended_by, own_detrend
from rlxweb.signal.rounding import RoundingFloor, rounding_shares
from rlxweb.signal.row_calls import Array, computed, ran_by
from rlxweb.signal.rows_given import rate, rows_given
from rlxweb.signal.scaled import Caller
from rlxweb.signal.segment_calls import SegmentCall, restored
from rlxweb.signal.segment_request import segment_spec
from rlxweb.signal.time_frequency import TimeFrequency

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.device import DeviceLike
    from rlxweb.digital import Digital
    from rlxweb.signal.own_detrend import OwnDetrend
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.scaled import NanPolicy
    from rlxweb.signal.windows import WindowLike

Mode = Literal["psd", "complex", "magnitude", "angle", "phase"]
MODES = ("psd", "complex", "magnitude", "angle", "phase")
DOING = "spectrogram"


@takes_objects("x")
def spectrogram(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = ("tukey", 0.25),
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | OwnDetrend | None = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    mode: Mode = "psd",
    *,
    fmin: float = 0.0,
    fmax: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> TimeFrequency:
    """Spectra of consecutive segments: how what is in a signal changes with time.

    A drop-in for scipy.signal.spectrogram: f, t, Sxx = spectrogram(x, fs) means the
    same.

    Shapes   x (…, T, …) with time on `axis` → f (F,), t (S,), values (…, F, S) with
             F in the place of time and S behind all
    Units    x in U, fs in Hz → f in Hz, t in s: the middles of the segments; values in
             U²/Hz ("density") or U² ("spectrum") in mode "psd", their roots else
    noverlap nperseg // 8 where it is left out
    mode     "psd": power; "complex": the spectra themselves; "magnitude"; "angle", in
             radians; "phase": that, unwrapped from bin to bin
    fmin, fmax, precision, strict   as `welch` has them
    nan      "raise", or "propagate": segments with NaN or infinity in them are NaN, and
             no others
    Numerics float32 in → float32 (complex64) out, on any engine; all else is float64 on
             the CPU, unless precision="f32" narrows it
    Errors   UsageError for arguments outside their domain; NotFinite; DTypeError,
             Unsupported, AdapterMissing when the device asked for cannot do it
    Source   Oppenheim & Schafer, Discrete-Time Signal Processing, 10.3; conventions of
             scipy.signal.spectrogram
    """
    return drive(_spectrogram(**locals()))


@takes_objects("x", like=spectrogram)
async def spectrogram_async(
    x: ArrayLike | Digital, fs: float = 1.0, *arguments: Any, **options: Any
) -> TimeFrequency:
    """`spectrogram` beside an event loop, which goes on meanwhile."""
    given = bound(spectrogram, "spectrogram_async", x, fs, *arguments, **options)
    return await awaited_here(lambda: _spectrogram(**given))


async def _spectrogram(
    x: ArrayLike | Digital,
    axis: int,
    mode: Mode,
    fmin: float,
    fmax: float | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
    **estimate: Any,
) -> TimeFrequency:
    begun = perf_counter()
    one_of("mode", mode, MODES, DOING)
    one_of("nan", nan, ("raise", "propagate"), DOING)
    strict = switch("strict", strict, DOING)
    fs = estimate["fs"] = rate(estimate["fs"], DOING)
    given = rows_given(x, axis, precision, DOING)
    if given is None:
        return TimeFrequency(np.empty(0), np.empty(0), np.empty(np.shape(x)))
    rows, batch, how = given.rows, given.batch, given.how
    own = own_detrend(estimate["detrend"])
    estimate["detrend"] = None if own is not None else estimate["detrend"]
    spec = segment_spec(DOING, rows.shape[1], how.kind, _an_eighth, **estimate)
    hz = frequencies(spec, fs)
    band = bins_between(hz, fmin, fmax, DOING, Reach.of_rate(fs))
    starts = spec.hop * np.arange(spec.segments_of(rows.shape[1]), dtype=np.float64)
    caller = Caller(DOING, batch)
    seen = into_range(rows, spec.dtype, caller, nan)
    energy = mean_squares(seen)
    if own is not None:
        rows, spec, caller = detrended_by(own, rows, spec, caller)
        seen = into_range(rows, spec.dtype, caller, nan)
    call = SegmentCall("power" if mode == "psd" else "spectra", spec)
    asked = Asked(device, adapter)
    out, pick = await computed(call, [seen.x], how, asked, DOING, strict)
    out = _in_mode(restored(out, call, [seen], caller), mode)
    if band is not None:
        hz, out = hz[band], out[..., band]
    floor = None
    if mode == "psd":
        loudest = float(energy.max(initial=0.0))
        floor = RoundingFloor.of(rounding_shares(spec), energy, loudest)
        floor = floor if band is None else floor.of_bins(band)
        floor = floor._replace(energy=energy.reshape(batch))
    # Segments behind all, bins where time was.
    values = given.back(np.swapaxes(out, 1, 2))
    return TimeFrequency.of(
        hz,
        (starts + spec.nperseg / 2) / fs,
        values,
        quantity=estimate["scaling"] if mode == "psd" else mode,
        axis=given.axis - len(batch) - 2,
        fs=fs,
        ran=ran_by(pick, begun),
        floor=floor,
    )


def _an_eighth(nperseg: int) -> int:
    return nperseg // 8


def _in_mode(spectra: Array, mode: Mode) -> Array:
    """Spectra (B, S, F) as they are asked for."""
    out: Array = spectra
    if mode == "magnitude":
        out = np.abs(spectra)
    elif mode in ("angle", "phase"):
        out = np.angle(spectra)
    return np.unwrap(out, axis=2) if mode == "phase" else out
