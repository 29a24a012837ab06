"""`csd` and `coherence`: what two signals have in common, frequency by frequency."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import bound, one_of, switch
from rlxweb.choose.chooser import Asked, a_device_is_named
from rlxweb.errors import ShapeError
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.host.cross_matrix import cross_matrix
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frequencies
from rlxweb.signal.band import Reach, bins_between
from rlxweb.signal.in_range import Rows, into_range, mean_squares
from rlxweb.signal.labelled import takes_objects
from rlxweb.signal.own_detrend import detrended_by, own_detrend
from rlxweb.signal.precision import Taken, taken
from rlxweb.signal.rounding import RoundingFloor, rounding_shares
from rlxweb.signal.row_calls import Array, computed, ran_by
from rlxweb.signal.rows_given import rate
from rlxweb.signal.samples import as_array, as_rows, checked_axis, physical
from rlxweb.signal.scaled import Caller
from rlxweb.signal.segment_calls import SegmentCall, restored
from rlxweb.signal.segment_request import half, segment_spec
from rlxweb.signal.spectrum import Spectrum, flat_rows, warn_flat

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.choose.chooser import Pick
    from rlxweb.choose.graphs import GraphJob
    from rlxweb.device import DeviceLike
    from rlxweb.digital import Digital
    from rlxweb.signal.own_detrend import OwnDetrend
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.scaled import NanPolicy
    from rlxweb.signal.windows import WindowLike

_WHY = "its samples are read on the host"
_STEP = 64 << 20
"""Bytes of rows that are laid side by side, pair by pair, at once."""


class Pairs(NamedTuple):
    """Two signals' rows, each once, and which goes with which.

    x, y         (A, T), (C, T)
    left, right  (P,) numbers of their rows
    """

    x: Rows
    y: Rows
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    @property
    def is_matrix(self) -> bool:
        """Every row of x with every row of y, and they are many and plain."""
        a, c = len(self.x.x), len(self.y.x)
        if len(self.left) != a * c or len(self.left) <= 2 * (a + c):
            return False
        if not (self.x.is_plain and self.y.is_plain):
            return False
        return np.array_equal(self.left * c + self.right, np.arange(a * c))


@takes_objects("x", "y")
def csd(
    x: ArrayLike | Digital,
    y: ArrayLike | Digital,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | OwnDetrend | None = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
    *,
    fmin: float = 0.0,
    fmax: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> Spectrum:
    """Cross power spectral density by Welch's method: the mean of conj(X) · Y.

    A drop-in for scipy.signal.csd.

    Shapes   x, y (…, T, …) with time on `axis`, the other axes broadcast → freqs (F,),
             power (…, F, …), complex, or real where y is x. The shorter of two signals
             is filled with zeros
    Units    x in U, y in V, fs in Hz → freqs in Hz, power in U·V/Hz ("density") or U·V
    average  "mean" or "median", which NumPy computes
    fmin, fmax, nan, precision, strict, Numerics, Errors   as `welch`; ShapeError where
             x and y do not broadcast
    Source   Welch 1967; conventions of scipy.signal.csd
    """
    return drive(_csd(**locals()))


@takes_objects("x", "y", like=csd)
async def csd_async(
    x: ArrayLike | Digital, y: ArrayLike | Digital, *arguments: Any, **options: Any
) -> Spectrum:
    """`csd` beside an event loop, which goes on meanwhile."""
    given = bound(csd, "csd_async", x, y, *arguments, **options)
    return await awaited_here(lambda: _csd(**given))


@takes_objects("x", "y")
def coherence(
    x: ArrayLike | Digital,
    y: ArrayLike | Digital,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | OwnDetrend | None = "constant",
    axis: int = -1,
    *,
    fmin: float = 0.0,
    fmax: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> Spectrum:
    """Magnitude squared coherence: |Pxy|² / (Pxx · Pyy), from 0 to 1.

    A drop-in for scipy.signal.coherence. All pairs of channels at once:
    coherence(x[:, None], x[None]).

    Shapes   x, y (…, T, …) with time on `axis`, the other axes broadcast → freqs (F,),
             coherence (…, F, …)
    Numerics NaN where a signal is flat, nothing but rounding beside its mean square,
             with a UserWarning. All else as `csd`
    Source   Stoica & Moses, Spectral Analysis of Signals; conventions of
             scipy.signal.coherence
    """
    return drive(_coherence(**locals()))


@takes_objects("x", "y", like=coherence)
async def coherence_async(
    x: ArrayLike | Digital, y: ArrayLike | Digital, *arguments: Any, **options: Any
) -> Spectrum:
    """`coherence` beside an event loop, which goes on meanwhile."""
    given = bound(coherence, "coherence_async", x, y, *arguments, **options)
    return await awaited_here(lambda: _coherence(**given))


async def _csd(**given: Any) -> Spectrum:
    is_own = given["y"] is given["x"]

    def both(own: Array) -> Array:
        real: Array = own[..., 2, :]
        found: Array = real if is_own else real + 1j * own[..., 3, :]
        return found

    return await _compared("csd", both, **given)


async def _coherence(**given: Any) -> Spectrum:
    def squared(own: Array) -> Array:
        # Squares of powers leave the range of float32 long before these do.
        wide = own.astype(np.float64)
        x, y, re, im = (wide[..., at, :] for at in range(4))
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Array = (re * re + im * im) / x / y
        return found.astype(own.dtype, copy=False)

    given |= {"return_onesided": True, "scaling": "density", "average": "mean"}
    return await _compared("coherence", squared, of_scale=False, **given)


async def _compared(
    doing: str,
    finish: Callable[[Array], Array],
    *,
    of_scale: bool = True,
    x: ArrayLike | Digital,
    y: ArrayLike | Digital,
    axis: int,
    fmin: float,
    fmax: float | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
    **estimate: Any,
) -> Spectrum:
    """Frequencies, and what `finish` makes of (…, 4, F): both powers, re and im.

    of_scale   its result depends on the scale of the signals
    """
    begun = perf_counter()
    one_of("nan", nan, ("raise", "propagate"), doing)
    strict = switch("strict", strict, doing)
    fs = estimate["fs"] = rate(estimate["fs"], doing)
    arrays = [physical(as_array(x, doing), doing, _WHY)]
    arrays += arrays if y is x else [physical(as_array(y, doing), doing, _WHY)]
    outer = [_without(one.shape, axis, doing) for one in arrays]
    batch = _batch(arrays, outer, doing)
    to = checked_axis(axis, len(batch) + 1, doing)
    if any(0 in one.shape for one in arrays):
        least = min(one.shape[axis] for one in arrays)
        nothing = np.moveaxis(np.empty((*batch, least)), -1, to)
        return Spectrum(nothing, nothing)
    how = taken(np.result_type(*arrays), precision, doing)
    rows = _as_long([np.asarray(as_rows(a, axis, None, doing)[0]) for a in arrays])
    own = own_detrend(estimate["detrend"])
    estimate["detrend"] = None if own is not None else estimate["detrend"]
    spec = segment_spec(doing, rows[0].shape[1], how.kind, half, **estimate)
    hz = frequencies(spec, fs)
    band = bins_between(hz, fmin, fmax, doing, Reach.of_rate(fs))
    seen, energies, spec = _seen(rows, outer, spec, own, nan, doing)
    left, right = (_numbers(one, batch) for one in outer)
    if not of_scale:
        seen = [one._replace(up=None) for one in seen]
    pairs = Pairs(seen[0], seen[1], left, right)
    asked, caller = Asked(device, adapter), Caller(doing, batch)
    parts, pick = await _averaged(pairs, spec, how, asked, caller, strict)
    power = finish(parts)
    shown = slice(None) if band is None else band
    hz, power = hz[shown], power[..., shown]
    if not of_scale:
        flat = _flat(pairs, energies, parts[..., shown], spec, shown)
        power[flat] = np.nan
        warn_flat(doing, flat, "it is", "pair")
    power = power.reshape(*batch, len(hz))
    return Spectrum.of(
        hz,
        np.moveaxis(power, len(batch), to),
        quantity="coherence" if doing == "coherence" else "csd",
        axis=to - len(batch) - 1,
        fs=fs,
        ran=ran_by(pick, begun),
    )


def _flat(
    pairs: Pairs,
    energies: Sequence[NDArray[np.float64]],
    parts: Array,
    spec: WelchSpec,
    bins: Array | slice,
) -> NDArray[np.bool_]:
    """Pairs (P,) of which one signal or both hold nothing but rounding."""
    found = np.zeros(len(parts), np.bool_)
    shares = rounding_shares(spec)
    for at, numbers in enumerate((pairs.left, pairs.right)):
        energy = energies[at][numbers]
        floor = RoundingFloor.of(shares, energy, float(energy.max(initial=0.0)))
        found |= flat_rows(parts[:, at], floor.of_bins(bins), slice(None))
    return found


def _seen(
    rows: Sequence[Array],
    outer: Sequence[tuple[int, ...]],
    spec: WelchSpec,
    own: OwnDetrend | None,
    nan: NanPolicy,
    doing: str,
) -> tuple[list[Rows], list[NDArray[np.float64]], WelchSpec]:
    """Rows of both signals, their mean squares in the same range, and the estimate.

    own   a detrend of the caller's; the mean squares are of the rows before it
    """
    seen, energies, after = [], [], spec
    for name, one, shape in zip("xy", rows, outer, strict=True):
        caller = Caller(f"{doing}, {name}", shape)
        ready = into_range(one, spec.dtype, caller, nan)
        energy = mean_squares(ready._replace(up=None))
        if own is not None:
            before = ready.up
            one, after, caller = detrended_by(own, one, spec, caller)
            ready = into_range(one, spec.dtype, caller, nan)
            ups = [0 if up is None else up for up in (before, ready.up)]
            energy = np.ldexp(energy, 2 * (ups[0] - ups[1]))
        seen.append(ready)
        energies.append(energy)
    return seen, energies, after


def _without(shape: tuple[int, ...], axis: int, doing: str) -> tuple[int, ...]:
    """The axes other than time."""
    at = checked_axis(axis, len(shape), doing)
    return (*shape[:at], *shape[at + 1 :])


def _batch(
    arrays: Sequence[Array], outer: Sequence[tuple[int, ...]], doing: str
) -> tuple[int, ...]:
    """The shape of all pairs. Errors  ShapeError where they do not go together."""
    try:
        return np.broadcast_shapes(*outer)
    except ValueError:
        shapes = " and ".join(str(list(one.shape)) for one in arrays)
        raise ShapeError(
            doing,
            f"x and y cannot be broadcast together: {shapes}",
            "their axes other than time must be alike, or 1",
            "all pairs of channels: x[:, None] and y[None]",
        ) from None


def _numbers(outer: tuple[int, ...], batch: tuple[int, ...]) -> NDArray[np.int64]:
    """(P,) which of a signal's rows every pair takes."""
    order = np.arange(math.prod(outer)).reshape(outer)
    return np.broadcast_to(order, batch).reshape(-1)


