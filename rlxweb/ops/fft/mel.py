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
from rlxweb.ir.sample import Drawn, Sample, parse_shape_table
from rlxweb.ir.shape_arithmetic import bad_dtype, bad_shape, format_shape, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft.by_matmul import zeros
from rlxweb.ops.fft.op import block_length

MIN_MEL_POWER = 1e-10
DYNAMIC_RANGE = 8.0
FLOOR_MARGIN = 1e-6
LOG10_E = 1.0 / math.log(10.0)


def _infer_log_mel(types: Types, attrs: Attrs) -> TensorType:
    spectrum, filters = types[:2]
    bins = block_length(spectrum) // 2 + 1
    if filters.rank != 2 or filters.shape[1] != bins:
        raise bad_shape(
            f"got filters {format_shape(filters.shape)} for a spectrum of {bins} bins",
            f"filters must be [mels, {bins}]",
            "pass one row of weights over n // 2 + 1 bins for every mel band",
        )
    if filters.shape[0] < 1:
        raise bad_shape("no mel bands", "filters must have at least 1 row, got 0")
    if any(t.dtype is not spectrum.dtype for t in types):
        dtype_names = ", ".join(str(t.dtype) for t in types)
        raise bad_dtype(
            f"the operands have different dtypes: {dtype_names}",
            hint="cast the operands to one dtype",
        )
    if spectrum.dtype is DType.F16:
        raise bad_dtype(
            "the operands are f16",
            "operands must be f32 or f64, because the smallest mel power, 1e-10, is "
            "0 in f16",
        )
    return TensorType((*spectrum.shape[:-1], filters.shape[0]), spectrum.dtype)


def _infer_backward(types: Types, attrs: Attrs) -> TensorType:
    out = _infer_log_mel(types, attrs)
    if types[2].shape != out.shape:
        raise bad_shape(
            f"got a gradient {format_shape(types[2].shape)}",
            f"expected {format_shape(out.shape)}, the shape of the result of log_mel",
        )
    return types[0]


def _log_mel_parts(xp: Any, spectrum: Any, filters: Any) -> tuple[Any, Any, Any]:
    """Return mel power, its log10 and the floor of each frame."""
    n, bins = spectrum.shape[-1] // 2, filters.shape[-1]
    re, im = spectrum[..., :bins], spectrum[..., n : n + bins]
    mel = (re * re + im * im) @ filters.T
    mel = xp.maximum(mel, MIN_MEL_POWER * xp.ones_like(mel))
    y = xp.log10(mel)
    return mel, y, xp.max(y, axis=-1, keepdims=True) - DYNAMIC_RANGE


def _log_mel_reference(xp: Any, attrs: Attrs, spectrum: Any, filters: Any) -> Any:
    _, y, floor = _log_mel_parts(xp, spectrum, filters)
    return (xp.maximum(y, floor) + 4.0) / 4.0


def _backward_reference(
    xp: Any, attrs: Attrs, spectrum: Any, filters: Any, grad: Any
) -> Any:
    mel, y, floor = _log_mel_parts(xp, spectrum, filters)
    slope = grad * (0.25 * LOG10_E) / mel
    slope = xp.where(y > floor + FLOOR_MARGIN, slope, xp.zeros_like(slope))
    n, bins = spectrum.shape[-1] // 2, filters.shape[-1]
    power = 2.0 * (slope @ filters)
    zero_bins = xp.zeros((*spectrum.shape[:-1], n - bins), dtype=spectrum.dtype)
    re, im = spectrum[..., :bins] * power, spectrum[..., n : n + bins] * power
    return xp.concat((re, zero_bins, im, zero_bins), axis=-1)


