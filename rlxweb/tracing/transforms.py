"""NumPy's transforms (numpy.fft) over traced arrays, in the dtypes of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing.complex_ufuncs import parts
from rlxweb.tracing.moves import moveaxis
from rlxweb.tracing.place import refused
from rlxweb.tracing.table import numpys
from rlxweb.tracing.trace import Trace
from rlxweb.tracing.traced import Traced


def _spectral(t: Trace, x: Traced, name: str) -> Any:
    """In the dtype that NumPy transforms it in. Errors  DTypeError for float16 …"""
    kind = getattr(np.fft, name)(np.zeros(2, x.dtype)).dtype
    kind = t.settled(kind)
    if kind.kind == "c" and name == "rfft":
        kind = np.empty(0, kind).real.dtype
    if kind.kind != "c" and name == "irfft":
        kind = np.result_type(kind, np.complex64)
    return t.cast(x, kind)


def _fitted(x: Any, n: Any, axis: int) -> Any:
    """An axis cut or filled with zeros to n elements, and last."""
    at = normal_axis(axis, x.ndim)
    last: Any = moveaxis(x.trace, x, at, -1)
    have = last.shape[-1]
    if n is None or n == have:
        return last
    if n < 1:
        raise refused("np.fft", f"n is {n}", "at least 1 is needed")
    if n < have:
        return last[..., :n]
    widths = [(0, 0)] * (last.ndim - 1) + [(0, n - have)]
    return np.pad(last, widths)


def _block(t: Trace, x: Traced) -> Tensor:
    """Complex values as the graph's transforms have them: reals, then imaginaries."""
    re, im = parts(x)
    return t.graph.concat([re.re, im.re], x.ndim - 1)


def _unblocked(t: Trace, block: Tensor, axis: int, kind: Any) -> Any:
    re, im = t.graph.split_block(block)
    return moveaxis(t, Traced(t, re, im, kind), -1, axis)


def _register_fft(name: str, inverse: bool) -> None:
    def how(
        t: Trace,
        a: Any,
        n: Any = None,
        axis: int = -1,
        norm: Any = None,
        out: Any = None,
    ) -> Any:
        x = _fitted(_spectral(t, t.lifted(a), name), n, axis)
        kind = np.result_type(x.dtype, np.complex64)
        norm = _NORMS[inverse].get(norm, norm)
        made = t.graph.fft(_block(t, x), inverse, norm)
        return _unblocked(t, made, normal_axis(axis, x.ndim), kind)

    numpys(getattr(np.fft, name))(how)


# "forward" divides the forward transform, which the graph's names have as another's.
_NORMS: dict[bool, dict[Any, Any]] = {False: {}, True: {}}
_register_fft("fft", False)
_register_fft("ifft", True)


@numpys(np.fft.rfft)
def _rfft(
    t: Trace, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None
) -> Any:
    of = t.lifted(a)
    if of.im is not None:
        raise refused("np.fft.rfft", "the array is complex", hint="use np.fft.fft")
    x = _fitted(_spectral(t, of, "rfft"), n, axis)
    re, im = t.graph.rfft(x.re, norm)
    made = Traced(t, re, im, np.result_type(x.dtype, np.complex64))
    return moveaxis(t, made, -1, normal_axis(axis, x.ndim))


@numpys(np.fft.irfft)
def _irfft(
    t: Trace, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None
) -> Any:
    of = _spectral(t, t.lifted(a), "irfft")
    at = normal_axis(axis, of.ndim)
    count = 2 * (of.shape[at] - 1) if n is None else n
    x = _fitted(of, count // 2 + 1, axis)
    re, im = parts(x)
    made = t.graph.irfft(re.re, im.re, count, norm)
    kind = np.empty(0, x.dtype).real.dtype
    return moveaxis(t, Traced(t, made, None, kind), -1, at)


def _register_many(name: str, of: str, first_real: bool, last_real: bool) -> None:
    one = getattr(np.fft, of)

    last_two = (-2, -1) if name.endswith("2") else None

    def how(
        t: Trace,
        a: Any,
        s: Any = None,
        axes: Any = last_two,
        norm: Any = None,
        out: Any = None,
    ) -> Any:
        x: Any = t.lifted(a)
        on = list(range(x.ndim)) if axes is None else list(axes)
        if axes is None and s is not None:
            on = list(range(x.ndim - len(s), x.ndim))
        sizes = [None] * len(on) if s is None else list(s)
        pairs = list(zip(on, sizes, strict=True))
        if first_real:
            x = np.fft.rfft(x, pairs[-1][1], pairs[-1][0], norm)
            pairs = pairs[:-1]
        rest = pairs[:-1] if last_real else pairs
        for axis, size in rest:
            x = one(x, size, axis, norm)
        return np.fft.irfft(x, pairs[-1][1], pairs[-1][0], norm) if last_real else x

    numpys(getattr(np.fft, name))(how)


for _end in ("2", "n"):
    _register_many(f"fft{_end}", "fft", False, False)
    _register_many(f"ifft{_end}", "ifft", False, False)
    _register_many(f"rfft{_end}", "fft", True, False)
    _register_many(f"irfft{_end}", "ifft", False, True)
