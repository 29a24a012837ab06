"""NumPy ufuncs on complex traced arrays, computed on pairs of real tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlxweb.trace.numpy_dispatch import COMPLEX_UFUNCS, implements
from rlxweb.trace.trace import Trace
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.traced_array import TracedArray
from rlxweb.trace.ufuncs import hypot, sum_of_squares

MAX_INTEGER_POWER = 100
"""Integer exponents below this are computed as products of the base, as in NumPy's
complex power.
"""


def real_and_imag(x: TracedArray) -> tuple[TracedArray, TracedArray]:
    """Return the real and the imaginary part; the imaginary part of a real array is
    zeros.
    """
    real_dtype = x.re.dtype.numpy if x.im is not None else x.dtype
    re = TracedArray(x.trace, x.re, None, real_dtype)
    if x.im is None:
        return re, x.trace.as_traced(np.zeros(x.shape, real_dtype))
    return re, TracedArray(x.trace, x.im, None, real_dtype)


def make_complex(re: TracedArray, im: TracedArray) -> Any:
    """Return the complex array with these real and imaginary parts."""
    return TracedArray(re.trace, re.re, im.re)


def _apply_per_part(ufunc: np.ufunc) -> Callable[..., Any]:
    def implementation(t: Trace, *xs: TracedArray) -> Any:
        part_pairs = [real_and_imag(x) for x in xs]
        re, im = (ufunc(*(p[n] for p in part_pairs)) for n in (0, 1))
        return make_complex(re, im)

    return implementation


def _multiply(t: Trace, x: TracedArray, y: TracedArray) -> Any:
    (a, b), (c, d) = real_and_imag(x), real_and_imag(y)
    return make_complex(a * c - b * d, a * d + b * c)


def _divide(t: Trace, x: TracedArray, y: TracedArray) -> Any:
    """Divide by Smith's method: scale by the larger part of the divisor, so that no
    square overflows.
    """
    (a, b), (c, d) = real_and_imag(x), real_and_imag(y)
    is_imag_larger: Any = np.abs(c) < np.abs(d)
    large, small = np.where(is_imag_larger, d, c), np.where(is_imag_larger, c, d)
    ratio: Any = small / large
    denominator: Any = large + small * ratio
    re = np.where(is_imag_larger, a * ratio + b, a + b * ratio) / denominator
    im = np.where(is_imag_larger, b * ratio - a, b - a * ratio) / denominator
    return make_complex(re, im)


def _absolute(t: Trace, x: TracedArray) -> Any:
    re, im = real_and_imag(x)
    magnitude = TracedArray(t, hypot(t.graph, re.re, im.re), None, re.dtype)
    magnitude.make_square = partial(sum_of_squares, t.graph, re.re, im.re)
    return magnitude


def square_of_abs(x: TracedArray) -> TracedArray:
    """Return |x|² as a real array, without the magnitude and its kink at 0."""
    if x.im is None:
        return TracedArray(x.trace, sum_of_squares(x.trace.graph, x.re), None, x.dtype)
    re, im = real_and_imag(x)
    squares = sum_of_squares(x.trace.graph, re.re, im.re)
    return TracedArray(x.trace, squares, None, re.dtype)


def _exp(t: Trace, x: TracedArray) -> Any:
    re, im = real_and_imag(x)
    magnitude: Any = np.exp(re)
    return make_complex(magnitude * np.cos(im), magnitude * np.sin(im))


def _log(t: Trace, x: TracedArray) -> Any:
    re, im = real_and_imag(x)
    angle: Any = np.arctan2(im, re)
    # The logarithm has no slope at 0, so that of a norm would be wrong there.
    magnitude_tensor = hypot(t.graph, re.re, im.re, lambda g, squares: g.sqrt(squares))
    magnitude: Any = TracedArray(t, magnitude_tensor, None, re.dtype)
    return make_complex(np.log(magnitude), angle)


def _sqrt(t: Trace, x: TracedArray) -> Any:
    """Return the root with a real part that is not below 0.

    Both parts are smooth functions of both parts of x, but for the cut along the
    negative axis; the magnitudes of the parts would have kinks on both axes.
    """
    re, im = real_and_imag(x)
    is_right_half: Any = re >= 0
    larger: Any = np.sqrt((_absolute(t, x) + np.where(is_right_half, re, -re)) / 2)
    safe_larger: Any = np.where(larger == 0, 1, larger)
    signed: Any = np.copysign(safe_larger, im)
    root_re: Any = np.where(is_right_half, larger, im / (2 * signed))
    root_im: Any = np.where(is_right_half, im / (2 * safe_larger), signed)
    return make_complex(root_re, root_im)


def _power(t: Trace, x: TracedArray, y: TracedArray) -> Any:
    """Return products for an integer exponent, as NumPy does, else exp(y log x).

    0 to the power of 0 is 1, to another one 0.
    """
    exponent = _integer_exponent(y)
    if exponent is not None:
        return _integer_power(t, x, exponent)
    is_zero: Any = x == 0
    power: Any = np.exp(y * np.log(np.where(is_zero, 1, x)))
    at_zero: Any = np.where(y == 0, 1, np.where(y == 1, x, 0))
    return np.where(is_zero, at_zero.astype(x.dtype), power)


def _integer_exponent(y: TracedArray) -> int | None:
    """Return an exponent that is one known integer below 100 in magnitude, else
    None.
    """
    values = [0.0, 0.0]
    for n, part in enumerate((y.re,) if y.im is None else (y.re, y.im)):
        node = part.graph.node(part.id)
        if part.shape or not node.is_literal:
            return None
        values[n] = float(node.attrs["value"].array)
    re, im = values
    return None if im or re % 1 or abs(re) >= MAX_INTEGER_POWER else int(re)


def _integer_power(t: Trace, x: TracedArray, power: int) -> Any:
    """Return x to an integer power by repeated squaring."""
    if power < 0:
        return _divide(t, t.as_traced(1, x.dtype), _integer_power(t, x, -power))
    if power < 2:
        return x.copy() if power else np.ones_like(x)
    half = _integer_power(t, x, power // 2)
    square = _multiply(t, half, half)
    return _multiply(t, square, x) if power % 2 else square


def _combine_parts(ufunc: np.ufunc, combine: np.ufunc) -> Callable[..., Any]:
    def implementation(t: Trace, *xs: TracedArray) -> Any:
        part_pairs = [real_and_imag(x) for x in xs]
        return combine(*(ufunc(*(p[n] for p in part_pairs)) for n in (0, 1)))

    return implementation


def _conjugate(t: Trace, x: TracedArray) -> Any:
    re, im = real_and_imag(x)
    return make_complex(re, -im)


def _square(t: Trace, x: TracedArray) -> Any:
    return _multiply(t, x, x)


COMPLEX_UFUNCS.update(
    {
        np.add: _apply_per_part(np.add),
        np.subtract: _apply_per_part(np.subtract),
        np.negative: _apply_per_part(np.negative),
        np.positive: lambda t, x: x.copy(),
        np.rint: _apply_per_part(np.rint),
        np.multiply: _multiply,
        np.true_divide: _divide,
        np.reciprocal: lambda t, x: _divide(t, t.as_traced(1, x.dtype), x),
        np.square: _square,
        np.conjugate: _conjugate,
        np.absolute: _absolute,
        np.exp: _exp,
        np.log: _log,
        np.sqrt: _sqrt,
        np.power: _power,
        np.equal: _combine_parts(np.equal, np.logical_and),
        np.not_equal: _combine_parts(np.not_equal, np.logical_or),
        np.isnan: _combine_parts(np.isnan, np.logical_or),
        np.isinf: _combine_parts(np.isinf, np.logical_or),
        np.isfinite: _combine_parts(np.isfinite, np.logical_and),
    }
)


@implements(np.real)
def _real(t: Trace, val: Any) -> Any:
    x = t.as_traced(val)
    x.is_view = True
    re = real_and_imag(x)[0]
    re.is_view = True
    return re


@implements(np.imag)
def _imag(t: Trace, val: Any) -> Any:
    return real_and_imag(t.as_traced(val))[1].copy()


@implements(np.angle)
def _angle(t: Trace, z: Any, deg: bool = False) -> Any:
    x = t.as_traced(z)
    re, im = real_and_imag(x)
    radians: Any = np.arctan2(im, re)
    return radians * (180 / np.pi) if deg else radians


@implements(np.real_if_close)
def _real_if_close(t: Trace, a: Any, tol: float = 100) -> Any:
    x = t.as_traced(a)
    return x if x.im is None else _raise_value_dependent()


def _raise_value_dependent() -> Any:
    raise trace_error(
        "np.real_if_close",
        "the result dtype depends on the values, which are unknown while tracing",
        hint="use .real",
    )


@implements(np.iscomplexobj)
def _iscomplexobj(t: Trace, x: Any) -> bool:
    return t.as_traced(x).im is not None


@implements(np.isrealobj)
def _isrealobj(t: Trace, x: Any) -> bool:
    return t.as_traced(x).im is None
