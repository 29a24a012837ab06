"""Welch estimates and their strongest bins, as ops on rows.

welch_power and welch_row_peaks work on signals, power_peaks on spectra of power, and
welch_peaks is RLX's op on transformed segments. Peaks are (bin, power) pairs, powers
falling, ties to the smaller bin. Fused kernels are variants, in `wgsl/`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import BufferRef, Compose, Kernel, KernelPlan
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Trait, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import bad_dtype, bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import merge_batch_rule
from rlxweb.ops.fft.by_matmul import zeros
from rlxweb.ops.fft.frames_stft import extract_frames
from rlxweb.ops.fft.op import block_length
from rlxweb.ops.reduce.op import accumulator_dtype
from rlxweb.ops.welch.parameters import (
    WelchParameters,
    centred_ramp,
    check_k,
    rlx_weights,
    segment_flops,
    welch_parameters,
)
from rlxweb.ops.welch.samples import (
    PEAK_SAMPLES,
    SEGMENT_SAMPLES,
    welch_power_samples,
)
from rlxweb.ops.welch.wgsl.peaks_plan import peaks_dispatch


def _check_float_dtypes(types: Types) -> None:
    if any(operand.dtype not in (DType.F32, DType.F64) for operand in types):
        dtypes = ", ".join(str(operand.dtype) for operand in types)
        raise bad_dtype(
            f"the operands are {dtypes}",
            "operands must be f32 or f64, because powers overflow f16",
            "cast the operands",
        )
    if any(operand.dtype is not types[0].dtype for operand in types):
        dtypes = " and ".join(str(operand.dtype) for operand in types)
        raise bad_dtype(
            f"the operands have different dtypes: {dtypes}",
            hint="cast the operands to one dtype",
        )


def _check_rank(operand: TensorType, rank: int, label: str) -> None:
    if operand.rank != rank:
        raise bad_shape(
            f"got {label} {format_shape(operand.shape)}", f"expected rank {rank}"
        )


def checked_welch_plan(types: Types, attrs: Attrs) -> WelchParameters:
    """Return the checked plan of a signal [B, T] and a window [n]. Errors  as
    welch_plan.
    """
    _check_float_dtypes(types)
    _check_rank(types[0], 2, "signal")
    _check_rank(types[1], 1, "window")
    return welch_parameters(types[0].shape, types[1].shape[0], attrs)


def _infer_power(types: Types, attrs: Attrs) -> TensorType:
    plan = checked_welch_plan(types, attrs)
    return TensorType((plan.rows, plan.bins), types[0].dtype)


def detrend_frames(xp: Any, frames: Any, kind: str) -> Any:
    """Return frames (…, n) without their mean or without their least-squares line."""
    if kind == "none":
        return frames
    frames = frames - xp.mean(frames, axis=-1, keepdims=True)
    if kind == "constant":
        return frames
    ramp = xp.asarray(centred_ramp(frames.shape[-1]), dtype=frames.dtype)
    return frames - (frames @ ramp)[..., None] * ramp


def welch_power_reference(
    xp: Any,
    attrs: Attrs,
    x: Any,
    window: Any,
    make_frames: Callable[..., Any] = extract_frames,
) -> Any:
    """Reference of welch_power; `make_frames` may return the frames as a view."""
    plan = welch_parameters(tuple(x.shape), window.shape[0], attrs)
    frames = make_frames(xp, x, plan.n, plan.hop, plan.segments)
    frames = detrend_frames(xp, frames, plan.detrend) * window
    z = xp.fft.rfft(frames, n=plan.nfft, axis=-1)
    power = z.real * z.real + z.imag * z.imag
    power = xp.sum(power, axis=1, dtype=accumulator_dtype(xp, x, plan.segments))
    weights = xp.asarray(plan.weights(), dtype=power.dtype)
    return xp.asarray(power * weights, dtype=x.dtype)


def _max_chunk_segments(nfft: int) -> int:
    """Return the largest number of a row's segments that one kernel averages; longer
    rows are split.
    """
    return max(2, min(32, (1 << 16) // nfft))


def _build_power_in_chunks(
    g: Graph, attrs: Attrs, plan: WelchParameters, x: Tensor, window: Tensor
) -> Tensor:
    """Build the power of long rows: chunks of each row become rows of their own, whose
    means are averaged.
    """
    chunk_segments = _max_chunk_segments(plan.nfft)
    count, remaining = divmod(plan.segments, chunk_segments)
    chunk_length = plan.n + (chunk_segments - 1) * plan.hop
    chunks = g.frame(x, chunk_length, chunk_segments * plan.hop, count)
    chunks = g.reshape(chunks, (plan.rows * count, chunk_length))
    chunk_attrs = {**attrs, "segments": chunk_segments}
    power = g.apply("welch_power", chunks, window, **chunk_attrs)
    power = g.sum(g.reshape(power, (plan.rows, count, plan.bins)), 1)
    power = power * (chunk_segments / plan.segments)
    if remaining:
        start = count * chunk_segments * plan.hop
        tail = g.narrow(x, 1, start, plan.n + (remaining - 1) * plan.hop)
        last = g.apply(
            "welch_power", tail, window, **chunk_attrs | {"segments": remaining}
        )
        power = power + last * (remaining / plan.segments)
    return power


def prepare_segments(
    g: Graph, plan: WelchParameters, x: Tensor, window: Tensor
) -> Tensor:
    """Return the segments of x, detrended, windowed and padded: [B, S, nfft]."""
    frames = g.frame(x, plan.n, plan.hop, plan.segments)
    if plan.detrend != "none":
        # About its first value a segment's sum keeps its bits, whatever the offset.
        frames = frames - g.narrow(frames, 2, 0, 1)
        frames = frames - g.mean(frames, 2, keep_dim=True)
    if plan.detrend == "linear":
        ramp = g.constant(centred_ramp(plan.n), x.dtype)
        frames = frames - g.sum(frames * ramp, 2, keep_dim=True) * ramp
    frames = frames * window
    if plan.nfft > plan.n:
        outer_shape = (plan.rows, plan.segments)
        pad = zeros(g, (*outer_shape, plan.nfft - plan.n), x.dtype)
        frames = g.concat([frames, pad], axis=2)
    return frames


def _build_power(g: Graph, attrs: Attrs, x: Tensor, window: Tensor) -> Tensor:
    plan = welch_parameters(x.shape, window.shape[0], attrs)
    if plan.rows and plan.segments > _max_chunk_segments(plan.nfft):
        return _build_power_in_chunks(g, attrs, plan, x, window)
    frames = prepare_segments(g, plan, x, window)
    re, im = g.rfft(frames)
    power = g.sum(re * re + im * im, 1)
    return power * g.constant(plan.weights(), x.dtype)


def _infer_peaks(types: Types, attrs: Attrs) -> TensorType:
    _check_float_dtypes(types)
    _check_rank(types[0], 2, "power")
    rows, bins = types[0].shape
    check_k(attrs["k"], bins)
    return TensorType((rows, 2 * attrs["k"]), types[0].dtype)


def power_peaks_reference(xp: Any, attrs: Attrs, power: Any) -> Any:
    """Return the [B, 2k] (bin, power) pairs of power [B, F]."""
    bins = xp.argsort(-power, axis=-1, stable=True)[:, : attrs["k"]]
    powers = xp.take_along_axis(power, bins, axis=-1)
    pairs = xp.stack([xp.asarray(bins, dtype=power.dtype), powers], axis=-1)
    return pairs.reshape(power.shape[0], 2 * attrs["k"])


def _plan_peaks(types: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
    rows, bins = types[0].shape
    return KernelPlan((peaks_dispatch(BufferRef("in"), rows, bins, attrs["k"]),))


def _infer_row_peaks(types: Types, attrs: Attrs) -> TensorType:
    plan = checked_welch_plan(types, attrs)
    check_k(attrs["k"], plan.bins)
    return TensorType((plan.rows, 2 * attrs["k"]), types[0].dtype)


def _row_peaks_reference(xp: Any, attrs: Attrs, x: Any, window: Any) -> Any:
    return power_peaks_reference(xp, attrs, welch_power_reference(xp, attrs, x, window))


def _build_row_peaks(g: Graph, attrs: Attrs, x: Tensor, window: Tensor) -> Tensor:
    power_attrs = {name: value for name, value in attrs.items() if name != "k"}
    power = g.apply("welch_power", x, window, **power_attrs)
    return g.apply("power_peaks", power, k=attrs["k"])


def _infer_welch_peaks(types: Types, attrs: Attrs) -> TensorType:
    _check_float_dtypes(types)
    _check_rank(types[0], 2, "spectra")
    bins, segments = block_length(types[0]) // 2 + 1, attrs["n_segments"]
    if types[0].shape[0] % segments:
        raise bad_shape(
            f"got {types[0].shape[0]} spectra for {segments} segments per row",
            "the number of spectra must be a multiple of n_segments; spectrum b * "
            "n_segments + s is segment s of row b",
        )
    check_k(attrs["k"], bins)
    return TensorType((types[0].shape[0] // segments, 2 * attrs["k"]), types[0].dtype)


def _welch_peaks_reference(xp: Any, attrs: Attrs, spectrum: Any) -> Any:
    n, segments = spectrum.shape[1] // 2, attrs["n_segments"]
    bins = n // 2 + 1
    re, im = spectrum[:, :bins], spectrum[:, n : n + bins]
    power = (re * re + im * im).reshape(spectrum.shape[0] // segments, segments, bins)
    weights = xp.asarray(rlx_weights(bins, segments), dtype=spectrum.dtype)
    return power_peaks_reference(xp, attrs, xp.sum(power, axis=1) * weights)


def _build_welch_peaks(g: Graph, attrs: Attrs, spectrum: Tensor) -> Tensor:
    n, segments = spectrum.shape[1] // 2, attrs["n_segments"]
    bins = n // 2 + 1
    re, im = g.narrow(spectrum, 1, 0, bins), g.narrow(spectrum, 1, n, bins)
    rows = spectrum.shape[0] // segments
    power = g.sum(g.reshape(re * re + im * im, (rows, segments, bins)), 1)
    power = power * g.constant(rlx_weights(bins, segments), spectrum.dtype)
    return g.apply("power_peaks", power, k=attrs["k"])


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    plan = welch_parameters(inputs[0].shape, inputs[1].shape[0], attrs)
    segment_cost = segment_flops(plan.n, plan.nfft)
    ranked = plan.rows * plan.bins if "k" in attrs else 0
    return segment_cost * plan.rows * plan.segments + ranked


def _work_item(
    inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    plan = welch_parameters(inputs[0].shape, inputs[1].shape[0], attrs)
    sizes = {"n": plan.nfft, "segments": plan.segments, "rows": plan.rows}
    return "welch", sizes | {"k": attrs.get("k", 0), "samples": inputs[0].shape[1]}


_K = Attr("k", "int", at_least=1)
SEGMENT_ATTRS = (
    Attr("hop", "int", at_least=1),
    Attr("segments", "int", 0, at_least=0),
    Attr("detrend", "str", "none", ("none", "constant", "linear")),
    Attr("doubling", "bool", False),
    Attr("nfft", "int", 0, at_least=0),
    Attr("scale", "float", 1.0),
)
SPECTRAL_TRAITS: frozenset[Trait] = frozenset({"spectral", "floats_only"})
WELCH_TOLERANCE = Tolerance(rtol=2e-6, atol=4e-6, relative_to_peak=True)
_welch_op = partial(
    Op,
    arity=2,
    traits=SPECTRAL_TRAITS,
    flops=_flops,
    work=_work_item,
    tolerance=WELCH_TOLERANCE,
)


def _power_peaks_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `power_peaks`: the gradient of a peak's power goes to its bin; the bin
    number has derivative zero.
    """
    g, (rows, bins), k = ctx.g, ctx.x.shape, ctx.attrs["k"]
    peaks, grad = (g.reshape(value, (rows, k, 2)) for value in (ctx.out, ctx.grad))
    peak_bins = peaks[:, :, 0].cast(DType.I32)
    zeros = g.expand(g.constant(0, ctx.grad.dtype), (rows, bins))
    peak_grads = grad[:, :, 1]
    return [g.scatter_elements(zeros, peak_bins, peak_grads, axis=1, reduction="add")]


