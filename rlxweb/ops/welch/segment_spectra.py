"""Spectra of the segments of rows, from which spectrograms are made.

segment_power and segment_spectra keep every segment; cross_power averages over them
what two rows have in common. Cutting, detrending, windows and weights are those of
welch_power, and so are the attributes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import bad_attribute, bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft.frames_stft import extract_frames
from rlxweb.ops.fft.op import complex_to_block
from rlxweb.ops.reduce.op import accumulator_dtype
from rlxweb.ops.welch.op import (
    SEGMENT_ATTRS,
    SPECTRAL_TRAITS,
    WELCH_TOLERANCE,
    checked_welch_plan,
    detrend_frames,
    prepare_segments,
)
from rlxweb.ops.welch.parameters import (
    WelchParameters,
    segment_flops,
    welch_parameters,
)

CROSS_PARTS = 4
"""Number of rows in a cross_power result: the power of either signal, then real and
imaginary part of the cross power.
"""


def _checked_plan(types: Types, attrs: Attrs) -> WelchParameters:
    """Return the checked plan. Errors  as welch_plan's; AttributeRefused for the
    shift.
    """
    plan, shift = checked_welch_plan(types, attrs), attrs.get("shift", 0)
    if not 0 <= shift < plan.nfft:
        raise bad_attribute(
            f"shift={shift}",
            f"expected 0 <= shift < {plan.nfft}, the position of a sample in a segment",
        )
    return plan


def _infer_power(types: Types, attrs: Attrs) -> TensorType:
    plan = _checked_plan(types, attrs)
    return TensorType((plan.rows, plan.segments, plan.bins), types[0].dtype)


def _infer_spectra(types: Types, attrs: Attrs) -> TensorType:
    plan = _checked_plan(types, attrs)
    return TensorType((plan.rows, plan.segments, 2 * plan.bins), types[0].dtype)


def _infer_cross(types: Types, attrs: Attrs) -> TensorType:
    x, y, window = types
    if y.shape != x.shape:
        raise bad_shape(
            f"the signals have the shapes {format_shape(x.shape)} and "
            f"{format_shape(y.shape)}",
            "rows are compared pairwise, so both signals must have the same shape",
        )
    checked_welch_plan((y, window), attrs)
    plan = checked_welch_plan((x, window), attrs)
    return TensorType((plan.rows, CROSS_PARTS, plan.bins), x.dtype)


def segment_weights(plan: WelchParameters) -> NDArray[np.float64]:
    """Return the factors [bins] of |X|² of a segment that is not averaged with
    others.
    """
    return plan.weights() * plan.segments


def _segment_spectra(xp: Any, attrs: Attrs, x: Any, window: Any) -> Any:
    """Return the complex, unweighted spectra [B, S, F] of the segments, and their
    plan.
    """
    plan = welch_parameters(tuple(x.shape), window.shape[0], attrs)
    frames = extract_frames(xp, x, plan.n, plan.hop, plan.segments)
    frames = detrend_frames(xp, frames, plan.detrend) * window
    z = xp.fft.rfft(frames, n=plan.nfft, axis=-1)
    phase_steps = np.arange(plan.bins) * attrs.get("shift", 0) % plan.nfft
    if phase_steps.any():
        z = z * xp.asarray(np.exp(2j * np.pi / plan.nfft * phase_steps), dtype=z.dtype)
    return z, plan


def _power_reference(xp: Any, attrs: Attrs, x: Any, window: Any) -> Any:
    z, plan = _segment_spectra(xp, attrs, x, window)
    power = z.real * z.real + z.imag * z.imag
    weights = xp.asarray(segment_weights(plan), dtype=power.dtype)
    return xp.asarray(power * weights, dtype=x.dtype)


def _spectra_reference(xp: Any, attrs: Attrs, x: Any, window: Any) -> Any:
    z, plan = _segment_spectra(xp, attrs, x, window)
    weights = xp.asarray(np.sqrt(segment_weights(plan)), dtype=z.real.dtype)
    return complex_to_block(xp, z * weights, x.dtype)


def _cross_reference(xp: Any, attrs: Attrs, x: Any, y: Any, window: Any) -> Any:
    (a, plan), (b, _) = (_segment_spectra(xp, attrs, value, window) for value in (x, y))
    parts = (
        a.real * a.real + a.imag * a.imag,
        b.real * b.real + b.imag * b.imag,
        a.real * b.real + a.imag * b.imag,
        a.real * b.imag - a.imag * b.real,
    )
    wide = accumulator_dtype(xp, x, plan.segments)
    sums = xp.stack([xp.sum(value, axis=1, dtype=wide) for value in parts], axis=1)
    weights = xp.asarray(plan.weights(), dtype=sums.dtype)
    return xp.asarray(sums * weights, dtype=x.dtype)


def _build_power(g: Graph, attrs: Attrs, x: Tensor, window: Tensor) -> Tensor:
    """Build the power of segments by welch_power, with every segment as a row of its
    own.
    """
    plan = welch_parameters(x.shape, window.shape[0], attrs)
    frames = g.frame(x, plan.n, plan.hop, plan.segments)
    rows = g.reshape(frames, (plan.rows * plan.segments, plan.n))
    power = g.apply("welch_power", rows, window, **{**attrs, "hop": 1, "segments": 1})
    return g.reshape(power, (plan.rows, plan.segments, plan.bins))


def _build_spectra(g: Graph, attrs: Attrs, x: Tensor, window: Tensor) -> Tensor:
    plan, shift = welch_parameters(x.shape, window.shape[0], attrs), attrs["shift"]
    frames = prepare_segments(g, plan, x, window)
    if shift:
        tail = g.narrow(frames, 2, shift, plan.nfft - shift)
        frames = g.concat([tail, g.narrow(frames, 2, 0, shift)], axis=2)
    weights = np.tile(np.sqrt(segment_weights(plan)), 2)
    return g.rfft_block(frames) * g.constant(weights, x.dtype)


def _build_cross(g: Graph, attrs: Attrs, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    plan = welch_parameters(x.shape, w.shape[0], attrs)
    a = g.rfft(prepare_segments(g, plan, x, w))
    b = g.rfft(prepare_segments(g, plan, y, w))
    parts = (
        a[0] * a[0] + a[1] * a[1],
        b[0] * b[0] + b[1] * b[1],
        a[0] * b[0] + a[1] * b[1],
        a[0] * b[1] - a[1] * b[0],
    )
    sums = g.concat([g.sum(part, 1, keep_dim=True) for part in parts], axis=1)
    return sums * g.constant(plan.weights(), x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    plan = welch_parameters(inputs[0].shape, inputs[-1].shape[0], attrs)
    segment_cost = segment_flops(plan.n, plan.nfft)
    return segment_cost * plan.rows * plan.segments * (len(inputs) - 1)


def _work_item(
    inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    plan = welch_parameters(inputs[0].shape, inputs[-1].shape[0], attrs)
    rows = plan.rows * (len(inputs) - 1)
    sizes = {"n": plan.nfft, "segments": plan.segments, "rows": rows}
    return "welch", sizes | {"k": 0, "samples": inputs[0].shape[1]}


def _case(
    shape: tuple[int, int],
    n: int,
    dtype: DType = DType.F32,
    signal_count: int = 1,
    **attrs: Any,
) -> Sample:
    rows = (Drawn(shape, dtype),) * signal_count
    attrs = {"hop": max(1, n // 2), **attrs}
    return Sample((*rows, Drawn((n,), dtype, 0.1, 1.0)), attrs)


def _cases(signal_count: int = 1) -> tuple[Sample, ...]:
    return (
        _case((3, 640), 256, signal_count=signal_count),
        _case((2, 640), 256, signal_count=signal_count, detrend="linear", nfft=300),
        _case(
            (5, 90),
            30,
            signal_count=signal_count,
            detrend="constant",
            doubling=True,
            scale=0.01,
        ),
        _case(
            (3, 67),
            31,
            signal_count=signal_count,
            detrend="linear",
            doubling=True,
            nfft=67,
            hop=3,
        ),
        _case((2, 70), 11, signal_count=signal_count, hop=11, segments=1),
        _case((2, 4000), 64, signal_count=signal_count, hop=8, doubling=True),
        _case((0, 40), 16, signal_count=signal_count),
        _case((2, 5), 1, signal_count=signal_count, hop=1),
        _case((1, 1), 1, signal_count=signal_count, doubling=True),
        _case((33_000, 2), 2, signal_count=signal_count, hop=1, detrend="constant"),
        _case(
            (3, 5000), 1000, signal_count=signal_count, doubling=True, detrend="linear"
        ),
        _case((2, 384), 256, DType.F64, signal_count, detrend="constant"),
    )


_SHIFT_SAMPLES = (
    *_cases(),
    _case((3, 640), 256, shift=128, doubling=True),
    _case((2, 90), 31, shift=15, nfft=40, detrend="constant"),
    _case((2, 90), 31, shift=39, nfft=40),
)
_segment_op = partial(
    Op, traits=SPECTRAL_TRAITS, flops=_flops, work=_work_item, tolerance=WELCH_TOLERANCE
)

registry.register_all(
    _segment_op(
        name="segment_power",
        arity=2,
        infer=_infer_power,
        reference=_power_reference,
        lower=Compose(_build_power),
        attrs=SEGMENT_ATTRS,
        samples=_cases(),
        doc="The power [B, S, F] of each segment of rows [B, T]; every segment is "
        "multiplied by a window [n]. welch_power is the average of this power over "
        "the segments.",
    ),
    _segment_op(
        name="segment_spectra",
        arity=2,
        infer=_infer_spectra,
        reference=_spectra_reference,
        lower=Compose(_build_spectra),
        attrs=(*SEGMENT_ATTRS, Attr("shift", "int", 0)),
        samples=_SHIFT_SAMPLES,
        doc="Spectrum [B, S, 2F] = [re | im] of each segment of rows [B, T], "
        "multiplied by a window [n]; its squared magnitude is segment_power. Bins "
        "are multiplied by √scale, and also by √2 where power is doubled. Phases "
        "are relative to sample `shift` of the segment.",
    ),
    _segment_op(
        name="cross_power",
        arity=3,
        infer=_infer_cross,
        reference=_cross_reference,
        lower=Compose(_build_cross),
        attrs=SEGMENT_ATTRS,
        samples=_cases(2),
        doc="Cross power [B, 4, F] of rows x and y [B, T], averaged over segments "
        "that are multiplied by a window [n]: the power of x, the power of y, and "
        "the real and the imaginary part of conj(X) · Y, where X and Y are the "
        "spectra of a segment.",
    ),
)
