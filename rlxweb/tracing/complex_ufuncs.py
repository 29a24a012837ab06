"""NumPy's ufuncs over complex traced arrays: two tensors each, and what they become."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlxweb.tracing.place import refused
from rlxweb.tracing.table import COMPLEX, numpys
from rlxweb.tracing.trace import Trace
from rlxweb.tracing.traced import Traced
from rlxweb.tracing.ufuncs import hypot, sum_of_squares

MOST_FACTORS = 100
"""Whole exponents below it are products of the base, as in NumPy's complex power."""


def parts(x: Traced) -> tuple[Traced, Traced]:
    """The real and the imaginary part, of a real array zeros."""
    kind = x.re.dtype.numpy if x.im is not None else x.dtype
    re = Traced(x.trace, x.re, None, kind)
    if x.im is None:
        return re, x.trace.lifted(np.zeros(x.shape, kind))
    return re, Traced(x.trace, x.im, None, kind)


def joined(re: Traced, im: Traced) -> Any:
    """The complex array of two real ones."""
    return Traced(re.trace, re.re, im.re)


def _each(ufunc: np.ufunc) -> Callable[..., Any]:
    def how(t: Trace, *xs: Traced) -> Any:
        every = [parts(x) for x in xs]
        re, im = (ufunc(*(p[n] for p in every)) for n in (0, 1))
        return joined(re, im)

    return how


def _multiply(t: Trace, x: Traced, y: Traced) -> Any:
    (a, b), (c, d) = parts(x), parts(y)
    return joined(a * c - b * d, a * d + b * c)


def _divide(t: Trace, x: Traced, y: Traced) -> Any:
    """Smith's way: by the larger part of the divisor, so that no square overflows."""
    (a, b), (c, d) = parts(x), parts(y)
    turned: Any = np.abs(c) < np.abs(d)
    large, small = np.where(turned, d, c), np.where(turned, c, d)
    ratio: Any = small / large
    whole: Any = large + small * ratio
    re = np.where(turned, a * ratio + b, a + b * ratio) / whole
    im = np.where(turned, b * ratio - a, b - a * ratio) / whole
    return joined(re, im)


def _absolute(t: Trace, x: Traced) -> Any:
    re, im = parts(x)
    made = Traced(t, hypot(t.graph, re.re, im.re), None, re.dtype)
    made.squared = partial(sum_of_squares, t.graph, re.re, im.re)
    return made


def square_of_abs(x: Traced) -> Traced:
    """Return |x|² as a real array, without the magnitude and its kink at 0."""
    if x.im is None:
        return Traced(x.trace, sum_of_squares(x.trace.graph, x.re), None, x.dtype)
    re, im = parts(x)
    made = sum_of_squares(x.trace.graph, re.re, im.re)
    return Traced(x.trace, made, None, re.dtype)


def _exp(t: Trace, x: Traced) -> Any:
    re, im = parts(x)
    size: Any = np.exp(re)
    return joined(size * np.cos(im), size * np.sin(im))


def _log(t: Trace, x: Traced) -> Any:
    re, im = parts(x)
    turn: Any = np.arctan2(im, re)
    # The logarithm has no slope at 0, so that of a norm would be wrong there.
    made = hypot(t.graph, re.re, im.re, lambda g, squares: g.sqrt(squares))
    size: Any = Traced(t, made, None, re.dtype)
    return joined(np.log(size), turn)


def _sqrt(t: Trace, x: Traced) -> Any:
    """Return the root with a real part that is not below 0.

    Both parts are smooth functions of both parts of x, but for the cut along the
    negative axis; the magnitudes of the parts would have kinks on both axes.
    """
    re, im = parts(x)
    forward: Any = re >= 0
    larger: Any = np.sqrt((_absolute(t, x) + np.where(forward, re, -re)) / 2)
    by: Any = np.where(larger == 0, 1, larger)
    signed: Any = np.copysign(by, im)
    whole: Any = np.where(forward, larger, im / (2 * signed))
    turned: Any = np.where(forward, im / (2 * by), signed)
    return joined(whole, turned)


