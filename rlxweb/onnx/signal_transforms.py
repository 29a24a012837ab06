"""Converters of DFT, STFT, MelWeightMatrix and Col2Im."""

from __future__ import annotations

from math import log10

import numpy as np

from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts
from rlxweb.onnx.reshape_transpose_slice import stack_values

Ints = tuple[int, ...]


@converts("DFT", since=17, until=19)
def _dft_with_attribute_axis(
    ctx: ConversionContext,
    x: Tensor,
    length: Tensor | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    return _transform_axis(
        ctx, x, _known_length(ctx, length), axis, (inverse, onesided)
    )


@converts("DFT", since=20)
def _dft(
    ctx: ConversionContext,
    x: Tensor,
    length: Tensor | None = None,
    axis: Tensor | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    known_axis = -2 if axis is None else int(ctx.require_number(axis, "the axis"))
    return _transform_axis(
        ctx, x, _known_length(ctx, length), known_axis, (inverse, onesided)
    )


def _known_length(ctx: ConversionContext, length: Tensor | None) -> int | None:
    """Return the transform length, or None if it is not given."""
    return None if length is None else int(ctx.require_number(length, "the length"))


def _transform_axis(
    ctx: ConversionContext,
    x: Tensor,
    n: int | None,
    axis: int,
    options: tuple[int, int],
) -> Tensor:
    """Transform one axis of real or complex numbers, whose parts are on the last
    axis.
    """
    g, (inverse, onesided) = ctx.graph, options
    axis = normalize_axis(axis, x.rank)
    if axis == x.rank - 1 or x.shape[-1] not in (1, 2):
        ctx.raise_invalid_model(
            f"axis is {axis} for an input of shape {x.shape}",
            "expected an axis before the last; the last axis must have size 1 (real) "
            "or 2 (complex)",
        )
    if n is None:
        n = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    if n < 1:
        ctx.raise_invalid_model(f"the transform length is {n}", "must be at least 1")
    parts = [
        g.moveaxis(_take_part(ctx, x, index), axis, -1) for index in range(x.shape[-1])
    ]
    if inverse and onesided:
        half = n // 2 + 1
        block = g.concat(
            [_crop_or_pad(ctx, p, half) for p in _real_and_imaginary(ctx, parts)], -1
        )
        real = g.apply("irfft", block, n=n, norm="backward")
        return stack_values(ctx, [g.moveaxis(real, -1, axis)], -1)
    if onesided:
        if len(parts) == 2:
            ctx.raise_unsupported(
                "onesided is set for a complex input",
                "a one-sided spectrum needs a real input",
            )
        block = g.rfft_block(_crop_or_pad(ctx, parts[0], n))
    else:
        padded_parts = [
            _crop_or_pad(ctx, p, n) for p in _real_and_imaginary(ctx, parts)
        ]
        block = g.fft(g.concat(padded_parts, -1), bool(inverse))
    halves = (g.moveaxis(half, -1, axis) for half in g.split_block(block))
    return stack_values(ctx, list(halves), -1)


def _take_part(ctx: ConversionContext, x: Tensor, index: int) -> Tensor:
    """Return the real (0) or imaginary (1) part from the last axis."""
    return ctx.graph.narrow(x, x.rank - 1, index, 1).reshape(x.shape[:-1])


def _real_and_imaginary(ctx: ConversionContext, parts: list[Tensor]) -> list[Tensor]:
    """Return the real and the imaginary part; a missing imaginary part is zero."""
    return parts if len(parts) == 2 else [parts[0], parts[0] * 0.0]


def _crop_or_pad(ctx: ConversionContext, x: Tensor, n: int) -> Tensor:
    """Crop the last axis, or pad it with zeros, to n elements."""
    length = x.shape[-1]
    if length >= n:
        return ctx.graph.narrow(x, x.rank - 1, 0, n)
    return ctx.graph.pad(x, [*[(0, 0)] * (x.rank - 1), (0, n - length)])


@converts("STFT", since=17)
def _stft(
    ctx: ConversionContext,
    x: Tensor,
    step: Tensor,
    window: Tensor | None = None,
    length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    g, hop = ctx.graph, int(ctx.require_number(step, "the step"))
    if length is not None:
        n = int(ctx.require_number(length, "the length"))
    elif window is not None:
        n = window.shape[0]
    else:
        ctx.raise_invalid_model("neither a window nor a frame length is given")
    if hop < 1 or not 1 <= n <= x.shape[1]:
        ctx.raise_invalid_model(
            f"the frame length is {n} and the step is {hop}",
            f"the frame length must be 1 to {x.shape[1]}, the number of samples, and "
            "the step at least 1",
        )
    x = x if x.rank == 3 else x.reshape((*x.shape, 1))
    count = (x.shape[1] - n) // hop + 1
    frames = g.moveaxis(x, 1, -1)  # batch, parts, time
    frames = g.apply("frame", frames, length=n, hop=hop, count=count)
    if window is not None:
        frames = frames * window
    return _transform_axis(ctx, g.moveaxis(frames, 1, -1), None, 2, (0, onesided))


def _hertz_to_mel(hertz: float) -> float:
    """Convert a frequency in hertz to mel."""
    return 2595.0 * log10(1.0 + hertz / 700.0)


@converts("MelWeightMatrix", since=17)
def _mel_weights(
    ctx: ConversionContext,
    bands: Tensor,
    length: Tensor,
    rate: Tensor,
    low: Tensor,
    high: Tensor,
    *,
    output_datatype: int = 1,
) -> Value:
    """Convert MelWeightMatrix: triangular filters over the bins of a spectrum, as ONNX
    defines them.
    """
    operands = {
        "num_mel_bins": bands,
        "dft_length": length,
        "sample_rate": rate,
        "lower_edge_hertz": low,
        "upper_edge_hertz": high,
    }
    count, n, fs, first, last = (
        ctx.require_number(operand, name) for name, operand in operands.items()
    )
    step = (_hertz_to_mel(last) - _hertz_to_mel(first)) / (count + 2)
    mels = _hertz_to_mel(first) + step * np.arange(count + 2)
    edges = ((n + 1) * 700.0 * (10.0 ** (mels / 2595.0) - 1.0) // fs).astype(int)
    bins = np.arange(n // 2 + 1)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    with np.errstate(all="ignore"):
        rising_slope = np.where(centre > left, (bins - left) / (centre - left), 1.0)
        falling_slope = np.where(right > centre, (right - bins) / (right - centre), 0.0)
    is_rising = (bins >= left) & (bins <= centre)
    is_falling = (bins > centre) & (bins < right)
    weights = np.where(
        is_rising, rising_slope, np.where(is_falling, falling_slope, 0.0)
    )
    return ctx.constant_value(
        weights.astype(onnx_library_access.dtype_from_onnx(output_datatype))
    )


@converts("Col2Im", since=18)
def _col2im(
    ctx: ConversionContext,
    x: Tensor,
    image: Tensor,
    block: Tensor,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """Convert Col2Im: add every element of a block at its position in the image."""
    size = ctx.require_ints(image, "the image shape")
    kernel = ctx.require_ints(block, "the block shape")
    rank = len(size)
    return ctx.graph.fold(
        x,
        size,
        kernel,
        dilations or (1,) * rank,
        pads or (0,) * (2 * rank),
        strides or (1,) * rank,
    )
