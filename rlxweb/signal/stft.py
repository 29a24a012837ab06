"""Short-time Fourier transform, as scipy.signal.ShortTimeFFT computes it, on any
device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from rlxweb.core.argument_validation import (
    bind_arguments,
    check_choice,
    coerce_bool,
    coerce_integer,
)
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.chooser import PlaceRequest
from rlxweb.signal.accept_third_party_objects import accept_objects
from rlxweb.signal.row_input import coerce_rate, coerce_rows
from rlxweb.signal.row_operation_runner import Array, run_info, run_row_operation
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.row_rescaling import rescale_rows
from rlxweb.signal.segment_length_overlap import half_overlap, segment_spec
from rlxweb.signal.segment_spectra_operation import SegmentOperation, restore_output
from rlxweb.signal.time_frequency_result import TimeFrequency

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.core.adc_samples import Digital
    from rlxweb.core.device import DeviceLike
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.row_preparation import NanPolicy
    from rlxweb.signal.windows import WindowLike

Padding = Literal["zeros", "edge", "even", "odd"]
Scaling = Literal["magnitude", "psd"]

_PAD_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "zeros": {"mode": "constant"},
    "edge": {"mode": "edge"},
    "even": {"mode": "reflect", "reflect_type": "even"},
    "odd": {"mode": "reflect", "reflect_type": "odd"},
}
_SCALING_NAMES: Final = {None: "none", "magnitude": "spectrum", "psd": "density"}


@dataclass(frozen=True, slots=True)
class SegmentGrid:
    """Positions of the segments of a signal: segment p is centred on sample p · hop.

    nperseg, hop  samples of a segment, and from one to the next
    leading_zeros  samples at the begin of the window that are 0
    """

    nperseg: int
    hop: int
    leading_zeros: int

    @classmethod
    def from_spec(cls, spec: WelchSpec) -> SegmentGrid:
        """Return the segment positions of an estimate."""
        nonzero = np.flatnonzero(spec.window_array)
        return cls(spec.nperseg, spec.hop, int(nonzero[0]) if nonzero.size else 0)

    @property
    def first_index(self) -> int:
        """Index of the first segment that reaches into the signal."""
        return -((self.nperseg - 1 - self.nperseg // 2) // self.hop)

    def stop_index(self, n_samples: int) -> int:
        """Return one past the index of the last segment with one of n_samples under its
        window.

        The slice whose middle is the end of the signal is there in any case.
        """
        last = (n_samples - 1 - self.leading_zeros + self.nperseg // 2) // self.hop
        return max(last, n_samples // self.hop) + 1

    @property
    def left_padding(self) -> int:
        """Number of samples by which the first segment begins before the signal."""
        return self.nperseg // 2 - self.first_index * self.hop


@accept_objects("x")
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
    return run_blocking(_stft(**locals()))


@accept_objects("x", like=stft)
async def stft_async(
    x: ArrayLike | Digital, fs: float = 1.0, *arguments: Any, **options: Any
) -> TimeFrequency:
    """Compute `stft` without blocking the event loop."""
    bound_arguments = bind_arguments(stft, "stft_async", x, fs, *arguments, **options)
    return await await_or_offload(lambda: _stft(**bound_arguments))


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
    """Compute the short-time Fourier transform; see `stft`."""
    context, started = "stft", perf_counter()
    check_choice("padding", padding, _PAD_OPTIONS, context)
    check_choice("nan", nan, ("raise", "propagate"), context)
    strict = coerce_bool("strict", strict, context)
    fs = estimate["fs"] = coerce_rate(estimate["fs"], context)
    row_input = coerce_rows(x, axis, precision, context)
    if row_input is None:
        return TimeFrequency(np.empty(0), np.empty(0), np.empty(np.shape(x)))
    sample_type, n_samples = row_input.sample_type, row_input.rows.shape[1]
    base_spec = stft_spec(context, sample_type.compute_dtype, scaling, estimate)
    grid = SegmentGrid.from_spec(base_spec)
    min_samples = -(-base_spec.nperseg // 2)
    if n_samples < min_samples:
        raise UsageError(
            context,
            f"the signal has {n_samples} samples",
            f"at least {min_samples} are required, half of a segment of "
            f"{base_spec.nperseg} samples",
            Advice("use a longer signal or a smaller {}", nperseg=Blank("N")),
        )
    stop = grid.stop_index(n_samples)
    padded = _pad_rows(row_input.rows, grid, stop, padding)
    spec = replace(base_spec, n_segments=stop - grid.first_index)
    caller = RowErrorContext(context, row_input.batch_shape, -grid.left_padding)
    operation = SegmentOperation(
        "spectra", spec, phase_origin(phase_shift, spec, context)
    )
    rescaled = rescale_rows(padded, spec.dtype, caller, nan)
    request = PlaceRequest(device, adapter)
    out, pick = await run_row_operation(
        operation, [rescaled.x], sample_type, request, context, strict
    )
    out = restore_output(out, operation, [rescaled], caller)
    times = np.arange(grid.first_index, stop) * spec.hop / fs
    values = row_input.restore_layout(np.swapaxes(out, 1, 2))
    return TimeFrequency.of(
        frequencies(spec, fs),
        times,
        values,
        quantity="complex",
        axis=row_input.axis - len(row_input.batch_shape) - 2,
        fs=fs,
        ran=run_info(pick, started),
    )


def stft_spec(
    context: str, kind: str, scaling: Scaling | None, estimate: dict[str, Any]
) -> WelchSpec:
    """Return the estimate of one segment, for a signal of any length."""
    if scaling is not None:
        check_choice("scaling", scaling, ("magnitude", "psd"), context)
    options = {**estimate, "scaling": _SCALING_NAMES[scaling]}
    return segment_spec(context, None, kind, half_overlap, **options)


def phase_origin(phase_shift: int | None, spec: WelchSpec, context: str) -> int:
    """Return the sample of a padded segment at which phases are zero."""
    if phase_shift is None:
        return 0
    shift, n = coerce_integer("phase_shift", phase_shift, context), spec.nperseg
    if not -n < shift < n:
        rule = f"must be above {-n} and below {n}, the length of a segment"
        raise UsageError(context, f"phase_shift is {shift}", rule)
    return (shift + n // 2) % n


def _pad_rows(x: Array, grid: SegmentGrid, stop_index: int, padding: Padding) -> Array:
    """Return the rows padded or cut to reach from the start of the first segment to the
    end of the last.
    """
    left = grid.left_padding
    right = (
        (stop_index - 1 - grid.first_index) * grid.hop
        + grid.nperseg
        - left
        - x.shape[1]
    )
    kept_samples = x if right >= 0 else x[:, :right]
    return np.pad(
        kept_samples, ((0, 0), (left, max(0, right))), **_PAD_OPTIONS[padding]
    )
