"""Faster ways to run an op on CuPy, each behind a gate: cuFFT and kernels of our own.

Rule: deleting any row changes no result, only time. The first row whose gate opens is
taken; the op's own reference is the last resort. Worked out on paper, and not run on a
GPU yet: two or three reads of a line where the library's functions make five passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from rlxweb.backends.array_variants import along_last
from rlxweb.backends.cupy_kernels import MOST_LANES, cuda_text
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.recipes.welch_plan import (
    WelchPlan,
    centred_ramp,
    doubled_bins,
    frame_count,
    welch_plan,
)

FRAMES_BYTES = 256 << 20
"""Frames and spectra of Welch estimates that exist at once, in bytes, about."""
_SHORT = 32  # shorter lines leave most of a warp idle
_MOST_K = 32  # more searches than that cost more than a sort
_DETREND = {"none": 0, "constant": 1, "linear": 2}
_WIDE = (DType.F32, DType.F64)


def cupy_variants(cupy: Any, module: Callable[..., Any]) -> tuple[Variant, ...]:
    """The rows for CuPy's arrays.

    module   `cupy.RawModule` with the flags of the compiler put in
    """
    lines, welch = _Lines(cupy, module), _Welch(cupy, module)
    return (
        Variant("frame, a strided view", "frame", None, welch.frame),
        Variant("welch_power, cuFFT", "welch_power", _wide, welch.power),
        Variant("welch_row_peaks, cuFFT", "welch_row_peaks", _few_peaks, welch.peaks),
        Variant("power_peaks, block a row", "power_peaks", _few_peaks, lines.pairs),
        Variant("topk, block a row", "topk", _few_places, lines.places),
        Variant("softmax, block a row", "softmax", _long_lines, lines.softmax),
        Variant("layer_norm, block a row", "layer_norm", _long_lines, lines.layer_norm),
        Variant("rms_norm, block a row", "rms_norm", _long_lines, lines.rms_norm),
    )


def _wide(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    return inputs[0].dtype in _WIDE


def _long_lines(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    alike = all(one.dtype is out.dtype for one in inputs)
    return alike and along_last(inputs, out, attrs) and out.shape[-1] >= _SHORT


def _few_peaks(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    return inputs[0].dtype in _WIDE and attrs["k"] <= _MOST_K


def _few_places(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    return _few_peaks(inputs, out, attrs) and inputs[0].shape[-1] >= _SHORT


def lanes(n: int) -> int:
    """Lanes of a block for a line of n: about eight elements each, whole warps."""
    wanted = 32
    while wanted < MOST_LANES and wanted * 8 < n:
        wanted *= 2
    return wanted


class _Kernels:
    """Launches by name; a module for each element type, built when first needed."""

    def __init__(self, cupy: Any, module: Callable[..., Any]) -> None:
        self.cupy = cupy
        of_kind = cache(lambda kind: module(code=cuda_text(kind)))
        self._kernel = cache(lambda kind, name: of_kind(kind).get_function(name))

    def launch(self, name: str, like: Any, blocks: int, size: int, *given: Any) -> None:
        """Run a kernel for elements like those of `like`; ints go as 64 bits."""
        kind = "double" if like.dtype == np.float64 else "float"
        typed = (np.int64(one) if isinstance(one, int) else one for one in given)
        self._kernel(kind, name)((blocks,), (size,), tuple(typed))


class _Lines(_Kernels):
    """Ops on lines along the last axis, a block a line."""

    def softmax(self, attrs: Attrs, x: Any) -> Any:
        x = self.cupy.ascontiguousarray(x)
        out, n = self.cupy.empty(x.shape, x.dtype), x.shape[-1]
        self.launch("softmax", x, x.size // n, lanes(n), x, out, n)
        return out

    def layer_norm(self, attrs: Attrs, x: Any, gamma: Any, beta: Any) -> Any:
        return self._normed(attrs, x, gamma, beta, centred=1)

    def rms_norm(self, attrs: Attrs, x: Any, gamma: Any, beta: Any) -> Any:
        return self._normed(attrs, x, gamma, beta, centred=0)

    def _normed(
        self, attrs: Attrs, x: Any, gamma: Any, beta: Any, *, centred: int
    ) -> Any:
        x, gamma, beta = map(self.cupy.ascontiguousarray, (x, gamma, beta))
        out, n = self.cupy.empty(x.shape, x.dtype), x.shape[-1]
        how = (n, np.float64(attrs["eps"]), centred)
        self.launch("normed", x, x.size // n, lanes(n), x, gamma, beta, out, *how)
        return out

    def pairs(self, attrs: Attrs, power: Any) -> Any:
        power = self.cupy.ascontiguousarray(power)
        (rows, bins), k = power.shape, attrs["k"]
        out = self.cupy.empty((rows, 2 * k), power.dtype)
        self.launch("strongest_pairs", power, rows, lanes(bins), power, out, bins, k)
        return out

    def places(self, attrs: Attrs, x: Any) -> Any:
        x = self.cupy.ascontiguousarray(x)
        n, k = x.shape[-1], attrs["k"]
        out = self.cupy.empty((*x.shape[:-1], k), np.int32)
        self.launch("strongest_places", x, x.size // n, lanes(n), x, out, n, k)
        return out


class _Welch(_Lines):
    """Estimates in blocks: frames by one kernel, cuFFT, power and mean by another."""

    def frame(self, attrs: Attrs, x: Any) -> Any:
        size, hop = attrs["length"], attrs["hop"]
        count = frame_count(x.shape[-1], size, hop, attrs["count"])
        shape = (*x.shape[:-1], count, size)
        strides = (*x.strides[:-1], hop * x.strides[-1], x.strides[-1])
        return self.cupy.lib.stride_tricks.as_strided(x, shape, strides)

    def power(self, attrs: Attrs, x: Any, window: Any) -> Any:
        x, window = map(self.cupy.ascontiguousarray, (x, window))
        plan = welch_plan(x.shape, window.shape[0], attrs)
        ramp = self.cupy.asarray(centred_ramp(plan.n).astype(x.dtype))
        out = self.cupy.empty((plan.rows, plan.bins), x.dtype)
        each, together = blocks(plan, x.dtype.itemsize)
        for rows in _stretches(plan.rows, each):
            shape = (len(rows), plan.bins) if together < plan.segments else (1, 1)
            total = self.cupy.empty(shape, np.float64)
            part = slice(rows.start, rows.stop)
            for segments in _stretches(plan.segments, together):
                z = self._spectra(plan, x[part], window, ramp, segments)
                self._mean(plan, z, total, out[part], segments)
        return out

    def _spectra(
        self, plan: WelchPlan, x: Any, window: Any, ramp: Any, segments: range
    ) -> Any:
        many = x.shape[0] * len(segments)
        frames = self.cupy.empty((many, plan.nfft), x.dtype)
        where = (plan.width, plan.n, plan.hop, segments.start, len(segments))
        how = (*where, plan.nfft, _DETREND[plan.detrend])
        self.launch(
            "welch_frames", x, many, lanes(plan.nfft), x, window, ramp, frames, *how
        )
        return self.cupy.fft.rfft(frames, axis=-1)

    def _mean(
        self, plan: WelchPlan, z: Any, total: Any, out: Any, segments: range
    ) -> None:
        twice = doubled_bins(plan.nfft) if plan.doubling else slice(0, 0)
        factor = np.float64(plan.scale / plan.segments)
        ends = int(segments.stop == plan.segments)
        how = (twice.start, twice.stop, factor, int(not segments.start), ends)
        many = out.shape[0] * -(-plan.bins // 32)
        given = (z, total, out, plan.bins, len(segments), *how)
        self.launch("welch_mean", out, many, MOST_LANES, *given)

    def peaks(self, attrs: Attrs, x: Any, window: Any) -> Any:
        return self.pairs(attrs, self.power(attrs, x, window))


def blocks(plan: WelchPlan, itemsize: int) -> tuple[int, int]:
    """Rows, and segments of each, whose frames and spectra fit `FRAMES_BYTES`."""
    one = (plan.nfft + 2 * plan.bins) * itemsize
    fit = max(1, FRAMES_BYTES // one)
    return max(1, fit // plan.segments), min(fit, plan.segments)


def _stretches(count: int, each: int) -> Iterator[range]:
    for start in range(0, count, each):
        yield range(start, min(start + each, count))