registry.register_all(
    _welch_op(
        name="welch_power",
        infer=_infer_power,
        reference=welch_power_reference,
        lower=Compose(_build_power),
        attrs=SEGMENT_ATTRS,
        samples=welch_power_samples(None),
        doc="The Welch estimate [B, F] of the power spectrum of rows [B, T], whose "
        "segments are multiplied by a window [n].",
    ),
    Op(
        name="power_peaks",
        infer=_infer_peaks,
        reference=power_peaks_reference,
        lower=Kernel(_plan_peaks),
        attrs=(_K,),
        traits=frozenset({"reduction", "floats_only"}),
        flops=lambda inputs, out, attrs: float(inputs[0].numel),
        samples=PEAK_SAMPLES,
        calibration_cases=tuple(
            Sample((Drawn(s, low=0.0),), {"k": 4}) for s in ((4, 16), (256, 513))
        ),
        vjp=_power_peaks_vjp,
        batch=merge_batch_rule(0),
        doc="The `k` strongest bins [B, 2k] of power [B, F] as (bin, power) pairs.",
    ),
    _welch_op(
        name="welch_row_peaks",
        infer=_infer_row_peaks,
        reference=_row_peaks_reference,
        lower=Compose(_build_row_peaks),
        attrs=(*SEGMENT_ATTRS, _K),
        fused_from=("power_peaks", "welch_power"),
        samples=welch_power_samples(4),
        doc="power_peaks of welch_power in one op, [B, 2k].",
    ),
    Op(
        name="welch_peaks",
        batch=merge_batch_rule(0),
        infer=_infer_welch_peaks,
        reference=_welch_peaks_reference,
        lower=Compose(_build_welch_peaks),
        attrs=(_K, Attr("n_segments", "int", at_least=1)),
        traits=SPECTRAL_TRAITS | {"host_sync"},
        flops=lambda inputs, out, attrs: 4.0 * inputs[0].numel,
        tolerance=WELCH_TOLERANCE,
        samples=SEGMENT_SAMPLES,
        doc="The k strongest bins [B, 2k] of the Welch power as RLX computes it, "
        "from block spectra [B * S, 2n], where spectrum b * S + s belongs to "
        "segment s of row b.",
    ),
)
