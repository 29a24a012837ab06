"""`welch`: scipy.signal.welch's signature and defaults, on any device."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlxweb.arguments import bound, number, one_of, switch
from rlxweb.choose.again import LOST
from rlxweb.choose.chooser import Asked, choose, choose_async
from rlxweb.gpu.beside import beside
from rlxweb.gpu.drive import drive, in_a_tab
from rlxweb.host.spectrum import frequencies
from rlxweb.results.ran import Ran, Stage
from rlxweb.signal.band import Reach, bins_between
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.labelled import takes_objects
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.own_detrend import detrended_by, own_detrend
from rlxweb.signal.picked import run_pick
from rlxweb.signal.request import OF_PRESET, PRESETS, WelchRequest
from rlxweb.signal.rows_there import RowsThere, asked_at, gone
from rlxweb.signal.samples import as_array, as_rows, checked_axis, physical
from rlxweb.signal.scaled import Caller, ReadyRows, looked_at, ready_rows
from rlxweb.signal.segment_request import fitted_nperseg
from rlxweb.signal.spectrum import Spectrum

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from numpy.typing import ArrayLike, NDArray

    from rlxweb.choose.chooser import Pick
    from rlxweb.device import DeviceLike
    from rlxweb.digital import Digital
    from rlxweb.host.spec import WelchSpec
    from rlxweb.signal.engine import Engine, Rows
    from rlxweb.signal.own_detrend import OwnDetrend
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.scaled import NanPolicy
    from rlxweb.signal.windows import WindowLike

    Done = tuple[Spectrum, Pick[WelchJob]]
    Run = Callable[[Pick[WelchJob]], Coroutine[Any, Any, Done]]

DOING = "welch"


class _Default(str):
    """SciPy's default, told from the same name given by the caller."""

    __slots__ = ()


_HANN: Final = _Default("hann")
_CONSTANT: Final = _Default("constant")
_DENSITY: Final = _Default("density")
_LEFT_TO_PRESET: Final = (("window", None), ("detrend", OF_PRESET), ("scaling", None))


