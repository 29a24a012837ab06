"""Overlapping frames of rows, and the short-time Fourier transform computed from them.

A frame is a view: consecutive frames share values and nothing is copied until an op
needs them dense. Windows and padding are the caller's business.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, View
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, no_flops, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import batch_broadcast
from rlxweb.ops.fft.op import (
    FFT_TOLERANCE,
    complex_to_block,
    fft_flops,
    float_cases,
    row_length,
)
from rlxweb.ops.layout.windows_frames_vjp import overlap_add
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.welch.parameters import frame_count

_FRAME_ATTRS = (Attr("length", "int", at_least=1), Attr("hop", "int", at_least=1))


def _infer_frame(types: Types, attrs: Attrs) -> TensorType:
    width = row_length(types[0], "frame")
    count = frame_count(width, attrs["length"], attrs["hop"], attrs["count"])
    shape = (*types[0].shape[:-1], count, attrs["length"])
    return TensorType(shape, types[0].dtype)


def extract_frames(xp: Any, x: Any, size: int, hop: int, count: int) -> Any:
    """Return frames [..., count, size] of the last axis."""
    index = xp.arange(count)[:, None] * hop + xp.arange(size)[None, :]
    samples = xp.take(x, index.reshape(-1), axis=-1)
    return samples.reshape(*x.shape[:-1], count, size)


def _frame_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    size, hop = attrs["length"], attrs["hop"]
    count = frame_count(x.shape[-1], size, hop, attrs["count"])
    return extract_frames(xp, x, size, hop, count)


def _infer_stft(types: Types, attrs: Attrs) -> TensorType:
    size = attrs["length"]
    count = frame_count(row_length(types[0], "stft"), size, attrs["hop"], 0)
    shape = (count, *types[0].shape[:-1], 2 * (size // 2 + 1))
    return TensorType(shape, types[0].dtype)


def _stft_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    frames = _frame_reference(xp, {**attrs, "count": 0}, x)
    spectra = xp.fft.rfft(widen_float16(xp, frames), axis=-1)
    return xp.moveaxis(complex_to_block(xp, spectra, x.dtype), -2, 0)


def _build_stft(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    frames = g.frame(x, attrs["length"], attrs["hop"])
    frame_axis = frames.rank - 2
    # Put in order before they are transformed: they are copied there anyway.
    other_axes = [axis for axis in range(frames.rank) if axis != frame_axis]
    return g.rfft_block(g.transpose(frames, (frame_axis, *other_axes)))


def _frame_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Add the gradients of frames up where the frames came from."""
    return [overlap_add(ctx.grad, ctx.attrs["hop"], 1, ctx.x.shape[-1])]


_FRAME_SAMPLES = (
    *float_cases(((3, 10), (10,)), ({"length": 4, "hop": 2}, {"length": 3, "hop": 5})),
    *float_cases(((2, 3, 97),), ({"length": 13, "hop": 1}, {"length": 97, "hop": 7})),
    *float_cases(((2, 50),), ({"length": 10, "hop": 5, "count": 3},)),
    *float_cases(((1,), (0, 7), (65_537, 3)), ({"length": 1, "hop": 1},)),
    Sample((Drawn((2, 9), DType.I32),), {"length": 4, "hop": 3}),
    Sample((Drawn((2, 9), DType.BOOL),), {"length": 4, "hop": 3}),
    Sample((Drawn((2, 9), DType.F64),), {"length": 4, "hop": 3}),
)
_STFT_SAMPLES = (
    *float_cases(((100,), (3, 100), (2, 2, 40)), ({"length": 16, "hop": 8},)),
    *float_cases(
        ((2, 40), (0, 40)), ({"length": 7, "hop": 3}, {"length": 40, "hop": 9})
    ),
    *float_cases(((1,), (65_537, 2)), ({"length": 1, "hop": 1},)),
    Sample((Drawn((2, 40), DType.F64),), {"length": 7, "hop": 3}),
)

registry.register_all(
    Op(
        name="frame",
        infer=_infer_frame,
        reference=_frame_reference,
        lower=View(
            lambda layout, out, attrs: layout.frame(
                attrs["length"], attrs["hop"], out[-2]
            )
        ),
        attrs=(*_FRAME_ATTRS, Attr("count", "int", 0, at_least=0)),
        traits=frozenset({"view"}),
        flops=no_flops,
        samples=_FRAME_SAMPLES,
        vjp=_frame_vjp,
        batch=batch_broadcast,
        doc="Frames [..., count, length] of the last axis, one every `hop` elements. "
        "With count=0, there are as many frames as fit.",
    ),
    Op(
        name="stft",
        infer=_infer_stft,
        reference=_stft_reference,
        lower=Compose(_build_stft),
        attrs=_FRAME_ATTRS,
        traits=frozenset({"spectral", "floats_only"}),
        flops=fft_flops,
        tolerance=FFT_TOLERANCE,
        samples=_STFT_SAMPLES,
        doc="Short-time spectra [frames, ..., 2F] of the last axis (F real parts, "
        "then F imaginary parts), without window or padding. A frame has `length` "
        "elements; one begins every `hop` elements.",
    ),
)
