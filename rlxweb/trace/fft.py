"""NumPy's Fourier transforms (numpy.fft) of traced arrays, in NumPy's dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.trace.complex_ufuncs import real_and_imag
from rlxweb.trace.numpy_dispatch import implements
from rlxweb.trace.reshaping_and_joining import moveaxis
from rlxweb.trace.trace import Trace
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.traced_array import TracedArray


def _cast_for_fft(t: Trace, x: TracedArray, name: str) -> Any:
    """Cast to the dtype that NumPy transforms this dtype in. Errors  DTypeError for
    float16 …
    """
    fft_dtype = getattr(np.fft, name)(np.zeros(2, x.dtype)).dtype
    fft_dtype = t.effective_dtype(fft_dtype)
    if fft_dtype.kind == "c" and name == "rfft":
        fft_dtype = np.empty(0, fft_dtype).real.dtype
    if fft_dtype.kind != "c" and name == "irfft":
        fft_dtype = np.result_type(fft_dtype, np.complex64)
    return t.cast(x, fft_dtype)


def _crop_or_pad_axis(x: Any, n: Any, axis: int) -> Any:
    """Crop or zero-pad an axis to n elements, and move it last."""
    fft_axis = normalize_axis(axis, x.ndim)
    moved_array: Any = moveaxis(x.trace, x, fft_axis, -1)
    length = moved_array.shape[-1]
    if n is None or n == length:
        return moved_array
    if n < 1:
        raise trace_error("np.fft", f"n is {n}", "n must be >= 1")
    if n < length:
        return moved_array[..., :n]
    widths = [(0, 0)] * (moved_array.ndim - 1) + [(0, n - length)]
    return np.pad(moved_array, widths)


def _complex_to_block(t: Trace, x: TracedArray) -> Tensor:
    """Return complex values as the graph's transforms take them: reals, then
    imaginaries.
    """
    re, im = real_and_imag(x)
    return t.graph.concat([re.re, im.re], x.ndim - 1)


def _block_to_complex(t: Trace, block: Tensor, axis: int, dtype: Any) -> Any:
    re, im = t.graph.split_block(block)
    return moveaxis(t, TracedArray(t, re, im, dtype), -1, axis)


def _register_fft(name: str, inverse: bool) -> None:
    def implementation(
        t: Trace,
        a: Any,
        n: Any = None,
        axis: int = -1,
        norm: Any = None,
        out: Any = None,
    ) -> Any:
        x = _crop_or_pad_axis(_cast_for_fft(t, t.as_traced(a), name), n, axis)
        complex_dtype = np.result_type(x.dtype, np.complex64)
        norm = _NORMS[inverse].get(norm, norm)
        result = t.graph.fft(_complex_to_block(t, x), inverse, norm)
        return _block_to_complex(t, result, normalize_axis(axis, x.ndim), complex_dtype)

    implements(getattr(np.fft, name))(implementation)


# "forward" divides the forward transform, which the graph's names have as another's.
_NORMS: dict[bool, dict[Any, Any]] = {False: {}, True: {}}
_register_fft("fft", False)
_register_fft("ifft", True)


@implements(np.fft.rfft)
def _rfft(
    t: Trace, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None
) -> Any:
    array = t.as_traced(a)
    if array.im is not None:
        raise trace_error("np.fft.rfft", "the array is complex", hint="use np.fft.fft")
    x = _crop_or_pad_axis(_cast_for_fft(t, array, "rfft"), n, axis)
    re, im = t.graph.rfft(x.re, norm)
    result = TracedArray(t, re, im, np.result_type(x.dtype, np.complex64))
    return moveaxis(t, result, -1, normalize_axis(axis, x.ndim))


@implements(np.fft.irfft)
def _irfft(
    t: Trace, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None
) -> Any:
    spectrum = _cast_for_fft(t, t.as_traced(a), "irfft")
    fft_axis = normalize_axis(axis, spectrum.ndim)
    count = 2 * (spectrum.shape[fft_axis] - 1) if n is None else n
    x = _crop_or_pad_axis(spectrum, count // 2 + 1, axis)
    re, im = real_and_imag(x)
    result = t.graph.irfft(re.re, im.re, count, norm)
    real_dtype = np.empty(0, x.dtype).real.dtype
    return moveaxis(t, TracedArray(t, result, None, real_dtype), -1, fft_axis)


def _register_multi_axis_fft(
    name: str, single_axis_name: str, real_input: bool, real_output: bool
) -> None:
    single_axis_fft = getattr(np.fft, single_axis_name)

    default_axes = (-2, -1) if name.endswith("2") else None

    def implementation(
        t: Trace,
        a: Any,
        s: Any = None,
        axes: Any = default_axes,
        norm: Any = None,
        out: Any = None,
    ) -> Any:
        x: Any = t.as_traced(a)
        fft_axes = list(range(x.ndim)) if axes is None else list(axes)
        if axes is None and s is not None:
            fft_axes = list(range(x.ndim - len(s), x.ndim))
        sizes = [None] * len(fft_axes) if s is None else list(s)
        pairs = list(zip(fft_axes, sizes, strict=True))
        if real_input:
            x = np.fft.rfft(x, pairs[-1][1], pairs[-1][0], norm)
            pairs = pairs[:-1]
        complex_pairs = pairs[:-1] if real_output else pairs
        for axis, size in complex_pairs:
            x = single_axis_fft(x, size, axis, norm)
        return np.fft.irfft(x, pairs[-1][1], pairs[-1][0], norm) if real_output else x

    implements(getattr(np.fft, name))(implementation)


for _suffix in ("2", "n"):
    _register_multi_axis_fft(f"fft{_suffix}", "fft", False, False)
    _register_multi_axis_fft(f"ifft{_suffix}", "ifft", False, False)
    _register_multi_axis_fft(f"rfft{_suffix}", "fft", True, False)
    _register_multi_axis_fft(f"irfft{_suffix}", "ifft", False, True)
