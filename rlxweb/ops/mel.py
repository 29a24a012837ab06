"""Whisper-style log-mel features of spectra, and their gradient.

power = re² + im² of the first n // 2 + 1 bins, mel = filters · power, then log10, a
floor 8 below the largest value of the frame, and (y + 4) / 4. `log_mel_backward` treats
the 1e-10 clamp and the frame maximum as constants and is 0 within 1e-6 of the floor, as
RLX's gradient is; a graph's `gradients` are those of what is computed: under the floor
they go to the largest value, and a clamped one is flat. Composed of other ops; owns no
shader.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ir.shape import bad_dtype, bad_shape, numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft_compose import zeros
from rlxweb.ops.spectral import block_length

LEAST = 1e-10
RANGE = 8.0
NEAR = 1e-6
PER_NEPER = 1.0 / math.log(10.0)


def _infer_log_mel(types: Types, attrs: Attrs) -> TensorType:
    spectrum, filters = types[:2]
    bins = block_length(spectrum) // 2 + 1
    if filters.rank != 2 or filters.shape[1] != bins:
        raise bad_shape(
            f"filters {show(filters.shape)} beside a spectrum of {bins} bins",
            f"filters are [mels, {bins}]",
            "one row of weights over n // 2 + 1 bins for every mel band",
        )
    if filters.shape[0] < 1:
        raise bad_shape("no mel bands", "filters have at least 1 row, got 0")
    if any(t.dtype is not spectrum.dtype for t in types):
        said = ", ".join(str(t.dtype) for t in types)
        raise bad_dtype(f"operands differ: {said}", hint="cast them to one type")
    if spectrum.dtype is DType.F16:
        raise bad_dtype("operands are f16", "f32 or f64: 1e-10 is 0 in f16")
    return TensorType((*spectrum.shape[:-1], filters.shape[0]), spectrum.dtype)


def _infer_backward(types: Types, attrs: Attrs) -> TensorType:
    out = _infer_log_mel(types, attrs)
    if types[2].shape != out.shape:
        raise bad_shape(
            f"gradient {show(types[2].shape)}",
            f"log_mel gives {show(out.shape)}, and so is its gradient",
        )
    return types[0]


def _log_mel_parts(xp: Any, spectrum: Any, filters: Any) -> tuple[Any, Any, Any]:
    n, bins = spectrum.shape[-1] // 2, filters.shape[-1]
    re, im = spectrum[..., :bins], spectrum[..., n : n + bins]
    mel = (re * re + im * im) @ filters.T
    mel = xp.maximum(mel, LEAST * xp.ones_like(mel))
    y = xp.log10(mel)
    return mel, y, xp.max(y, axis=-1, keepdims=True) - RANGE


def _log_mel(xp: Any, attrs: Attrs, spectrum: Any, filters: Any) -> Any:
    _, y, floor = _log_mel_parts(xp, spectrum, filters)
    return (xp.maximum(y, floor) + 4.0) / 4.0


def _backward(xp: Any, attrs: Attrs, spectrum: Any, filters: Any, grad: Any) -> Any:
    mel, y, floor = _log_mel_parts(xp, spectrum, filters)
    slope = grad * (0.25 * PER_NEPER) / mel
    slope = xp.where(y > floor + NEAR, slope, xp.zeros_like(slope))
    n, bins = spectrum.shape[-1] // 2, filters.shape[-1]
    power = 2.0 * (slope @ filters)
    rest = xp.zeros((*spectrum.shape[:-1], n - bins), dtype=spectrum.dtype)
    re, im = spectrum[..., :bins] * power, spectrum[..., n : n + bins] * power
    return xp.concat((re, rest, im, rest), axis=-1)


def _build_parts(
    g: Graph, spectrum: Tensor, filters: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows = numel(spectrum.shape[:-1])
    flat = g.reshape(spectrum, (rows, spectrum.shape[-1]))
    n, bins = flat.shape[1] // 2, filters.shape[1]
    re, im = g.narrow(flat, 1, 0, bins), g.narrow(flat, 1, n, bins)
    mel = g.matmul(re * re + im * im, g.transpose(filters, (1, 0)))
    mel = g.maximum(mel, LEAST)
    y = g.log(mel) * PER_NEPER
    return re, im, mel, y, g.max(y, 1, keep_dim=True) - RANGE


def _build_log_mel(g: Graph, attrs: Attrs, spectrum: Tensor, filters: Tensor) -> Tensor:
    *_, y, floor = _build_parts(g, spectrum, filters)
    out = (g.maximum(y, floor) + 4.0) * 0.25
    return g.reshape(out, (*spectrum.shape[:-1], filters.shape[0]))


def _build_backward(
    g: Graph, attrs: Attrs, spectrum: Tensor, filters: Tensor, grad: Tensor
) -> Tensor:
    re, im, mel, y, floor = _build_parts(g, spectrum, filters)
    slope = g.reshape(grad, mel.shape) * (0.25 * PER_NEPER) / mel
    slope = g.where(g.gt(y, floor + NEAR), slope, 0.0)
    power = g.matmul(slope, filters) * 2.0
    parts = [re * power, im * power]
    unused = spectrum.shape[-1] // 2 - filters.shape[1]
    if unused:
        rest = zeros(g, (re.shape[0], unused), spectrum.dtype)
        parts = [parts[0], rest, parts[1], rest]
    return g.reshape(g.concat(parts, axis=1), spectrum.shape)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    mels, bins = inputs[1].shape
    rows = numel(inputs[0].shape[:-1])
    passes = 1 if len(inputs) == 2 else 2
    return 2.0 * passes * rows * mels * bins + 3.0 * rows * bins + 6.0 * rows * mels


def _drawn(
    lead: tuple[int, ...], n: int, mels: int, dtype: DType = DType.F32
) -> tuple[Drawn, Drawn, Drawn]:
    # Whole weights of 0 and 1: some bands are empty and fall through the floor.
    return (
        Drawn((*lead, 2 * n), dtype),
        Drawn((mels, n // 2 + 1), dtype, 0.0, 1.0, whole=True),
        Drawn((*lead, mels), dtype),
    )


_DRAWN = (
    *(
        _drawn(lead, n, mels)
        for lead, (n, mels) in spelled(
            "()@1x5 3@2x12 4@30x7 2x3@64x20 0@8x4 65537@1x1 2@31x1"
        )
    ),
    _drawn((3,), 16, 6, DType.F64),
)
_log_mel_op = partial(
    Op, traits=frozenset({"spectral", "floats_only", "host_sync"}), flops=_flops
)

registry.register_all(
    _log_mel_op(
        name="log_mel",
        arity=2,
        infer=_infer_log_mel,
        reference=_log_mel,
        lower=Compose(_build_log_mel),
        tolerance=Tolerance(rtol=1e-5, atol=1e-5),
        samples=tuple(Sample(drawn[:2]) for drawn in _DRAWN),
        doc="Whisper-style log-mel [..., M] of a block spectrum [..., 2n].",
    ),
    _log_mel_op(
        name="log_mel_backward",
        arity=3,
        infer=_infer_backward,
        reference=_backward,
        lower=Compose(_build_backward),
        tolerance=Tolerance(rtol=1e-4, atol=1e-5, relative_to_peak=True),
        samples=tuple(Sample(drawn) for drawn in _DRAWN),
        doc="Gradient of log_mel with respect to the spectrum.",
    ),
)
