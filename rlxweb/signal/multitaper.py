"""Multitaper power spectral density with Slepian tapers (`multitaper`), on any
device.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import (
    bind_arguments,
    check_choice,
    coerce_bool,
    coerce_float,
)
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ops.welch.cpu.multitaper_power import multitaper_power
from rlxweb.ops.welch.parameters import doubled_bin_slice
from rlxweb.select.chooser import PlaceRequest
from rlxweb.signal.accept_third_party_objects import accept_objects
from rlxweb.signal.frequency_bins import FrequencyLimit, bins_between
from rlxweb.signal.rounding_floor import RoundingFloor, taper_shares
from rlxweb.signal.row_input import coerce_rate, coerce_rows
from rlxweb.signal.row_operation_runner import (
    Array,
    Shapes,
    run_info,
    run_row_operation,
)
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.row_rescaling import (
    RescaledRows,
    mean_squares,
    rescale_rows,
    restore_rows,
)
from rlxweb.signal.spectrum_result import Spectrum
from rlxweb.signal.tapers import Tapers, dpss

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.core.adc_samples import Digital
    from rlxweb.core.device import DeviceLike
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.row_preparation import NanPolicy

CONTEXT = "multitaper"
DEFAULT_NW = 4.0
MIN_CONCENTRATION = 0.9
"""Minimum share of a taper's energy within the band if low_bias is on."""


@dataclass(frozen=True, slots=True)
class MultitaperEstimator:
    """Multitaper estimate of rows [B, T] to power [B, F] under tapers [K, T], for NumPy
    or as a graph.
    """

    tapers: Tapers = field(compare=False)
    remove_mean: bool
    adaptive: bool
    nw: float
    cache_key: tuple[Any, ...]

    input_names = ("x",)

    @property
    def host_only_reason(self) -> str:
        return "only NumPy supports adaptive weights" if self.adaptive else ""

    @property
    def nbytes(self) -> int:
        return self.tapers.values.nbytes

    def compute_on_host(self, *rows: Array) -> Array:
        (x,) = rows
        power = multitaper_power(
            x, *self.tapers, remove_mean=self.remove_mean, adaptive=self.adaptive
        )
        return power.astype(np.float32) if x.dtype == np.float32 else power

    def build_graph(self, shapes: Shapes) -> Graph:
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
        double[doubled_bin_slice(n)] = 2.0
        g.set_outputs([g.sum(power * weights, 1) * g.constant(double, "f32")])
        return g

    def convert_graph_output(self, out: Array) -> Array:
        return out

    def row_width(self, shapes: Shapes) -> int:
        return shapes[0][1] * 2 * len(self.tapers.ratios)

    def rounding_floor(self, rows: RescaledRows, dtype: str) -> RoundingFloor:
        """Return the power that rounding may leave in the answer for rows of this
        dtype.
        """
        shares = taper_shares(
            rows.x.shape[1], self.nw, self.tapers.ratios, self.remove_mean, dtype
        )
        energy = mean_squares(rows)
        return RoundingFloor.from_energies(
            shares, energy, float(energy.max(initial=0.0))
        )


@accept_objects("x")
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
    """Estimate the power spectral density of whole rows, averaged over Slepian tapers
    (DPSS).

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
    return run_blocking(_compute_multitaper(**locals()))


@accept_objects("x", like=multitaper)
async def multitaper_async(
    x: ArrayLike | Digital, fs: float = 1.0, **options: Any
) -> Spectrum:
    """Run `multitaper` without blocking the event loop."""
    bound_arguments = bind_arguments(multitaper, "multitaper_async", x, fs, **options)
    return await await_or_offload(lambda: _compute_multitaper(**bound_arguments))


async def _compute_multitaper(
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
    """Validate the arguments of `multitaper`, run the estimate and return the
    spectrum.
    """
    start_time = perf_counter()
    check_choice("nan", nan, ("raise", "propagate"), CONTEXT)
    check_choice("normalization", normalization, ("full", "length"), CONTEXT)
    strict = coerce_bool("strict", strict, CONTEXT)
    fs = coerce_rate(fs, CONTEXT)
    samples = coerce_rows(x, axis, precision, CONTEXT, real=True)
    if samples is None:
        return Spectrum(np.empty(0), np.empty(np.shape(x)))
    n = samples.rows.shape[1]
    estimator = _multitaper_estimator(n, fs, bandwidth, adaptive, low_bias, remove_dc)
    hz: NDArray[np.float64] = np.arange(n // 2 + 1) * fs / n
    band = bins_between(hz, fmin, fmax, CONTEXT, FrequencyLimit.from_rate(fs))
    caller = RowErrorContext(CONTEXT, samples.batch_shape)
    resolved = samples.sample_type
    scaled_rows = rescale_rows(samples.rows, resolved.compute_dtype, caller, nan)
    request = PlaceRequest(device, adapter)
    out, pick = await run_row_operation(
        estimator, [scaled_rows.x], resolved, request, CONTEXT, strict
    )
    out = restore_rows(out, scaled_rows, 2, caller)
    floor = estimator.rounding_floor(scaled_rows, resolved.compute_dtype)
    if normalization == "full":
        out, floor = out / fs, floor.scale(1.0 / fs)
    if band is not None:
        hz, out, floor = hz[band], out[:, band], floor.select_bins(band)
    return Spectrum.of(
        hz,
        samples.restore_layout(out),
        quantity="density" if normalization == "full" else "length",
        axis=samples.axis - len(samples.batch_shape) - 1,
        fs=fs,
        ran=run_info(pick, start_time),
        floor=floor._replace(energy=floor.energy.reshape(samples.batch_shape)),
    )


def _multitaper_estimator(
    n: int,
    fs: float,
    bandwidth: float | None,
    adaptive: bool,
    low_bias: bool,
    remove_dc: bool,
) -> MultitaperEstimator:
    """Select the tapers and build the estimator."""
    nw = DEFAULT_NW
    if bandwidth is not None:
        nw = coerce_float("bandwidth", bandwidth, CONTEXT) * n / (2.0 * fs)
    if nw < 0.5:
        raise UsageError(
            CONTEXT,
            f"bandwidth is {bandwidth:g} Hz",
            f"must be at least {fs / n:g} Hz for {n} samples at {fs:g} Hz",
            Advice("use a larger {}", bandwidth=Blank("HZ")),
        )
    nw = min(nw, n / 2)
    if n > 1:
        tapers = dpss(n, nw, min(n, int(2 * nw)))
    else:  # a single sample has one taper, all of it within any band
        tapers = Tapers(np.ones((1, 1)), np.ones(1))
    keep = tapers.ratios > MIN_CONCENTRATION
    low_bias = coerce_bool("low_bias", low_bias, CONTEXT)
    if low_bias:
        if not keep.any():
            keep[np.argmax(tapers.ratios)] = True
        tapers = Tapers(tapers.values[keep], tapers.ratios[keep])
    adaptive = coerce_bool("adaptive", adaptive, CONTEXT)
    if adaptive and len(tapers.ratios) < 3:
        warnings.warn(
            "adaptive weights need at least 3 tapers, got "
            f"{len(tapers.ratios)}; the concentration ratios of the tapers are used "
            "as weights",
            UserWarning,
            stacklevel=caller_stacklevel(),
        )
        adaptive = False
    remove = coerce_bool("remove_dc", remove_dc, CONTEXT)
    key = ("multitaper", n, nw, low_bias, adaptive, remove)
    return MultitaperEstimator(tapers, remove, adaptive, nw, key)
