"""Inverse short-time Fourier transform, on any device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import (
    bind_arguments,
    coerce_bool,
    coerce_integer,
    suggest_misspelled_options,
)
from rlxweb.core.errors import DTypeError, NotFinite, ShapeError, UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft.by_matmul import zeros
from rlxweb.ops.welch.cpu.overlap_add import overlap_add_spectra
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.chooser import PlaceRequest
from rlxweb.signal.precision import resolve_precision
from rlxweb.signal.row_input import coerce_rate
from rlxweb.signal.row_operation_runner import Array, Shapes, run_row_operation
from rlxweb.signal.sample_input import as_samples, normalize_axis, to_physical
from rlxweb.signal.stft import Scaling, SegmentGrid, phase_origin, stft_spec

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.core.device import DeviceLike
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.windows import WindowLike

MAX_DEVICE_OVERLAPS: Final = 32
"""Largest number of segments sharing a sample that a device adds up."""


class Restored(NamedTuple):
    """Times t (T,) in s and the signal x (…, T)."""

    t: NDArray[np.float64]
    x: NDArray[Any]


@dataclass(frozen=True, slots=True)
class InverseStftOperation:
    """Operation from spectra [B, S, F] back to rows [B, n_samples]. See `RowOperation`.

    spec      of the forward transform, its window the dual one
    n_skipped  samples before the signal begins
    n_samples  samples of the signal
    """

    spec: WelchSpec
    phase_origin: int
    n_skipped: int
    n_samples: int

    input_names = ("spectra",)

    @property
    def overlaps(self) -> int:
        """Number of segments that share a sample."""
        return -(-self.spec.nperseg // self.spec.hop)

    @property
    def host_only_reason(self) -> str:
        if self.overlaps > MAX_DEVICE_OVERLAPS:
            return (
                f"{self.overlaps} segments overlap at each sample, but every device "
                f"except the CPU supports at most {MAX_DEVICE_OVERLAPS} overlapping "
                "segments"
            )
        return self.spec.host_only_reason

    @property
    def nbytes(self) -> int:
        return len(self.spec.window)

    @property
    def cache_key(self) -> InverseStftOperation:
        return self

    def compute_on_host(self, *rows: Array) -> Array:
        (z,) = rows
        spec = self.spec
        if z.dtype.kind != "c":
            z = z.view(np.result_type(z.dtype, np.complex64))
        out = overlap_add_spectra(
            z,
            spec.window_array,
            spec.hop,
            spec.nfft,
            shift=self.phase_origin,
            one_sided=spec.one_sided,
        )
        return out[:, self.n_skipped : self.n_skipped + self.n_samples]

    def build_graph(self, shapes: Shapes) -> Graph:
        """Return the graph for complex values as interleaved pairs (re, im): [B, S,
        2F].
        """
        spec = self.spec
        rows, count, width = shapes[0]
        g = Graph("istft")
        pairs = g.reshape(g.input("spectra", shapes[0], "f32"), (rows, count, -1, 2))
        re, im = (
            g.reshape(g.narrow(pairs, 3, part, 1), (rows, count, width // 2))
            for part in (0, 1)
        )
        frames = g.irfft(re, im, spec.nfft)
        if self.phase_origin:
            split = spec.nfft - self.phase_origin
            tail = g.narrow(frames, 2, split, self.phase_origin)
            head = g.narrow(frames, 2, 0, split)
            frames = g.concat([tail, head], axis=2)
        frames = g.narrow(frames, 2, 0, spec.nperseg)
        frames = frames * g.constant(spec.window_array, "f32")
        signal = _overlap_add(g, frames, spec.hop, self.overlaps)
        g.set_outputs([g.narrow(signal, 1, self.n_skipped, self.n_samples)])
        return g

    def convert_graph_output(self, out: Array) -> Array:
        return out

    def row_width(self, shapes: Shapes) -> int:
        return max(shapes[0][1] * shapes[0][2], self.n_samples)


def _overlap_add(g: Graph, frames: Tensor, hop: int, overlaps: int) -> Tensor:
    """Add frames [B, S, n] up, one every hop: [B, (S + overlaps - 1) · hop]."""
    rows, count, n = frames.shape
    n_padding = overlaps * hop - n
    if n_padding:
        frames = g.concat(
            [frames, zeros(g, (rows, count, n_padding), DType.F32)], axis=2
        )
    total: Tensor | None = None
    for k in range(overlaps):
        blocks = [g.narrow(frames, 2, k * hop, hop)]
        if k:
            blocks.insert(0, zeros(g, (rows, k, hop), DType.F32))
        if k < overlaps - 1:
            blocks.append(zeros(g, (rows, overlaps - 1 - k, hop), DType.F32))
        shifted = g.concat(blocks, axis=1) if len(blocks) > 1 else blocks[0]
        total = shifted if total is None else total + shifted
    assert total is not None
    return g.reshape(total, (rows, (count + overlaps - 1) * hop))


@suggest_misspelled_options
def istft(
    values: ArrayLike,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = "hann",
    nperseg: int | None = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    *,
    n: int | None = None,
    return_onesided: bool = True,
    scaling: Scaling | None = None,
    phase_shift: int | None = 0,
    axis: int = -2,
    time_axis: int = -1,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    strict: bool = False,
) -> Restored:
    """Signal of a short-time Fourier transform: the inverse of `stft`.

    Shapes   values (…, F, S), frequencies on `axis` and segments on `time_axis`, from
             the first that `stft` gives → t (T,), x (…, T)
    n        samples of the signal; None: as far as the last segment reaches
    Numerics complex64 in → float32 out, on any engine; complex128 → float64 on the CPU
    Errors   UsageError where the window leaves samples that no segment tells of, where
             the segments do not reach n samples, or are not as many bins as nfft gives;
             NotFinite for NaN or infinity; DTypeError, Unsupported as `stft`
    Source   canonical dual window, scipy.signal.ShortTimeFFT.istft; every argument has
             the meaning and the default that it has in `stft`
    """
    return run_blocking(_istft(**locals()))


async def istft_async(
    values: ArrayLike, fs: float = 1.0, *arguments: Any, **options: Any
) -> Restored:
    """Compute `istft` without blocking the event loop."""
    bound_arguments = bind_arguments(
        istft, "istft_async", values, fs, *arguments, **options
    )
    return await await_or_offload(lambda: _istft(**bound_arguments))


async def _istft(
    values: ArrayLike,
    n: int | None,
    axis: int,
    time_axis: int,
    scaling: Scaling | None,
    phase_shift: int | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    strict: bool,
    return_onesided: bool,
    **estimate: Any,
) -> Restored:
    """Compute the inverse short-time Fourier transform; see `istft`."""
    context = "istft"
    strict = coerce_bool("strict", strict, context)
    fs = estimate["fs"] = coerce_rate(estimate["fs"], context)
    spectra, sample_type = _coerce_spectra(values, axis, time_axis, precision, context)
    one_sided = coerce_bool("return_onesided", return_onesided, context)
    kind = sample_type.compute_dtype if one_sided else sample_type.input_dtype
    estimate |= {"return_onesided": one_sided, "detrend": None}
    forward_spec = stft_spec(context, kind, scaling, estimate)
    batch, (count, bins) = spectra.shape[:-2], spectra.shape[-2:]
    if bins != forward_spec.n_freqs:
        raise ShapeError(
            context,
            f"got {bins} bins on axis {axis}",
            f"expected {forward_spec.n_freqs} for nfft {forward_spec.nfft}",
            "pass the window, nperseg and nfft of the forward transform",
        )
    if not count:
        message = f"there are no segments on axis {time_axis}"
        raise UsageError(
            context, message, "at least 1 is required", "pass the result of stft"
        )
    grid = SegmentGrid.from_spec(forward_spec)
    max_length = (
        (count - 1) * forward_spec.hop + forward_spec.nperseg - grid.left_padding
    )
    length = max_length if n is None else coerce_integer("n", n, context)
    if not 1 <= length <= max_length:
        raise UsageError(
            context,
            f"n is {length}",
            f"must be 1 to {max_length}, the length that {count} segments "
            f"with a hop of {forward_spec.hop} cover",
            "leave n out to get all samples",
        )
    dual = _dual_window(forward_spec, context)
    spec = replace(forward_spec, window=dual.tobytes(), n_segments=count)
    operation = InverseStftOperation(
        spec, phase_origin(phase_shift, spec, context), grid.left_padding, length
    )
    rows = spectra.reshape(-1, count, bins)
    if sample_type.compute_dtype == "float32" and one_sided:
        rows = np.ascontiguousarray(rows).view(np.float32)
    out, _ = await run_row_operation(
        operation, [rows], sample_type, PlaceRequest(device, adapter), context, strict
    )
    return Restored(np.arange(length) / fs, out.reshape(*batch, length))


def _coerce_spectra(
    values: ArrayLike,
    axis: int,
    time_axis: int,
    precision: Precision | None,
    context: str,
) -> tuple[Array, Any]:
    """Return finite spectra (…, S, F), and the sample type of their real signal."""
    array = to_physical(
        as_samples(values, context), context, "the spectra must be in host memory"
    )
    if array.dtype.kind != "c":
        array = array + 0j
    if array.ndim < 2:
        raise ShapeError(
            context, f"the spectra have shape {array.shape}", "expected rank >= 2"
        )
    frequency_index, time_index = (
        normalize_axis(axis_number, array.ndim, context)
        for axis_number in (axis, time_axis)
    )
    if frequency_index == time_index:
        raise ShapeError(
            context,
            f"axis and time_axis are both {frequency_index}",
            "must be different axes",
        )
    if not np.isfinite(array).all():
        bad_index = np.unravel_index(int((~np.isfinite(array)).argmax()), array.shape)
        raise NotFinite(
            context,
            f"the value at {[int(i) for i in bad_index]} is {array[bad_index]}",
            f"{int((~np.isfinite(array)).sum())} of {array.size} values are not finite",
        )
    if array.dtype.itemsize > 16:
        raise DTypeError(
            context,
            f"the spectra are {array.dtype}",
            "expected complex64 or complex128",
        )
    sample_type = resolve_precision(array.dtype, precision, context)
    is_single = sample_type.compute_dtype == "complex64"
    array = array.astype(np.complex64 if is_single else np.complex128, copy=False)
    real_sample_type = replace(
        sample_type, compute_dtype="float32" if is_single else "float64"
    )
    return np.moveaxis(array, (time_index, frequency_index), (-2, -1)), real_sample_type


def _dual_window(spec: WelchSpec, context: str) -> NDArray[np.float64]:
    """Return the canonical dual window. Raises UsageError where there is none."""
    window = spec.window_array * np.sqrt(spec.scale)
    squares = window * window
    total = squares.copy()
    for k in range(spec.hop, spec.nperseg, spec.hop):
        total[k:] += squares[:-k]
        total[:-k] += squares[k:]
    min_total = np.finfo(np.float64).resolution * total.max()
    if not (total >= min_total).all() or not total.max():
        sample = int((total < min_total).argmax())
        raise UsageError(
            context,
            f"sample {sample} of each hop of {spec.hop} samples cannot be "
            "reconstructed",
            f"all overlapping windows are zero there; segments overlap by "
            f"{spec.nperseg - spec.hop} samples",
            Advice("use a larger {} or another window", noverlap=Blank("N")),
        )
    dual: NDArray[np.float64] = window / total
    return dual
