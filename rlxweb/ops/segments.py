"""Spectra of the segments of rows, one by one: what spectrograms are made of.

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
from rlxweb.ir.shape import bad_attribute, bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.frames import frames_of
from rlxweb.ops.reduce import accumulator
from rlxweb.ops.spectral import block_of
from rlxweb.ops.welch import CLOSE, CUT, SPECTRAL, detrended, plan_of, prepared
from rlxweb.recipes.welch_plan import WelchPlan, segment_flops, welch_plan

PARTS = 4
"""Of cross_power: the power of either row, then the cross power's two parts."""


def _plan(types: Types, attrs: Attrs) -> WelchPlan:
    """The checked plan. Errors  as welch_plan's; AttributeRefused for the shift."""
    plan, shift = plan_of(types, attrs), attrs.get("shift", 0)
    if not 0 <= shift < plan.nfft:
        raise bad_attribute(
            f"shift = {shift}", f"it is one of the {plan.nfft} samples of a segment"
        )
    return plan


def _infer_power(types: Types, attrs: Attrs) -> TensorType:
    plan = _plan(types, attrs)
    return TensorType((plan.rows, plan.segments, plan.bins), types[0].dtype)


def _infer_spectra(types: Types, attrs: Attrs) -> TensorType:
    plan = _plan(types, attrs)
    return TensorType((plan.rows, plan.segments, 2 * plan.bins), types[0].dtype)


def _infer_cross(types: Types, attrs: Attrs) -> TensorType:
    x, y, window = types
    if y.shape != x.shape:
        raise bad_shape(
            f"the signals differ: {show(x.shape)} and {show(y.shape)}",
            "row is compared with row",
        )
    plan_of((y, window), attrs)
    plan = plan_of((x, window), attrs)
    return TensorType((plan.rows, PARTS, plan.bins), x.dtype)


def single_weights(plan: WelchPlan) -> NDArray[np.float64]:
    """[bins] factors of |X|² of a segment that is not averaged with others."""
    return plan.weights() * plan.segments


def _spectra(xp: Any, attrs: Attrs, x: Any, window: Any) -> Any:
    """Complex spectra [B, S, F] of the segments, before any weight."""
    plan = welch_plan(tuple(x.shape), window.shape[0], attrs)
    frames = frames_of(xp, x, plan.n, plan.hop, plan.segments)
    frames = detrended(xp, frames, plan.detrend) * window
    z = xp.fft.rfft(frames, n=plan.nfft, axis=-1)
    turns = np.arange(plan.bins) * attrs.get("shift", 0) % plan.nfft
    if turns.any():
        z = z * xp.asarray(np.exp(2j * np.pi / plan.nfft * turns), dtype=z.dtype)
    return z, plan


def _power_reference(xp: Any, attrs: Attrs, x: Any, window: Any) -> Any:
    z, plan = _spectra(xp, attrs, x, window)
    power = z.real * z.real + z.imag * z.imag
    weights = xp.asarray(single_weights(plan), dtype=power.dtype)
    return xp.asarray(power * weights, dtype=x.dtype)


def _spectra_reference(xp: Any, attrs: Attrs, x: Any, window: Any) -> Any:
    z, plan = _spectra(xp, attrs, x, window)
    weights = xp.asarray(np.sqrt(single_weights(plan)), dtype=z.real.dtype)
    return block_of(xp, z * weights, x.dtype)


def _cross_reference(xp: Any, attrs: Attrs, x: Any, y: Any, window: Any) -> Any:
    (a, plan), (b, _) = (_spectra(xp, attrs, one, window) for one in (x, y))
    parts = (
        a.real * a.real + a.imag * a.imag,
        b.real * b.real + b.imag * b.imag,
        a.real * b.real + a.imag * b.imag,
        a.real * b.imag - a.imag * b.real,
    )
    wide = accumulator(xp, x, plan.segments)
    found = xp.stack([xp.sum(one, axis=1, dtype=wide) for one in parts], axis=1)
    weights = xp.asarray(plan.weights(), dtype=found.dtype)
    return xp.asarray(found * weights, dtype=x.dtype)


def _build_power(g: Graph, attrs: Attrs, x: Tensor, window: Tensor) -> Tensor:
    """Every segment as a row of its own that welch_power averages alone."""
    plan = welch_plan(x.shape, window.shape[0], attrs)
    frames = g.frame(x, plan.n, plan.hop, plan.segments)
    rows = g.reshape(frames, (plan.rows * plan.segments, plan.n))
    power = g.apply("welch_power", rows, window, **{**attrs, "hop": 1, "segments": 1})
    return g.reshape(power, (plan.rows, plan.segments, plan.bins))


