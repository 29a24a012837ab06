"""Overlapping frames of rows, and the short-time spectra made of them.

A frame is a view: consecutive frames share values and nothing is copied until an op
needs them dense. Windows and padding are the caller's business.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ir.batching import together
from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, View
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, no_flops, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.linalg import widened
from rlxweb.ops.overlap_back import overlapped
from rlxweb.ops.spectral import TRANSFORM, block_of, cases, fft_flops, row_length
from rlxweb.recipes.welch_plan import frame_count


def _infer_frame(types: Types, attrs: Attrs) -> TensorType:
    width = row_length(types[0], "frame")
    count = frame_count(width, attrs["length"], attrs["hop"], attrs["count"])
    shape = (*types[0].shape[:-1], count, attrs["length"])
    return TensorType(shape, types[0].dtype)


def frames_of(xp: Any, x: Any, size: int, hop: int, count: int) -> Any:
    """[..., count, size] frames of the last axis."""
    index = xp.arange(count)[:, None] * hop + xp.arange(size)[None, :]
    taken = xp.take(x, index.reshape(-1), axis=-1)
    return taken.reshape(*x.shape[:-1], count, size)


def _frame(xp: Any, attrs: Attrs, x: Any) -> Any:
    size, hop = attrs["length"], attrs["hop"]
    count = frame_count(x.shape[-1], size, hop, attrs["count"])
    return frames_of(xp, x, size, hop, count)


def _infer_stft(types: Types, attrs: Attrs) -> TensorType:
    size = attrs["length"]
    count = frame_count(row_length(types[0], "stft"), size, attrs["hop"], 0)
    shape = (count, *types[0].shape[:-1], 2 * (size // 2 + 1))
    return TensorType(shape, types[0].dtype)


def _stft(xp: Any, attrs: Attrs, x: Any) -> Any:
    cut = _frame(xp, {**attrs, "count": 0}, x)
    spectra = xp.fft.rfft(widened(xp, cut), axis=-1)
    return xp.moveaxis(block_of(xp, spectra, x.dtype), -2, 0)


def _build_stft(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    frames = g.frame(x, attrs["length"], attrs["hop"])
    at = frames.rank - 2
    # Put in order before they are transformed: they are copied there anyway.
    others = [axis for axis in range(frames.rank) if axis != at]
    return g.rfft_block(g.transpose(frames, (at, *others)))


def _frame_back(at: Taken) -> list[Tensor | None]:
    """Frames added up where they came from."""
    return [overlapped(at.grad, at.attrs["hop"], 1, at.x.shape[-1])]


_FRAME_SAMPLES = (
    *cases(((3, 10), (10,)), ({"length": 4, "hop": 2}, {"length": 3, "hop": 5})),
    *cases(((2, 3, 97),), ({"length": 13, "hop": 1}, {"length": 97, "hop": 7})),
    *cases(((2, 50),), ({"length": 10, "hop": 5, "count": 3},)),
    *cases(((1,), (0, 7), (65_537, 3)), ({"length": 1, "hop": 1},)),
    Sample((Drawn((2, 9), DType.I32),), {"length": 4, "hop": 3}),
    Sample((Drawn((2, 9), DType.BOOL),), {"length": 4, "hop": 3}),
    Sample((Drawn((2, 9), DType.F64),), {"length": 4, "hop": 3}),
)
_STFT_SAMPLES = (
    *cases(((100,), (3, 100), (2, 2, 40)), ({"length": 16, "hop": 8},)),
    *cases(((2, 40), (0, 40)), ({"length": 7, "hop": 3}, {"length": 40, "hop": 9})),
    *cases(((1,), (65_537, 2)), ({"length": 1, "hop": 1},)),
    Sample((Drawn((2, 40), DType.F64),), {"length": 7, "hop": 3}),
)

registry.register_all(
    Op(
        name="frame",
        infer=_infer_frame,
        reference=_frame,
        lower=View(
            lambda layout, out, attrs: layout.frame(
                attrs["length"], attrs["hop"], out[-2]
            )
        ),
        attrs=(Attr("length", "int"), Attr("hop", "int"), Attr("count", "int", 0)),
        traits=frozenset({"view"}),
        flops=no_flops,
        samples=_FRAME_SAMPLES,
        vjp=_frame_back,
        batch=together,
        doc="Overlapping frames [..., count, length] of the last axis.",
    ),
    Op(
        name="stft",
        infer=_infer_stft,
        reference=_stft,
        lower=Compose(_build_stft),
        attrs=(Attr("length", "int"), Attr("hop", "int")),
        traits=frozenset({"spectral", "floats_only"}),
        flops=fft_flops,
        tolerance=TRANSFORM,
        samples=_STFT_SAMPLES,
        doc="Short-time spectra [frames, ..., 2F]: no window, no padding.",
    ),
    family="spectral",  # which uses them
)