def _power(t: Trace, x: Traced, y: Traced) -> Any:
    """Return products for a whole exponent, as NumPy does, else exp(y log x).

    0 to the power of 0 is 1, to another one 0.
    """
    whole = _whole_number(y)
    if whole is not None:
        return _multiplied(t, x, whole)
    zero: Any = x == 0
    made: Any = np.exp(y * np.log(np.where(zero, 1, x)))
    at_zero: Any = np.where(y == 0, 1, np.where(y == 1, x, 0))
    return np.where(zero, at_zero.astype(x.dtype), made)


def _whole_number(y: Traced) -> int | None:
    """Return an exponent that is one known whole number below 100, else None."""
    values = [0.0, 0.0]
    for n, part in enumerate((y.re,) if y.im is None else (y.re, y.im)):
        node = part.graph.node(part.id)
        if part.shape or not node.is_literal:
            return None
        values[n] = float(node.attrs["value"].array)
    re, im = values
    return None if im or re % 1 or abs(re) >= MOST_FACTORS else int(re)


def _multiplied(t: Trace, x: Traced, power: int) -> Any:
    """Return x to a whole power, by squares of squares."""
    if power < 0:
        return _divide(t, t.lifted(1, x.dtype), _multiplied(t, x, -power))
    if power < 2:
        return x.copy() if power else np.ones_like(x)
    half = _multiplied(t, x, power // 2)
    square = _multiply(t, half, half)
    return _multiply(t, square, x) if power % 2 else square


def _either(ufunc: np.ufunc, join: np.ufunc) -> Callable[..., Any]:
    def how(t: Trace, *xs: Traced) -> Any:
        every = [parts(x) for x in xs]
        return join(*(ufunc(*(p[n] for p in every)) for n in (0, 1)))

    return how


def _conjugate(t: Trace, x: Traced) -> Any:
    re, im = parts(x)
    return joined(re, -im)


def _square(t: Trace, x: Traced) -> Any:
    return _multiply(t, x, x)


COMPLEX.update(
    {
        np.add: _each(np.add),
        np.subtract: _each(np.subtract),
        np.negative: _each(np.negative),
        np.positive: lambda t, x: x.copy(),
        np.rint: _each(np.rint),
        np.multiply: _multiply,
        np.true_divide: _divide,
        np.reciprocal: lambda t, x: _divide(t, t.lifted(1, x.dtype), x),
        np.square: _square,
        np.conjugate: _conjugate,
        np.absolute: _absolute,
        np.exp: _exp,
        np.log: _log,
        np.sqrt: _sqrt,
        np.power: _power,
        np.equal: _either(np.equal, np.logical_and),
        np.not_equal: _either(np.not_equal, np.logical_or),
        np.isnan: _either(np.isnan, np.logical_or),
        np.isinf: _either(np.isinf, np.logical_or),
        np.isfinite: _either(np.isfinite, np.logical_and),
    }
)


@numpys(np.real)
def _real(t: Trace, val: Any) -> Any:
    x = t.lifted(val)
    x.viewed = True
    re = parts(x)[0]
    re.viewed = True
    return re


@numpys(np.imag)
def _imag(t: Trace, val: Any) -> Any:
    return parts(t.lifted(val))[1].copy()


@numpys(np.angle)
def _angle(t: Trace, z: Any, deg: bool = False) -> Any:
    x = t.lifted(z)
    re, im = parts(x)
    found: Any = np.arctan2(im, re)
    return found * (180 / np.pi) if deg else found


@numpys(np.real_if_close)
def _real_if_close(t: Trace, a: Any, tol: float = 100) -> Any:
    x = t.lifted(a)
    return x if x.im is None else _unknown()


def _unknown() -> Any:
    raise refused(
        "np.real_if_close", "whether it is close shows in the values", hint="use .real"
    )


@numpys(np.iscomplexobj)
def _iscomplexobj(t: Trace, x: Any) -> bool:
    return t.lifted(x).im is not None


@numpys(np.isrealobj)
def _isrealobj(t: Trace, x: Any) -> bool:
    return t.lifted(x).im is None
