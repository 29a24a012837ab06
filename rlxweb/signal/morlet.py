"""Time-frequency power by Morlet wavelets (`tfr_morlet`), on any device."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.fft_arithmetic import next_fast_length
from rlxweb.core.argument_validation import (
    bind_arguments,
    check_choice,
    coerce_bool,
    coerce_integer,
)
from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import UsageError
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft.by_matmul import zeros
from rlxweb.ops.fft.op import block_to_complex
from rlxweb.ops.welch.cpu.wavelet_convolution import convolve_wavelets
from rlxweb.select.chooser import PlaceRequest
from rlxweb.signal.accept_third_party_objects import accept_objects
from rlxweb.signal.row_input import coerce_rows, require_rate
from rlxweb.signal.row_operation_runner import (
    Array,
    Shapes,
    run_info,
    run_row_operation,
)
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.row_rescaling import rescale_rows, restore_rows
from rlxweb.signal.time_frequency_result import TimeFrequency

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.core.adc_samples import Digital
    from rlxweb.core.device import DeviceLike
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.row_preparation import NanPolicy

Output = Literal["power", "complex", "phase"]
OUTPUTS: Final = ("power", "complex", "phase")
CONTEXT = "tfr_morlet"
_WAVELET_REACH = 5.0
"""Standard deviations that a wavelet extends to either side."""


def morlet_wavelet(fs: float, f: float, n_cycles: float, zero_mean: bool) -> Array:
    """Return the complex Morlet wavelet at frequency f, of odd length and centered.

    Units   fs, f in Hz; n_cycles: its standard deviation in time is n_cycles / 2πf
    Source  Tallon-Baudry 1997, with the energy that MNE gives it
    """
    width = n_cycles / (2.0 * np.pi * f)
    half = np.arange(0.0, _WAVELET_REACH * width, 1.0 / fs)
    t = np.concatenate([-half[:0:-1], half])
    wave = np.exp(2j * np.pi * f * t)
    if zero_mean:
        wave -= np.exp(-2.0 * (np.pi * f * width) ** 2)
    wave *= np.exp(-(t**2) / (2.0 * width**2))
    scaled: Array = wave / (np.sqrt(0.5) * np.linalg.norm(wave))
    return scaled


@dataclass(frozen=True, slots=True)
class MorletTransform:
    """Morlet transform of rows [B, T] to [B, W, T'] at every step-th sample, for NumPy
    or as a graph.

    spectra  (W, N) of the wavelets, centred on sample 0
    """

    spectra: NDArray[np.complex128] = field(compare=False)
    step: int
    n_times: int
    is_power: bool
    cache_key: tuple[Any, ...]

    input_names = ("x",)
    host_only_reason = ""

    @property
    def nbytes(self) -> int:
        return self.spectra.nbytes

    def compute_on_host(self, *rows: Array) -> Array:
        return convolve_wavelets(
            rows[0], self.spectra, self.step, self.n_times, power=self.is_power
        )

    def build_graph(self, shapes: Shapes) -> Graph:
        rows, n = shapes[0]
        waves, size = self.spectra.shape
        g = Graph("tfr_morlet")
        x = g.input("x", shapes[0], "f32")
        padding = zeros(g, (rows, 2 * size - n), DType.F32)
        block = g.concat([x, padding], axis=1)
        re, im = (
            g.reshape(part, (rows, 1, size)) for part in g.split_block(g.fft(block))
        )
        c, s = (
            g.constant(part.reshape(1, waves, size), "f32")
            for part in (self.spectra.real, self.spectra.imag)
        )
        product = g.concat([re * c - im * s, re * s + im * c], axis=2)
        inverse = g.split_block(g.fft(product, inverse=True))
        re, im = (self._decimate(g, part) for part in inverse)
        out = re * re + im * im if self.is_power else g.concat([re, im], axis=2)
        g.set_outputs([out])
        return g

    def _decimate(self, g: Graph, x: Tensor) -> Tensor:
        """Take every step-th of [B, W, N], n_times of them."""
        if self.step == 1:
            return g.narrow(x, 2, 0, self.n_times)
        rows, waves, size = x.shape
        steps = g.reshape(x, (rows, waves, size // self.step, self.step))
        first_of_step = g.narrow(g.narrow(steps, 3, 0, 1), 2, 0, self.n_times)
        return g.reshape(first_of_step, (rows, waves, self.n_times))

    def convert_graph_output(self, out: Array) -> Array:
        return out if self.is_power else block_to_complex(np, out)

    def row_width(self, shapes: Shapes) -> int:
        return 4 * self.spectra.size


@accept_objects("x")
def tfr_morlet(
    x: ArrayLike | Digital,
    fs: float | None = None,
    freqs: ArrayLike | None = None,
    n_cycles: ArrayLike = 7.0,
    *,
    zero_mean: bool = True,
    output: Output = "power",
    decim: int = 1,
    axis: int = -1,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> TimeFrequency:
    """Compute power in time and frequency by Morlet wavelets.

    What mne.time_frequency.tfr_array_morlet computes, for any leading axes.

    Shapes    x (…, T, …) with time on `axis` → f (W,), t (T',), values (…, W, T') with
              W in the place of time and T' = ceil(T / decim) behind all
    Units     x in U, fs and freqs in Hz → t in s, values in U² ("power"), U ("complex")
              or radians ("phase")
    n_cycles  of a wavelet, one number or one for each frequency: many tell frequencies
              apart, few tell times apart
    zero_mean  a constant signal has no power
    decim     only every so many samples are computed
    precision, strict, Numerics, Errors   as `welch`; UsageError for a frequency outside
              0 … fs / 2, and for a wavelet longer than the signal
    nan       "raise", or "propagate": a row with NaN or infinity is NaN throughout
    Source    Tallon-Baudry et al. 1997; conventions of MNE
    """
    return run_blocking(_compute_tfr(**locals()))


@accept_objects("x", like=tfr_morlet)
async def tfr_morlet_async(
    x: ArrayLike | Digital, *arguments: Any, **options: Any
) -> TimeFrequency:
    """Run `tfr_morlet` without blocking the event loop."""
    bound_arguments = bind_arguments(
        tfr_morlet, "tfr_morlet_async", x, *arguments, **options
    )
    return await await_or_offload(lambda: _compute_tfr(**bound_arguments))


async def _compute_tfr(
    x: ArrayLike | Digital,
    fs: float | None,
    freqs: ArrayLike | None,
    n_cycles: ArrayLike,
    zero_mean: bool,
    output: Output,
    decim: int,
    axis: int,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
) -> TimeFrequency:
    """Validate the arguments of `tfr_morlet`, run the transform and return the
    result.
    """
    start_time = perf_counter()
    check_choice("nan", nan, ("raise", "propagate"), CONTEXT)
    check_choice("output", output, OUTPUTS, CONTEXT)
    strict = coerce_bool("strict", strict, CONTEXT)
    fs, step = require_rate(fs, CONTEXT), coerce_integer("decim", decim, CONTEXT)
    if step < 1:
        raise UsageError(CONTEXT, f"decim is {step}", "must be at least 1")
    if freqs is None:
        raise UsageError(CONTEXT, "freqs is missing", "frequencies in Hz are required")
    hz, cycles = _frequencies_and_cycles(fs, freqs, n_cycles)
    samples = coerce_rows(x, axis, precision, CONTEXT, real=True)
    if samples is None:
        return TimeFrequency(hz, np.empty(0), np.empty(np.shape(x)))
    caller = RowErrorContext(CONTEXT, samples.batch_shape)
    resolved = samples.sample_type
    scaled_rows = rescale_rows(samples.rows, resolved.compute_dtype, caller, nan)
    zero_mean = coerce_bool("zero_mean", zero_mean, CONTEXT)
    is_power = output == "power"
    n = samples.rows.shape[1]
    transform = _morlet_transform(n, fs, hz, cycles, zero_mean, step, is_power)
    request = PlaceRequest(device, adapter)
    out, pick = await run_row_operation(
        transform, [scaled_rows.x], resolved, request, CONTEXT, strict
    )
    out = restore_rows(out, scaled_rows, 2 if is_power else 1, caller)
    if output == "phase":
        out = np.angle(out)
    times: NDArray[np.float64] = np.arange(transform.n_times) * step / fs
    return TimeFrequency.of(
        hz,
        times,
        samples.restore_layout(out),
        quantity="energy" if is_power else output,
        axis=samples.axis - len(samples.batch_shape) - 2,
        fs=fs,
        ran=run_info(pick, start_time),
    )


def _frequencies_and_cycles(
    fs: float, freqs: ArrayLike, n_cycles: ArrayLike
) -> tuple[Array, Array]:
    """Return the validated frequencies (W,) and cycles (W,). Raises UsageError."""
    hz = np.atleast_1d(as_array(freqs, f"{CONTEXT}, freqs")).astype(np.float64)
    cycles = np.atleast_1d(as_array(n_cycles, f"{CONTEXT}, n_cycles")).astype(
        np.float64
    )
    if hz.ndim != 1 or not hz.size:
        raise UsageError(
            CONTEXT, f"freqs has shape {hz.shape}", "expected a list of numbers"
        )
    if cycles.shape not in ((1,), hz.shape):
        raise UsageError(
            CONTEXT,
            f"n_cycles has shape {cycles.shape}",
            f"expected one number, or one for each of the {hz.size} frequencies",
        )
    for name, values, max_value in (
        ("freqs", hz, fs / 2),
        ("n_cycles", cycles, np.inf),
    ):
        bad = ~((values > 0) & (values <= max_value) & np.isfinite(values))
        if bad.any():
            rule = "must be above 0" + (
                f" and at most fs / 2, {max_value:g} Hz" * (name == "freqs")
            )
            raise UsageError(CONTEXT, f"{name} contains {values[bad][0]:g}", rule)
    return hz, np.broadcast_to(cycles, hz.shape)


def _morlet_transform(
    n: int,
    fs: float,
    hz: Array,
    cycles: Array,
    zero_mean: bool,
    step: int,
    is_power: bool,
) -> MorletTransform:
    """Build the transform with the spectra of the wavelets, long enough for rows of n
    samples.
    """
    waves = [
        morlet_wavelet(fs, f, c, zero_mean) for f, c in zip(hz, cycles, strict=True)
    ]
    longest = max(range(len(waves)), key=lambda index: len(waves[index]))
    if len(waves[longest]) > n:
        raise UsageError(
            CONTEXT,
            f"the wavelet of {hz[longest]:g} Hz has {len(waves[longest])} samples",
            f"must be at most the length of the signal, {n} samples",
            "use a longer signal, higher frequencies or fewer cycles",
        )
    # Centred on sample 0 a wavelet reaches half its length around either end.
    reach = max(len(wave) for wave in waves) // 2
    size = next_fast_length(-(-(n + reach) // step)) * step
    padded_waves = np.zeros((len(waves), size), np.complex128)
    for wave, padded in zip(waves, padded_waves, strict=True):
        half = len(wave) // 2
        padded[: half + 1] = wave[half:]
        padded[size - half :] = wave[:half]
    key = ("tfr_morlet", n, fs, tuple(hz), tuple(cycles), zero_mean, step, is_power)
    return MorletTransform(np.fft.fft(padded_waves), step, -(-n // step), is_power, key)