def _as_long(rows: list[Array]) -> list[Array]:
    """Rows of one length: the shorter are filled with zeros, as SciPy fills them."""
    longest = max(one.shape[1] for one in rows)
    return [
        one
        if one.shape[1] == longest
        else np.pad(one, ((0, 0), (0, longest - one.shape[1])))
        for one in rows
    ]


async def _averaged(
    pairs: Pairs,
    spec: WelchSpec,
    how: Taken,
    asked: Asked,
    caller: Caller,
    strict: bool,
) -> tuple[Array, Pick[GraphJob] | None]:
    """(P, 4, F) of all pairs, and who gave it."""
    call = SegmentCall("cross", spec)
    is_open = asked.place()[0] is None and not a_device_is_named()
    if pairs.is_matrix and is_open and spec.average == "mean":
        return cross_matrix(pairs.x.x, pairs.y.x, spec), None
    step = max(1, _STEP // (pairs.x.x.itemsize * pairs.x.x.shape[1]))
    found, pick = [], None
    for first in range(0, len(pairs.left), step):
        some = slice(first, first + step)
        both = [pairs.x.at(pairs.left[some]), pairs.y.at(pairs.right[some])]
        x_y = [one.x for one in both]
        out, pick = await computed(call, x_y, how, asked, caller.doing, strict)
        found.append(restored(out, call, both, caller))
    return found[0] if len(found) == 1 else np.concatenate(found), pick
