"""Fourier transforms, mel weights, and columns put back into images."""

from __future__ import annotations

from math import log10

import numpy as np

from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import library
from rlxweb.onnx.converters import Call, Value, converts
from rlxweb.onnx.movement import stacked

Ints = tuple[int, ...]


@converts("DFT", since=17, until=19)
def _old_dft(
    call: Call,
    x: Tensor,
    length: Tensor | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    return _transformed(call, x, _length(call, length), axis, (inverse, onesided))


@converts("DFT", since=20)
def _dft(
    call: Call,
    x: Tensor,
    length: Tensor | None = None,
    axis: Tensor | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    along = -2 if axis is None else int(call.number(axis, "the axis"))
    return _transformed(call, x, _length(call, length), along, (inverse, onesided))


def _length(call: Call, length: Tensor | None) -> int | None:
    return None if length is None else int(call.number(length, "the length"))


def _transformed(
    call: Call, x: Tensor, n: int | None, axis: int, how: tuple[int, int]
) -> Tensor:
    """A transform along an axis of numbers whose parts lie on the last axis."""
    g, (inverse, onesided) = call.g, how
    axis = normal_axis(axis, x.rank)
    if axis == x.rank - 1 or x.shape[-1] not in (1, 2):
        call.contradict(
            f"axis {axis} of {x.shape}", "the last axis has 1 or 2 parts of numbers"
        )
    if n is None:
        n = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    if n < 1:
        call.contradict(f"a length of {n}", "1 or more")
    parts = [g.moveaxis(_part(call, x, at), axis, -1) for at in range(x.shape[-1])]
    if inverse and onesided:
        half = n // 2 + 1
        block = g.concat([_fitted(call, p, half) for p in _both(call, parts)], -1)
        real = g.apply("irfft", block, n=n, norm="backward")
        return stacked(call, [g.moveaxis(real, -1, axis)], -1)
    if onesided:
        if len(parts) == 2:
            call.refuse("half a spectrum of complex numbers", "of real ones there is")
        block = g.rfft_block(_fitted(call, parts[0], n))
    else:
        whole = [_fitted(call, p, n) for p in _both(call, parts)]
        block = g.fft(g.concat(whole, -1), bool(inverse))
    halves = (g.moveaxis(half, -1, axis) for half in g.split_block(block))
    return stacked(call, list(halves), -1)


def _part(call: Call, x: Tensor, at: int) -> Tensor:
    return call.g.narrow(x, x.rank - 1, at, 1).reshape(x.shape[:-1])


def _both(call: Call, parts: list[Tensor]) -> list[Tensor]:
    """The real and the imaginary part; none is zero."""
    return parts if len(parts) == 2 else [parts[0], parts[0] * 0.0]


def _fitted(call: Call, x: Tensor, n: int) -> Tensor:
    """The last axis cut, or filled with zeros, to n elements."""
    have = x.shape[-1]
    if have >= n:
        return call.g.narrow(x, x.rank - 1, 0, n)
    return call.g.pad(x, [*[(0, 0)] * (x.rank - 1), (0, n - have)])


@converts("STFT", since=17)
def _stft(
    call: Call,
    x: Tensor,
    step: Tensor,
    window: Tensor | None = None,
    length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    g, hop = call.g, int(call.number(step, "the step"))
    if length is not None:
        n = int(call.number(length, "the length"))
    elif window is not None:
        n = window.shape[0]
    else:
        call.contradict("neither a window nor a length is given")
    if hop < 1 or not 1 <= n <= x.shape[1]:
        call.contradict(
            f"frames of {n}, {hop} apart, of {x.shape[1]}", "at least one fits"
        )
    x = x if x.rank == 3 else x.reshape((*x.shape, 1))
    count = (x.shape[1] - n) // hop + 1
    frames = g.moveaxis(x, 1, -1)  # batch, parts, time
    frames = g.apply("frame", frames, length=n, hop=hop, count=count)
    if window is not None:
        frames = frames * window
    return _transformed(call, g.moveaxis(frames, 1, -1), None, 2, (0, onesided))


def _mel(hertz: float) -> float:
    return 2595.0 * log10(1.0 + hertz / 700.0)


@converts("MelWeightMatrix", since=17)
def _mel_weights(
    call: Call,
    bands: Tensor,
    length: Tensor,
    rate: Tensor,
    low: Tensor,
    high: Tensor,
    *,
    output_datatype: int = 1,
) -> Value:
    """Triangles over the bins of a spectrum, as ONNX places them."""
    given = (bands, length, rate, low, high)
    count, n, fs, first, last = (call.number(v, "a number of it") for v in given)
    step = (_mel(last) - _mel(first)) / (count + 2)
    mels = _mel(first) + step * np.arange(count + 2)
    edges = ((n + 1) * 700.0 * (10.0 ** (mels / 2595.0) - 1.0) // fs).astype(int)
    bins = np.arange(n // 2 + 1)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    with np.errstate(all="ignore"):
        up = np.where(centre > left, (bins - left) / (centre - left), 1.0)
        down = np.where(right > centre, (right - bins) / (right - centre), 0.0)
    rising, falling = (
        (bins >= left) & (bins <= centre),
        (bins > centre) & (bins < right),
    )
    found = np.where(rising, up, np.where(falling, down, 0.0))
    return call.hold(found.astype(library.dtype_of(output_datatype)))


@converts("Col2Im", since=18)
def _columns_to_image(
    call: Call,
    x: Tensor,
    image: Tensor,
    block: Tensor,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """Every element of a block added where it lies in the image."""
    size, kernel = call.ints(image, "the image"), call.ints(block, "the block")
    rank = len(size)
    return call.g.fold(
        x,
        size,
        kernel,
        dilations or (1,) * rank,
        pads or (0,) * (2 * rank),
        strides or (1,) * rank,
    )
