"""`welch`: scipy.signal.welch's signature and defaults, on any device."""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.choose.chooser import Asked, choose, choose_async
from rlxweb.gpu.beside import beside
from rlxweb.gpu.drive import drive, in_a_tab
from rlxweb.host.spectrum import frequencies
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.picked import run_pick
from rlxweb.signal.request import WelchRequest
from rlxweb.signal.samples import as_rows, refuse_nonfinite

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from numpy.typing import ArrayLike, NDArray

    from rlxweb.choose.chooser import Pick
    from rlxweb.device import DeviceLike
    from rlxweb.digital import Digital
    from rlxweb.signal.engine import Engine, Rows
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.samples import NanPolicy
    from rlxweb.signal.windows import WindowLike

    Spectrum = tuple[NDArray[np.float64], NDArray[Any]]
    Run = Callable[[Pick[WelchJob]], Coroutine[Any, Any, Spectrum]]

DOING = "welch"


def welch(
    x: ArrayLike | Digital,
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
    strict: bool = False,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Power spectral density by Welch's method: mean over overlapping segments.

    Shapes   x (…, T, …) with time on `axis` → freqs (F,), power with F in its place
    Units    x in U, fs in Hz → freqs in Hz, power in U²/Hz ("density") or U²
    Numerics float32 in → float32 out, on any engine; integers of at most 24 bits (int8
             to uint16, or a `Digital` of counts with gain and offset) are exact on any
             engine and give float64; all else is float64 on the CPU, unless
             precision="f32" narrows it. precision="f64" asks for float64 throughout
    strict   True: a run that is lost with its device raises; else it is done again
             there or on the next device, unless one was asked for
    Errors   UsageError for arguments outside their domain (an explicit nperseg longer
             than the signal is refused, where scipy warns and shrinks it);
             NotFinite for NaN or infinity unless nan="propagate"; DTypeError,
             Unsupported, AdapterMissing when the asked device cannot do it
    Source   Welch 1967; conventions of scipy.signal.welch
    """
    job, asked, run = _called(**locals())
    return drive(run(choose(job, asked)))


async def welch_async(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    *arguments: Any,
    device: DeviceLike | None = None,
    adapter: str = "",
    **options: Any,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """`welch` beside an event loop, which goes on meanwhile.

    On a desktop it runs on a thread and can be cancelled; in a browser tab the GPU is
    awaited. Takes the same arguments and gives the same result, and the same errors.
    """
    if not in_a_tab():
        options |= {"device": device, "adapter": adapter}
        return await beside(lambda: welch(x, fs, *arguments, **options))
    options |= {"device": device, "adapter": adapter}
    given = signature(welch).bind(x, fs, *arguments, **options)
    given.apply_defaults()
    job, asked, run = _called(**given.arguments)
    return await run(await choose_async(job, asked))


def _called(
    x: ArrayLike | Digital,
    axis: int,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
    **estimate: Any,
) -> tuple[WelchJob, Asked, Run]:
    """The job that checked arguments make, who is asked, and how a pick is run."""
    rows, batch, how = as_rows(x, axis, precision, DOING)
    spec = WelchRequest(**estimate).spec(rows.shape[1], how.kind)
    refuse_nonfinite(rows, batch, nan, DOING)
    job = WelchJob(spec, rows.shape[0], rows.shape[1], 0, taken=how)
    run = partial(_run, rows, batch, estimate["fs"], axis, strict)
    return job, Asked(device, adapter), run


async def _run(
    rows: Rows,
    batch: tuple[int, ...],
    fs: float,
    axis: int,
    strict: bool,
    pick: Pick[WelchJob],
) -> Spectrum:
    """Frequencies, and power [B, F] in the shape of the call."""
    spec = pick.job.spec

    async def work(job: WelchJob, engine: Engine) -> NDArray[Any]:
        return await engine.power(rows, spec)

    power, _ = await run_pick(pick, work, strict)
    shaped = power.reshape(*batch, spec.n_freqs)
    if axis not in (-1, shaped.ndim - 1):
        shaped = np.moveaxis(shaped, -1, axis)
    return frequencies(spec, fs), shaped
