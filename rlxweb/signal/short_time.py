"""`stft`: what scipy.signal.ShortTimeFFT computes, on any device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import bound, one_of, switch, whole
from rlxweb.choose.chooser import Asked
from rlxweb.errors import UsageError
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frequencies
from rlxweb.signal.in_range import into_range
from rlxweb.signal.labelled import takes_objects
from rlxweb.signal.row_calls import Array, computed, ran_by
from rlxweb.signal.rows_given import rate, rows_given
from rlxweb.signal.scaled import Caller
from rlxweb.signal.segment_calls import SegmentCall, restored
from rlxweb.signal.segment_request import half, segment_spec
from rlxweb.signal.time_frequency import TimeFrequency

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.device import DeviceLike
    from rlxweb.digital import Digital
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.scaled import NanPolicy
    from rlxweb.signal.windows import WindowLike

Padding = Literal["zeros", "edge", "even", "odd"]
Scaling = Literal["magnitude", "psd"]

_PADDINGS: Final[dict[str, dict[str, Any]]] = {
    "zeros": {"mode": "constant"},
    "edge": {"mode": "edge"},
    "even": {"mode": "reflect", "reflect_type": "even"},
    "odd": {"mode": "reflect", "reflect_type": "odd"},
}
_SCALINGS: Final = {None: "none", "magnitude": "spectrum", "psd": "density"}


@dataclass(frozen=True, slots=True)
class Slices:
    """Where the segments of a signal lie: slice p is centred on sample p · hop.

    n, hop   samples of a segment, and from one to the next
    zeros    samples at the begin of the window that are 0
    """

    n: int
    hop: int
    zeros: int

    @classmethod
    def of(cls, spec: WelchSpec) -> Slices:
        """Those of an estimate."""
        used = np.flatnonzero(spec.window_array)
        return cls(spec.nperseg, spec.hop, int(used[0]) if used.size else 0)

    @property
    def first(self) -> int:
        """The first slice that reaches into the signal."""
        return -((self.n - 1 - self.n // 2) // self.hop)

    def stop(self, n_samples: int) -> int:
        """One past the last slice with a sample of so many under its window.

        The slice whose middle is the end of the signal is there in any case.
        """
        last = (n_samples - 1 - self.zeros + self.n // 2) // self.hop
        return max(last, n_samples // self.hop) + 1

    @property
    def ahead(self) -> int:
        """Samples that the first slice begins before the signal."""
        return self.n // 2 - self.first * self.hop


@takes_objects("x")
def stft(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = "hann",
    nperseg: int | None = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    *,
    detrend: str | bool | None = False,
    return_onesided: bool = True,
    scaling: Scaling | None = None,
    phase_shift: int | None = 0,
    padding: Padding = "zeros",
    axis: int = -1,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> TimeFrequency:
    """Short-time Fourier transform, as scipy.signal.ShortTimeFFT defines it.

    Segment p is centred on sample p · (nperseg - noverlap), and all segments are there
    that have a sample of the signal under their window, so `istft` gives it back whole.

    Shapes   x (…, T, …) with time on `axis` → f (F,), t (S,), values (…, F, S) with F
             in the place of time and S behind all
    Units    x in U, fs in Hz → f in Hz, t in s, values in U ("magnitude"), U/√Hz
             ("psd"), or U times samples
    noverlap nperseg // 2 where it is left out
    scaling  None: sums as they are; "magnitude": a sine of amplitude a is a/2 high;
             "psd": |values|² is the two-sided power density
    phase_shift  phases are relative to the middle of a segment and so many samples;
             None: to its first sample
    padding  what lies beyond the ends: "zeros", "edge", "even" or "odd"
    fs, window, nan, precision, strict, Numerics, Errors   as `spectrogram`
    Source   Gröchenig, Foundations of Time-Frequency Analysis;
             scipy.signal.ShortTimeFFT, of which this is win=window,
             hop=nperseg - noverlap, mfft=nfft, scale_to=scaling, and its .stft_detrend
    """
    return drive(_stft(**locals()))


@takes_objects("x", like=stft)
async def stft_async(
    x: ArrayLike | Digital, fs: float = 1.0, *arguments: Any, **options: Any
) -> TimeFrequency:
    """`stft` beside an event loop, which goes on meanwhile."""
    given = bound(stft, "stft_async", x, fs, *arguments, **options)
    return await awaited_here(lambda: _stft(**given))


async def _stft(
    x: ArrayLike | Digital,
    axis: int,
    padding: Padding,
    phase_shift: int | None,
    scaling: Scaling | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
    **estimate: Any,
) -> TimeFrequency:
    doing, begun = "stft", perf_counter()
    one_of("padding", padding, _PADDINGS, doing)
    one_of("nan", nan, ("raise", "propagate"), doing)
    strict = switch("strict", strict, doing)
    fs = estimate["fs"] = rate(estimate["fs"], doing)
    given = rows_given(x, axis, precision, doing)
    if given is None:
        return TimeFrequency(np.empty(0), np.empty(0), np.empty(np.shape(x)))
    how, n_samples = given.how, given.rows.shape[1]
    plan = plan_of(doing, how.kind, scaling, estimate)
    slices = Slices.of(plan)
    least = -(-plan.nperseg // 2)
    if n_samples < least:
        raise UsageError(
            doing,
            f"the signal has {n_samples} samples",
            f"half a segment of {plan.nperseg} has {least}",
            Advice("give a longer signal or a smaller {}", nperseg=Blank("N")),
        )
    stop = slices.stop(n_samples)
    padded = _padded(given.rows, slices, stop, padding)
    spec = replace(plan, n_segments=stop - slices.first)
    caller = Caller(doing, given.batch, -slices.ahead)
    call = SegmentCall("spectra", spec, shift_of(phase_shift, spec, doing))
    seen = into_range(padded, spec.dtype, caller, nan)
    asked = Asked(device, adapter)
    out, pick = await computed(call, [seen.x], how, asked, doing, strict)
    out = restored(out, call, [seen], caller)
    times = np.arange(slices.first, stop) * spec.hop / fs
    values = given.back(np.swapaxes(out, 1, 2))
    return TimeFrequency.of(
        frequencies(spec, fs),
        times,
        values,
        quantity="complex",
        axis=given.axis - len(given.batch) - 2,
        fs=fs,
        ran=ran_by(pick, begun),
    )


def plan_of(
    doing: str, kind: str, scaling: Scaling | None, estimate: dict[str, Any]
) -> WelchSpec:
    """The estimate of one segment, whatever the length of the signal."""
    if scaling is not None:
        one_of("scaling", scaling, ("magnitude", "psd"), doing)
    asked = {**estimate, "scaling": _SCALINGS[scaling]}
    return segment_spec(doing, None, kind, half, **asked)


def shift_of(phase_shift: int | None, spec: WelchSpec, doing: str) -> int:
    """The sample of a padded segment where phases are zero."""
    if phase_shift is None:
        return 0
    own, n = whole("phase_shift", phase_shift, doing), spec.nperseg
    if not -n < own < n:
        rule = f"it lies within a segment of {n} samples"
        raise UsageError(doing, f"phase_shift is {own}", rule)
    return (own + n // 2) % n


def _padded(x: Array, slices: Slices, stop: int, padding: Padding) -> Array:
    """The rows from the begin of the first slice to the end of the last."""
    ahead = slices.ahead
    behind = (stop - 1 - slices.first) * slices.hop + slices.n - ahead - x.shape[1]
    own = x if behind >= 0 else x[:, :behind]
    return np.pad(own, ((0, 0), (ahead, max(0, behind))), **_PADDINGS[padding])
