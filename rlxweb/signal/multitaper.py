"""`multitaper`: power spectral density under Slepian's tapers, on any device."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import bound, number, one_of, switch
from rlxweb.callers import outside
from rlxweb.choose.chooser import Asked
from rlxweb.errors import UsageError
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.host.taper_power import taper_power
from rlxweb.ir.graph import Graph
from rlxweb.recipes.welch_plan import doubled_bins
from rlxweb.signal.band import Reach, bins_between
from rlxweb.signal.in_range import Rows, into_range, mean_squares, restored_rows
from rlxweb.signal.labelled import takes_objects
from rlxweb.signal.rounding import RoundingFloor, taper_shares
from rlxweb.signal.row_calls import Array, Shapes, computed, ran_by
from rlxweb.signal.rows_given import rate, rows_given
from rlxweb.signal.scaled import Caller
from rlxweb.signal.spectrum import Spectrum
from rlxweb.signal.tapers import Tapers, dpss

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.device import DeviceLike
    from rlxweb.digital import Digital
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.scaled import NanPolicy

DOING = "multitaper"
USUAL_NW = 4.0
CONCENTRATED = 0.9
"""Share of its energy in the band that a taper has at least, where low_bias is on."""


@dataclass(frozen=True, slots=True)
class TaperCall:
    """Rows [B, T] → power [B, F] under tapers [K, T]. See `RowCall`."""

    tapers: Tapers = field(compare=False)
    remove_mean: bool
    adaptive: bool
    nw: float
    key: tuple[Any, ...]

    inputs = ("x",)

    @property
    def only_on_host(self) -> str:
        return "adaptive weights are found by NumPy only" if self.adaptive else ""

    @property
    def nbytes(self) -> int:
        return self.tapers.values.nbytes

    def on_host(self, *rows: Array) -> Array:
        (x,) = rows
        power = taper_power(
            x, *self.tapers, remove_mean=self.remove_mean, adaptive=self.adaptive
        )
        return power.astype(np.float32) if x.dtype == np.float32 else power

    def graph(self, shapes: Shapes) -> Graph:
        rows, n = shapes[0]
        g = Graph("multitaper")
        x = g.input("x", shapes[0], "f32")
        if self.remove_mean:
            x = x - g.narrow(x, 1, 0, 1)
            x = x - g.mean(x, 1, keep_dim=True)
        ratios = self.tapers.ratios
        count = len(ratios)
        tapered = g.reshape(x, (rows, 1, n)) * g.constant(self.tapers.values, "f32")
        re, im = g.rfft(g.reshape(tapered, (rows * count, n)))
        power = g.reshape(re * re + im * im, (rows, count, n // 2 + 1))
        weights = g.reshape(g.constant(ratios / ratios.sum(), "f32"), (count, 1))
        double = np.ones(n // 2 + 1)
        double[doubled_bins(n)] = 2.0
        g.set_outputs([g.sum(power * weights, 1) * g.constant(double, "f32")])
        return g

    def of_device(self, out: Array) -> Array:
        return out

    def width(self, shapes: Shapes) -> int:
        return shapes[0][1] * 2 * len(self.tapers.ratios)

    def floor(self, rows: Rows, kind: str) -> RoundingFloor:
        """Power that rounding may leave in the answer for rows of this dtype."""
        shares = taper_shares(
            rows.x.shape[1], self.nw, self.tapers.ratios, self.remove_mean, kind
        )
        energy = mean_squares(rows)
        return RoundingFloor.of(shares, energy, float(energy.max(initial=0.0)))


@takes_objects("x")
def multitaper(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    *,
    bandwidth: float | None = None,
    adaptive: bool = False,
    low_bias: bool = True,
    normalization: Literal["full", "length"] = "full",
    remove_dc: bool = True,
    fmin: float = 0.0,
    fmax: float | None = None,
    axis: int = -1,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> Spectrum:
    """Power spectral density of whole rows, averaged over Slepian's tapers (DPSS).

    Less noisy than one window, at the price of `bandwidth`: what
    mne.time_frequency.psd_array_multitaper computes, by the same arguments.

    Shapes     x (…, T, …) with time on `axis` → freqs (F,), power (…, F, …)
    Units      x in U, fs in Hz → freqs and bandwidth in Hz, power in U²/Hz ("full"), or
               that times fs ("length", MNE's default)
    bandwidth  width that is smoothed together; None: 8 · fs / T
    adaptive   weights of their own for every frequency (Thomson), by NumPy alone
    low_bias   only tapers with more than 90 % of their energy in the band
    remove_dc  the mean of a row goes first
    fmin, fmax, precision, strict, Numerics, Errors   as `welch`; UsageError for a
               bandwidth below fs / T
    nan        "raise", or "propagate": a row with NaN or infinity is NaN throughout
    Source     Thomson 1982; Slepian 1978; conventions of MNE
    """
    return drive(_multitaper(**locals()))


@takes_objects("x", like=multitaper)
async def multitaper_async(
    x: ArrayLike | Digital, fs: float = 1.0, **options: Any
) -> Spectrum:
    """`multitaper` beside an event loop, which goes on meanwhile."""
    given = bound(multitaper, "multitaper_async", x, fs, **options)
    return await awaited_here(lambda: _multitaper(**given))


async def _multitaper(
    x: ArrayLike | Digital,
    fs: float,
    bandwidth: float | None,
    adaptive: bool,
    low_bias: bool,
    normalization: str,
    remove_dc: bool,
    fmin: float,
    fmax: float | None,
    axis: int,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
) -> Spectrum:
    begun = perf_counter()
    one_of("nan", nan, ("raise", "propagate"), DOING)
    one_of("normalization", normalization, ("full", "length"), DOING)
    strict = switch("strict", strict, DOING)
    fs = rate(fs, DOING)
    given = rows_given(x, axis, precision, DOING, real=True)
    if given is None:
        return Spectrum(np.empty(0), np.empty(np.shape(x)))
    n = given.rows.shape[1]
    call = _call(n, fs, bandwidth, adaptive, low_bias, remove_dc)
    hz: NDArray[np.float64] = np.arange(n // 2 + 1) * fs / n
    band = bins_between(hz, fmin, fmax, DOING, Reach.of_rate(fs))
    caller, how = Caller(DOING, given.batch), given.how
    seen = into_range(given.rows, how.kind, caller, nan)
    asked = Asked(device, adapter)
    out, pick = await computed(call, [seen.x], how, asked, DOING, strict)
    out = restored_rows(out, seen, 2, caller)
    floor = call.floor(seen, how.kind)
    if normalization == "full":
        out, floor = out / fs, floor.scaled(1.0 / fs)
    if band is not None:
        hz, out, floor = hz[band], out[:, band], floor.of_bins(band)
    return Spectrum.of(
        hz,
        given.back(out),
        quantity="density" if normalization == "full" else "length",
        axis=given.axis - len(given.batch) - 1,
        fs=fs,
        ran=ran_by(pick, begun),
        floor=floor._replace(energy=floor.energy.reshape(given.batch)),
    )


def _call(
    n: int,
    fs: float,
    bandwidth: float | None,
    adaptive: bool,
    low_bias: bool,
    remove_dc: bool,
) -> TaperCall:
    """The tapers and what is done with them."""
    nw = USUAL_NW
    if bandwidth is not None:
        nw = number("bandwidth", bandwidth, DOING) * n / (2.0 * fs)
    if nw < 0.5:
        raise UsageError(
            DOING,
            f"bandwidth is {bandwidth:g} Hz",
            f"{n} samples at {fs:g} Hz tell no less than {fs / n:g} Hz apart",
            Advice("use a larger {}", bandwidth=Blank("HZ")),
        )
    nw = min(nw, n / 2)
    if n > 1:
        tapers = dpss(n, nw, min(n, int(2 * nw)))
    else:  # a single sample has one taper, all of it within any band
        tapers = Tapers(np.ones((1, 1)), np.ones(1))
    keep = tapers.ratios > CONCENTRATED
    low_bias = switch("low_bias", low_bias, DOING)
    if low_bias:
        if not keep.any():
            keep[np.argmax(tapers.ratios)] = True
        tapers = Tapers(tapers.values[keep], tapers.ratios[keep])
    adaptive = switch("adaptive", adaptive, DOING)
    if adaptive and len(tapers.ratios) < 3:
        warnings.warn(
            f"{len(tapers.ratios)} tapers are too few for adaptive weights, of which "
            "3 are the least; the tapers' own are used",
            UserWarning,
            stacklevel=outside(),
        )
        adaptive = False
    remove = switch("remove_dc", remove_dc, DOING)
    key = ("multitaper", n, nw, low_bias, adaptive, remove)
    return TaperCall(tapers, remove, adaptive, nw, key)