def _build_spectra(g: Graph, attrs: Attrs, x: Tensor, window: Tensor) -> Tensor:
    plan, shift = welch_plan(x.shape, window.shape[0], attrs), attrs["shift"]
    frames = prepared(g, plan, x, window)
    if shift:
        ahead = g.narrow(frames, 2, shift, plan.nfft - shift)
        frames = g.concat([ahead, g.narrow(frames, 2, 0, shift)], axis=2)
    weights = np.tile(np.sqrt(single_weights(plan)), 2)
    return g.rfft_block(frames) * g.constant(weights, x.dtype)


def _build_cross(g: Graph, attrs: Attrs, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    plan = welch_plan(x.shape, w.shape[0], attrs)
    a, b = g.rfft(prepared(g, plan, x, w)), g.rfft(prepared(g, plan, y, w))
    parts = (
        a[0] * a[0] + a[1] * a[1],
        b[0] * b[0] + b[1] * b[1],
        a[0] * b[0] + a[1] * b[1],
        a[0] * b[1] - a[1] * b[0],
    )
    found = g.concat([g.sum(one, 1, keep_dim=True) for one in parts], axis=1)
    return found * g.constant(plan.weights(), x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    plan = welch_plan(inputs[0].shape, inputs[-1].shape[0], attrs)
    each = segment_flops(plan.n, plan.nfft)
    return each * plan.rows * plan.segments * (len(inputs) - 1)


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    plan = welch_plan(inputs[0].shape, inputs[-1].shape[0], attrs)
    rows = plan.rows * (len(inputs) - 1)
    sizes = {"n": plan.nfft, "segments": plan.segments, "rows": rows}
    return "welch", sizes | {"k": 0, "samples": inputs[0].shape[1]}


def _case(
    shape: tuple[int, int],
    n: int,
    dtype: DType = DType.F32,
    pair: int = 1,
    **attrs: Any,
) -> Sample:
    rows = (Drawn(shape, dtype),) * pair
    attrs = {"hop": max(1, n // 2), **attrs}
    return Sample((*rows, Drawn((n,), dtype, 0.1, 1.0)), attrs)


def _cases(pair: int = 1) -> tuple[Sample, ...]:
    return (
        _case((3, 640), 256, pair=pair),
        _case((2, 640), 256, pair=pair, detrend="linear", nfft=300),
        _case((5, 90), 30, pair=pair, detrend="constant", doubling=True, scale=0.01),
        _case((3, 67), 31, pair=pair, detrend="linear", doubling=True, nfft=67, hop=3),
        _case((2, 70), 11, pair=pair, hop=11, segments=1),
        _case((2, 4000), 64, pair=pair, hop=8, doubling=True),
        _case((0, 40), 16, pair=pair),
        _case((2, 5), 1, pair=pair, hop=1),
        _case((1, 1), 1, pair=pair, doubling=True),
        _case((33_000, 2), 2, pair=pair, hop=1, detrend="constant"),
        _case((3, 5000), 1000, pair=pair, doubling=True, detrend="linear"),
        _case((2, 384), 256, DType.F64, pair, detrend="constant"),
    )


_SHIFTED = (
    *_cases(),
    _case((3, 640), 256, shift=128, doubling=True),
    _case((2, 90), 31, shift=15, nfft=40, detrend="constant"),
    _case((2, 90), 31, shift=39, nfft=40),
)
_segmented = partial(Op, traits=SPECTRAL, flops=_flops, work=_work, tolerance=CLOSE)

registry.register_all(
    _segmented(
        name="segment_power",
        arity=2,
        infer=_infer_power,
        reference=_power_reference,
        lower=Compose(_build_power),
        attrs=CUT,
        samples=_cases(),
        doc="Power [B, S, F] of each segment of rows [B, T] under a window [n]; "
        "welch_power before it averages.",
    ),
    _segmented(
        name="segment_spectra",
        arity=2,
        infer=_infer_spectra,
        reference=_spectra_reference,
        lower=Compose(_build_spectra),
        attrs=(*CUT, Attr("shift", "int", 0)),
        samples=_SHIFTED,
        doc="Spectrum [B, S, 2F] = [re | im] of each segment of rows [B, T] under a "
        "window [n], whose square is segment_power: bins are times √scale, and √2 "
        "where they are doubled. Phases are zero at sample `shift` of the segment.",
    ),
    _segmented(
        name="cross_power",
        arity=3,
        infer=_infer_cross,
        reference=_cross_reference,
        lower=Compose(_build_cross),
        attrs=CUT,
        samples=_cases(2),
        doc="What rows x and y [B, T] have in common, [B, 4, F], averaged over their "
        "segments: the power of x, that of y, and real and imaginary part of "
        "conj(X) · Y.",
    ),
)
