"""`tfr_morlet`: power in time and frequency by Morlet's wavelets, on any device."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import bound, one_of, switch, whole
from rlxweb.choose.chooser import Asked
from rlxweb.errors import UsageError
from rlxweb.given import array_of
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.host.wavelet_power import convolved
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft_compose import zeros
from rlxweb.ops.spectral import complex_of
from rlxweb.recipes.fft_plan import good_length
from rlxweb.signal.in_range import into_range, restored_rows
from rlxweb.signal.labelled import takes_objects
from rlxweb.signal.row_calls import Array, Shapes, computed, ran_by
from rlxweb.signal.rows_given import rows_given, said_rate
from rlxweb.signal.scaled import Caller
from rlxweb.signal.time_frequency import TimeFrequency

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.device import DeviceLike
    from rlxweb.digital import Digital
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.scaled import NanPolicy

Output = Literal["power", "complex", "phase"]
OUTPUTS: Final = ("power", "complex", "phase")
DOING = "tfr_morlet"
_REACH = 5.0
"""Standard deviations to either side that a wavelet reaches."""


def morlet(fs: float, f: float, n_cycles: float, zero_mean: bool) -> Array:
    """Morlet's wavelet at f, complex, of odd length with its middle in the middle.

    Units   fs, f in Hz; n_cycles: its standard deviation in time is n_cycles / 2πf
    Source  Tallon-Baudry 1997, with the energy that MNE gives it
    """
    width = n_cycles / (2.0 * np.pi * f)
    half = np.arange(0.0, _REACH * width, 1.0 / fs)
    t = np.concatenate([-half[:0:-1], half])
    wave = np.exp(2j * np.pi * f * t)
    if zero_mean:
        wave -= np.exp(-2.0 * (np.pi * f * width) ** 2)
    wave *= np.exp(-(t**2) / (2.0 * width**2))
    scaled: Array = wave / (np.sqrt(0.5) * np.linalg.norm(wave))
    return scaled


@dataclass(frozen=True, slots=True)
class WaveletCall:
    """Rows [B, T] → [B, W, T'] at every step-th sample. See `RowCall`.

    spectra  (W, N) of the wavelets, centred on sample 0
    """

    spectra: NDArray[np.complex128] = field(compare=False)
    step: int
    count: int
    power: bool
    key: tuple[Any, ...]

    inputs = ("x",)
    only_on_host = ""

    @property
    def nbytes(self) -> int:
        return self.spectra.nbytes

    def on_host(self, *rows: Array) -> Array:
        return convolved(rows[0], self.spectra, self.step, self.count, power=self.power)

    def graph(self, shapes: Shapes) -> Graph:
        rows, n = shapes[0]
        waves, size = self.spectra.shape
        g = Graph("tfr_morlet")
        x = g.input("x", shapes[0], "f32")
        rest = zeros(g, (rows, 2 * size - n), DType.F32)
        block = g.concat([x, rest], axis=1)
        re, im = (
            g.reshape(part, (rows, 1, size)) for part in g.split_block(g.fft(block))
        )
        c, s = (
            g.constant(part.reshape(1, waves, size), "f32")
            for part in (self.spectra.real, self.spectra.imag)
        )
        product = g.concat([re * c - im * s, re * s + im * c], axis=2)
        back = g.split_block(g.fft(product, inverse=True))
        re, im = (self._kept(g, part) for part in back)
        out = re * re + im * im if self.power else g.concat([re, im], axis=2)
        g.set_outputs([out])
        return g

    def _kept(self, g: Graph, x: Tensor) -> Tensor:
        """Every step-th of [B, W, N], so many of them."""
        if self.step == 1:
            return g.narrow(x, 2, 0, self.count)
        rows, waves, size = x.shape
        steps = g.reshape(x, (rows, waves, size // self.step, self.step))
        kept = g.narrow(g.narrow(steps, 3, 0, 1), 2, 0, self.count)
        return g.reshape(kept, (rows, waves, self.count))

    def of_device(self, out: Array) -> Array:
        return out if self.power else complex_of(np, out)

    def width(self, shapes: Shapes) -> int:
        return 4 * self.spectra.size


@takes_objects("x")
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
    """Power in time and frequency, by Morlet's wavelets.

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
    return drive(_tfr_morlet(**locals()))


@takes_objects("x", like=tfr_morlet)
async def tfr_morlet_async(
    x: ArrayLike | Digital, *arguments: Any, **options: Any
) -> TimeFrequency:
    """`tfr_morlet` beside an event loop, which goes on meanwhile."""
    given = bound(tfr_morlet, "tfr_morlet_async", x, *arguments, **options)
    return await awaited_here(lambda: _tfr_morlet(**given))


async def _tfr_morlet(
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
    begun = perf_counter()
    one_of("nan", nan, ("raise", "propagate"), DOING)
    one_of("output", output, OUTPUTS, DOING)
    strict = switch("strict", strict, DOING)
    fs, step = said_rate(fs, DOING), whole("decim", decim, DOING)
    if step < 1:
        raise UsageError(DOING, f"decim is {step}", "it must be at least 1")
    if freqs is None:
        raise UsageError(DOING, "freqs is missing", "frequencies in Hz are wanted")
    hz, cycles = _asked(fs, freqs, n_cycles)
    given = rows_given(x, axis, precision, DOING, real=True)
    if given is None:
        return TimeFrequency(hz, np.empty(0), np.empty(np.shape(x)))
    caller, how = Caller(DOING, given.batch), given.how
    seen = into_range(given.rows, how.kind, caller, nan)
    zero_mean = switch("zero_mean", zero_mean, DOING)
    is_power = output == "power"
    n = given.rows.shape[1]
    call = _call(n, fs, hz, cycles, zero_mean, step, is_power)
    asked = Asked(device, adapter)
    out, pick = await computed(call, [seen.x], how, asked, DOING, strict)
    out = restored_rows(out, seen, 2 if is_power else 1, caller)
    if output == "phase":
        out = np.angle(out)
    times: NDArray[np.float64] = np.arange(call.count) * step / fs
    return TimeFrequency.of(
        hz,
        times,
        given.back(out),
        quantity="energy" if is_power else output,
        axis=given.axis - len(given.batch) - 2,
        fs=fs,
        ran=ran_by(pick, begun),
    )


def _asked(fs: float, freqs: ArrayLike, n_cycles: ArrayLike) -> tuple[Array, Array]:
    """Frequencies (W,) and their cycles (W,). Errors  UsageError."""
    hz = np.atleast_1d(array_of(freqs, f"{DOING}, freqs")).astype(np.float64)
    cycles = np.atleast_1d(array_of(n_cycles, f"{DOING}, n_cycles")).astype(np.float64)
    if hz.ndim != 1 or not hz.size:
        raise UsageError(DOING, f"freqs have shape {hz.shape}", "a list of numbers")
    if cycles.shape not in ((1,), hz.shape):
        raise UsageError(
            DOING,
            f"n_cycles has shape {cycles.shape}",
            f"one number, or one for each of {hz.size} frequencies",
        )
    for name, own, most in (("freqs", hz, fs / 2), ("n_cycles", cycles, np.inf)):
        bad = ~((own > 0) & (own <= most) & np.isfinite(own))
        if bad.any():
            rule = "above 0" + (f" and at most fs / 2, {most:g} Hz" * (name == "freqs"))
            raise UsageError(DOING, f"{name} has {own[bad][0]:g} in it", rule)
    return hz, np.broadcast_to(cycles, hz.shape)


def _call(
    n: int, fs: float, hz: Array, cycles: Array, zero_mean: bool, step: int, power: bool
) -> WaveletCall:
    """The wavelets' transforms, long enough for rows of n."""
    waves = [morlet(fs, f, c, zero_mean) for f, c in zip(hz, cycles, strict=True)]
    longest = max(range(len(waves)), key=lambda at: len(waves[at]))
    if len(waves[longest]) > n:
        raise UsageError(
            DOING,
            f"the wavelet of {hz[longest]:g} Hz has {len(waves[longest])} samples",
            f"the signal has {n}",
            "give a longer signal, higher frequencies or fewer cycles",
        )
    # Centred on sample 0 a wavelet reaches half its length around either end.
    reach = max(len(one) for one in waves) // 2
    size = good_length(-(-(n + reach) // step)) * step
    placed = np.zeros((len(waves), size), np.complex128)
    for one, own in zip(waves, placed, strict=True):
        half = len(one) // 2
        own[: half + 1] = one[half:]
        own[size - half :] = one[:half]
    key = ("tfr_morlet", n, fs, tuple(hz), tuple(cycles), zero_mean, step, power)
    return WaveletCall(np.fft.fft(placed), step, -(-n // step), power, key)