def _build_parts(
    g: Graph, spectrum: Tensor, filters: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Build real part, imaginary part, mel power, its log10 and the floor of each
    frame.
    """
    rows = numel(spectrum.shape[:-1])
    flat = g.reshape(spectrum, (rows, spectrum.shape[-1]))
    n, bins = flat.shape[1] // 2, filters.shape[1]
    re, im = g.narrow(flat, 1, 0, bins), g.narrow(flat, 1, n, bins)
    mel = g.matmul(re * re + im * im, g.transpose(filters, (1, 0)))
    mel = g.maximum(mel, MIN_MEL_POWER)
    y = g.log(mel) * LOG10_E
    return re, im, mel, y, g.max(y, 1, keep_dim=True) - DYNAMIC_RANGE


def _build_log_mel(g: Graph, attrs: Attrs, spectrum: Tensor, filters: Tensor) -> Tensor:
    *_, y, floor = _build_parts(g, spectrum, filters)
    out = (g.maximum(y, floor) + 4.0) * 0.25
    return g.reshape(out, (*spectrum.shape[:-1], filters.shape[0]))


def _build_backward(
    g: Graph, attrs: Attrs, spectrum: Tensor, filters: Tensor, grad: Tensor
) -> Tensor:
    re, im, mel, y, floor = _build_parts(g, spectrum, filters)
    slope = g.reshape(grad, mel.shape) * (0.25 * LOG10_E) / mel
    slope = g.where(g.gt(y, floor + FLOOR_MARGIN), slope, 0.0)
    power = g.matmul(slope, filters) * 2.0
    parts = [re * power, im * power]
    zero_count = spectrum.shape[-1] // 2 - filters.shape[1]
    if zero_count:
        zero_bins = zeros(g, (re.shape[0], zero_count), spectrum.dtype)
        parts = [parts[0], zero_bins, parts[1], zero_bins]
    return g.reshape(g.concat(parts, axis=1), spectrum.shape)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    mels, bins = inputs[1].shape
    rows = numel(inputs[0].shape[:-1])
    passes = 1 if len(inputs) == 2 else 2
    return 2.0 * passes * rows * mels * bins + 3.0 * rows * bins + 6.0 * rows * mels


def _draw_inputs(
    lead: tuple[int, ...], n: int, mels: int, dtype: DType = DType.F32
) -> tuple[Drawn, Drawn, Drawn]:
    # Whole weights of 0 and 1: some bands are empty and fall through the floor.
    return (
        Drawn((*lead, 2 * n), dtype),
        Drawn((mels, n // 2 + 1), dtype, 0.0, 1.0, whole=True),
        Drawn((*lead, mels), dtype),
    )


_INPUT_CASES = (
    *(
        _draw_inputs(lead, n, mels)
        for lead, (n, mels) in parse_shape_table(
            "()@1x5 3@2x12 4@30x7 2x3@64x20 0@8x4 65537@1x1 2@31x1"
        )
    ),
    _draw_inputs((3,), 16, 6, DType.F64),
)
_log_mel_op = partial(
    Op, traits=frozenset({"spectral", "floats_only", "host_sync"}), flops=_flops
)

registry.register_all(
    _log_mel_op(
        name="log_mel",
        arity=2,
        infer=_infer_log_mel,
        reference=_log_mel_reference,
        lower=Compose(_build_log_mel),
        tolerance=Tolerance(rtol=1e-5, atol=1e-5),
        samples=tuple(Sample(inputs[:2]) for inputs in _INPUT_CASES),
        doc="The Whisper-style log-mel spectrum [..., M] of a block spectrum [..., "
        "2n] (n real, then n imaginary parts), by mel filters [M, n // 2 + 1].",
    ),
    _log_mel_op(
        name="log_mel_backward",
        arity=3,
        infer=_infer_backward,
        reference=_backward_reference,
        lower=Compose(_build_backward),
        tolerance=Tolerance(rtol=1e-4, atol=1e-5, relative_to_peak=True),
        samples=tuple(Sample(inputs) for inputs in _INPUT_CASES),
        doc="The gradient with respect to the spectrum of log_mel, computed from the "
        "gradient with respect to the result of log_mel.",
    ),
)