@takes_objects("x")
def welch(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = _HANN,
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | OwnDetrend | None = _CONSTANT,
    return_onesided: bool = True,
    scaling: str = _DENSITY,
    axis: int = -1,
    average: str = "mean",
    *,
    preset: str = "scipy",
    fmin: float = 0.0,
    fmax: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> Spectrum:
    """Power spectral density by Welch's method: mean over overlapping segments.

    A drop-in for scipy.signal.welch: what that takes is taken here, and means the same.
    An nperseg longer than the signal is shortened with a UserWarning; an empty array
    gives empty arrays.

    Shapes   x (…, T, …) with time on `axis` → freqs (F,), power with F in its place
    Units    x in U, fs in Hz → freqs in Hz, power in U²/Hz ("density") or U²
    x        an array, or a DeviceArray (float32, time last): it runs where that lies
    detrend  a name, False, or a function: segment (…, nperseg), time last → the same
             shape, called once per segment
    preset   "scipy", "mne" or "rlx", as `welch_peaks` has them: window, noverlap,
             detrend and scaling where they are left out
    fmin, fmax  only the frequencies fmin ≤ |f| ≤ fmax, in Hz; None: no end. An fmax
             beyond fs / 2 is refused
    nan      "raise", or "propagate": a row with NaN or infinity in its segments is NaN
             throughout, on every device
    Numerics float32 in → float32 out, on any engine; integers of at most 24 bits (int8
             to uint16, or a `Digital` of counts with gain and offset) are exact on any
             engine and give float64 (SciPy rounds them to float32); all else is
             float64 on the CPU, unless precision="f32" narrows it. precision="f64" asks
             for float64 throughout.
             Samples whose squares leave the range of their type are computed in a
             scaled range
    strict   True: a run that is lost with its device raises; else it is done again
             there or on the next device, unless one was asked for
    Errors   UsageError for arguments outside their domain (stricter than SciPy: a
             negative noverlap, True or 2.5 for a whole number, a window that is not
             finite), and where the power's type cannot hold the answer; NotFinite for
             NaN or infinity unless nan="propagate"; DTypeError, Unsupported,
             AdapterMissing when the asked device cannot do it
    Source   Welch 1967; conventions of scipy.signal.welch
    """
    given = dict(locals(), x=as_array(x, DOING))
    if 0 in given["x"].shape:
        return nothing(given["x"].shape)
    job, asked, run = _called(**given)
    return drive(run(choose(job, asked)))[0]


def welch_and_pick(x: ArrayLike, **given: Any) -> Done:
    """`welch` of an array with samples, by all its arguments; and who did it."""
    job, asked, run = _called(as_array(x, DOING), **given)
    return drive(run(choose(job, asked)))


@takes_objects("x", like=welch)
async def welch_async(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    *arguments: Any,
    device: DeviceLike | None = None,
    adapter: str = "",
    **options: Any,
) -> Spectrum:
    """`welch` beside an event loop, which goes on meanwhile.

    On a desktop it runs on a thread and can be cancelled; in a browser tab the GPU is
    awaited. Takes the same arguments and gives the same result, and the same errors.
    """
    options |= {"device": device, "adapter": adapter}
    given = bound(welch, "welch_async", x, fs, *arguments, **options)
    if not in_a_tab():
        return await beside(lambda: welch(**given))
    given["x"] = as_array(x, DOING)
    if 0 in given["x"].shape:
        return nothing(given["x"].shape)
    job, asked, run = _called(**given)
    return (await run(await choose_async(job, asked)))[0]


def nothing(shape: tuple[int, ...]) -> Spectrum:
    """SciPy's answer to an empty array."""
    return Spectrum(np.empty(shape), np.empty(shape))


def _called(
    x: Rows,
    axis: int,
    fmin: float,
    fmax: float | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
    **estimate: Any,
) -> tuple[WelchJob, Asked, Run]:
    """The job that checked arguments make, who is asked, and how a pick is run."""
    begun = perf_counter()
    own = own_detrend(estimate["detrend"])
    rows, batch, how = as_rows(
        x if own is None else physical(x), axis, precision, DOING
    )
    strict = switch("strict", strict, DOING)
    estimate["fs"] = number("fs", estimate["fs"], DOING)
    spec = spec_of(rows.shape[1], how.kind, own is not None, **estimate)
    caller = Caller(DOING, batch)
    hz = frequencies(spec, estimate["fs"])
    band = bins_between(hz, fmin, fmax, DOING, Reach.of_rate(estimate["fs"]))
    ready: ReadyRows | RowsThere = (
        rows if isinstance(rows, RowsThere) else ready_rows(rows, spec, caller, nan)
    )
    if own is not None:
        assert isinstance(ready, ReadyRows)  # `physical` has them on the host
        rows, spec, caller = detrended_by(own, np.asarray(rows), spec, caller)
        ready = ready_rows(rows, spec, caller, nan).detrended_from(ready)
    job = WelchJob(
        spec,
        rows.shape[0],
        rows.shape[1],
        0,
        taken=how,
        is_there=isinstance(rows, RowsThere),
        band=None if band is None else Band.spanned(band),
    )
    to = checked_axis(axis, x.ndim, DOING)
    about = {
        "quantity": _quantity(**estimate),
        "axis": to - x.ndim,
        "fs": estimate["fs"],
    }
    run = partial(_run, ready, caller, nan, hz, band, about, strict, begun)
    if isinstance(x, RowsThere):
        return job, asked_at(x, device, adapter, DOING), run
    return job, Asked(device, adapter), run


def spec_of(n_samples: int, dtype: str, detrended: bool, **estimate: Any) -> WelchSpec:
    """The estimate for rows of n_samples, by the arguments of `welch`.

    detrended  by a function of the caller's
    Errors     UsageError.
    """
    estimate["nperseg"] = fitted_nperseg(
        estimate["window"], estimate["nperseg"], n_samples, DOING
    )
    if one_of("preset", estimate["preset"], PRESETS, DOING) != "scipy":
        for name, value in _LEFT_TO_PRESET:
            if isinstance(estimate[name], _Default):
                estimate[name] = value
    if detrended:
        estimate["detrend"] = None
    return WelchRequest(**estimate).spec(n_samples, dtype)


def _quantity(scaling: str, preset: str, **_: Any) -> str:
    """What the values are, in the words of `Spectrum`."""
    if isinstance(scaling, _Default) and preset != "scipy":
        scaling = PRESETS[preset].scaling
    return "squares" if scaling == "none" else str(scaling)


async def _run(
    given: ReadyRows | RowsThere,
    caller: Caller,
    nan: NanPolicy,
    hz: NDArray[np.float64],
    band: NDArray[Any] | None,
    about: dict[str, Any],
    strict: bool,
    begun: float,
    pick: Pick[WelchJob],
) -> Done:
    """Frequencies and power [B, F] in the shape of the call, and who computed it."""

    async def work(job: WelchJob, engine: Engine) -> NDArray[Any]:
        return await engine.power(ready.x, ready.spec, job.band)

    chosen = perf_counter()
    try:
        if isinstance(given, RowsThere):
            ready = await looked_at(given, pick.job.spec, caller, nan)
        else:
            ready = given
        power, pick = await run_pick(pick, work, strict or given is not ready)
    except LOST as error:
        raise gone(error, given, DOING) from error.__cause__
    power = ready.reading.restored(power, caller)
    if band is not None:
        hz = hz[band]
        power = power if pick.job.band is not None else power[:, band]
    shaped = power.reshape(*caller.batch, len(hz))
    if about["axis"] != -1:
        shaped = np.moveaxis(shaped, -1, about["axis"])
    done = perf_counter()
    stages = Stage("choose", chosen - begun), Stage("compute", done - chosen)
    ran = Ran(pick.engine, pick.decision, done - begun, stages)
    floor = ready.by(pick.device).floor()
    if band is not None:
        floor = floor.of_bins(band)
    floor = floor._replace(energy=floor.energy.reshape(caller.batch))
    return Spectrum.of(hz, shaped, ran=ran, floor=floor, **about), pick
