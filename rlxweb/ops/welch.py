"""Welch estimates and their strongest bins, as ops on rows.

welch_power and welch_row_peaks work on signals, power_peaks on spectra of power, and
welch_peaks is RLX's op on transformed segments. Peaks are (bin, power) pairs, powers
falling, ties to the smaller bin. Fused kernels are variants, in `rlxweb.recipes`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rlxweb.ir.batching import folding
from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel, Recipe, Ref
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Trait, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import bad_attribute, bad_dtype, bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.fft_compose import zeros
from rlxweb.ops.frames import frames_of
from rlxweb.ops.reduce import accumulator
from rlxweb.ops.spectral import block_length
from rlxweb.ops.welch_samples import PEAK_SAMPLES, SEGMENT_SAMPLES, power_cases
from rlxweb.recipes.select_calls import peaks_call
from rlxweb.recipes.welch_plan import (
    WelchPlan,
    centred_ramp,
    check_k,
    rlx_weights,
    segment_flops,
    welch_plan,
)


def _floats(types: Types) -> None:
    if any(t.dtype not in (DType.F32, DType.F64) for t in types):
        said = ", ".join(str(t.dtype) for t in types)
        raise bad_dtype(
            f"operands are {said}", "f32 or f64: powers overflow f16", "cast them"
        )
    if any(t.dtype is not types[0].dtype for t in types):
        said = " and ".join(str(t.dtype) for t in types)
        raise bad_dtype(f"operands differ: {said}", hint="cast one of them")


def _rank(kind: TensorType, rank: int, what: str) -> None:
    if kind.rank != rank:
        raise bad_shape(f"{what} {show(kind.shape)}", f"it has rank {rank}")


def plan_of(types: Types, attrs: Attrs) -> WelchPlan:
    """The checked plan of signal [B, T] and window [n]. Errors  as welch_plan."""
    _floats(types)
    _rank(types[0], 2, "signal")
    _rank(types[1], 1, "window")
    return welch_plan(types[0].shape, types[1].shape[0], attrs)


def _infer_power(types: Types, attrs: Attrs) -> TensorType:
    plan = plan_of(types, attrs)
    return TensorType((plan.rows, plan.bins), types[0].dtype)


def detrended(xp: Any, frames: Any, kind: str) -> Any:
    """Frames (…, n) without their mean, or without their least-squares line."""
    if kind == "none":
        return frames
    frames = frames - xp.mean(frames, axis=-1, keepdims=True)
    if kind == "constant":
        return frames
    ramp = xp.asarray(centred_ramp(frames.shape[-1]), dtype=frames.dtype)
    return frames - (frames @ ramp)[..., None] * ramp


def power_of(
    xp: Any, attrs: Attrs, x: Any, window: Any, cut: Callable[..., Any] = frames_of
) -> Any:
    """The reference of welch_power; `cut` may give the frames as a view."""
    plan = welch_plan(tuple(x.shape), window.shape[0], attrs)
    frames = cut(xp, x, plan.n, plan.hop, plan.segments)
    frames = detrended(xp, frames, plan.detrend) * window
    z = xp.fft.rfft(frames, n=plan.nfft, axis=-1)
    power = z.real * z.real + z.imag * z.imag
    power = xp.sum(power, axis=1, dtype=accumulator(xp, x, plan.segments))
    weights = xp.asarray(plan.weights(), dtype=power.dtype)
    return xp.asarray(power * weights, dtype=x.dtype)


def _stretch(nfft: int) -> int:
    """Segments of a row that one kernel averages; longer rows are cut."""
    return max(2, min(32, (1 << 16) // nfft))


def _build_long(
    g: Graph, attrs: Attrs, plan: WelchPlan, x: Tensor, window: Tensor
) -> Tensor:
    """Stretches of each row become rows of their own; their means are averaged."""
    each = _stretch(plan.nfft)
    count, rest = divmod(plan.segments, each)
    span = plan.n + (each - 1) * plan.hop
    cut = g.frame(x, span, each * plan.hop, count)
    cut = g.reshape(cut, (plan.rows * count, span))
    short = {**attrs, "segments": each}
    power = g.apply("welch_power", cut, window, **short)
    power = g.sum(g.reshape(power, (plan.rows, count, plan.bins)), 1)
    power = power * (each / plan.segments)
    if rest:
        start = count * each * plan.hop
        tail = g.narrow(x, 1, start, plan.n + (rest - 1) * plan.hop)
        last = g.apply("welch_power", tail, window, **short | {"segments": rest})
        power = power + last * (rest / plan.segments)
    return power


def prepared(g: Graph, plan: WelchPlan, x: Tensor, window: Tensor) -> Tensor:
    """The segments of x, detrended, under the window, padded: [B, S, nfft]."""
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
        lead = (plan.rows, plan.segments)
        pad = zeros(g, (*lead, plan.nfft - plan.n), x.dtype)
        frames = g.concat([frames, pad], axis=2)
    return frames


def _build_power(g: Graph, attrs: Attrs, x: Tensor, window: Tensor) -> Tensor:
    plan = welch_plan(x.shape, window.shape[0], attrs)
    if plan.rows and plan.segments > _stretch(plan.nfft):
        return _build_long(g, attrs, plan, x, window)
    frames = prepared(g, plan, x, window)
    re, im = g.rfft(frames)
    power = g.sum(re * re + im * im, 1)
    return power * g.constant(plan.weights(), x.dtype)


def _infer_peaks(types: Types, attrs: Attrs) -> TensorType:
    _floats(types)
    _rank(types[0], 2, "power")
    rows, bins = types[0].shape
    check_k(attrs["k"], bins)
    return TensorType((rows, 2 * attrs["k"]), types[0].dtype)


def peaks_of(xp: Any, attrs: Attrs, power: Any) -> Any:
    """[B, 2k] (bin, power) pairs of power [B, F]."""
    found = xp.argsort(-power, axis=-1, stable=True)[:, : attrs["k"]]
    kept = xp.take_along_axis(power, found, axis=-1)
    pairs = xp.stack([xp.asarray(found, dtype=power.dtype), kept], axis=-1)
    return pairs.reshape(power.shape[0], 2 * attrs["k"])


def _peaks_recipe(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
    rows, bins = types[0].shape
    return Recipe((peaks_call(Ref("in"), rows, bins, attrs["k"]),))


def _infer_row_peaks(types: Types, attrs: Attrs) -> TensorType:
    plan = plan_of(types, attrs)
    check_k(attrs["k"], plan.bins)
    return TensorType((plan.rows, 2 * attrs["k"]), types[0].dtype)


def _row_peaks(xp: Any, attrs: Attrs, x: Any, window: Any) -> Any:
    return peaks_of(xp, attrs, power_of(xp, attrs, x, window))


def _build_row_peaks(g: Graph, attrs: Attrs, x: Tensor, window: Tensor) -> Tensor:
    own = {name: value for name, value in attrs.items() if name != "k"}
    power = g.apply("welch_power", x, window, **own)
    return g.apply("power_peaks", power, k=attrs["k"])


def _infer_welch_peaks(types: Types, attrs: Attrs) -> TensorType:
    _floats(types)
    _rank(types[0], 2, "spectra")
    bins, segments = block_length(types[0]) // 2 + 1, attrs["n_segments"]
    if segments < 1:
        raise bad_attribute(f"n_segments = {segments}", "it is at least 1")
    if types[0].shape[0] % segments:
        raise bad_shape(
            f"{types[0].shape[0]} spectra are not whole rows of {segments} segments",
            "row b, segment s is spectrum b * n_segments + s",
        )
    check_k(attrs["k"], bins)
    return TensorType((types[0].shape[0] // segments, 2 * attrs["k"]), types[0].dtype)


def _welch_peaks(xp: Any, attrs: Attrs, spectrum: Any) -> Any:
    n, segments = spectrum.shape[1] // 2, attrs["n_segments"]
    bins = n // 2 + 1
    re, im = spectrum[:, :bins], spectrum[:, n : n + bins]
    power = (re * re + im * im).reshape(spectrum.shape[0] // segments, segments, bins)
    weights = xp.asarray(rlx_weights(bins, segments), dtype=spectrum.dtype)
    return peaks_of(xp, attrs, xp.sum(power, axis=1) * weights)


def _build_welch_peaks(g: Graph, attrs: Attrs, spectrum: Tensor) -> Tensor:
    n, segments = spectrum.shape[1] // 2, attrs["n_segments"]
    bins = n // 2 + 1
    re, im = g.narrow(spectrum, 1, 0, bins), g.narrow(spectrum, 1, n, bins)
    rows = spectrum.shape[0] // segments
    power = g.sum(g.reshape(re * re + im * im, (rows, segments, bins)), 1)
    power = power * g.constant(rlx_weights(bins, segments), spectrum.dtype)
    return g.apply("power_peaks", power, k=attrs["k"])


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    plan = welch_plan(inputs[0].shape, inputs[1].shape[0], attrs)
    each = segment_flops(plan.n, plan.nfft)
    ranked = plan.rows * plan.bins if "k" in attrs else 0
    return each * plan.rows * plan.segments + ranked


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    plan = welch_plan(inputs[0].shape, inputs[1].shape[0], attrs)
    sizes = {"n": plan.nfft, "segments": plan.segments, "rows": plan.rows}
    return "welch", sizes | {"k": attrs.get("k", 0), "samples": inputs[0].shape[1]}


CUT = (
    Attr("hop", "int"),
    Attr("segments", "int", 0),
    Attr("detrend", "str", "none", ("none", "constant", "linear")),
    Attr("doubling", "bool", False),
    Attr("nfft", "int", 0),
    Attr("scale", "float", 1.0),
)
SPECTRAL: frozenset[Trait] = frozenset({"spectral", "floats_only"})
CLOSE = Tolerance(rtol=2e-6, atol=4e-6, relative_to_peak=True)
_estimate = partial(
    Op, arity=2, traits=SPECTRAL, flops=_flops, work=_work, tolerance=CLOSE
)


def _peaks_back(at: Taken) -> list[Tensor | None]:
    """Of a peak's power to its bin; which bin that is does not move."""
    g, (rows, bins), k = at.g, at.x.shape, at.attrs["k"]
    found, grad = (g.reshape(t, (rows, k, 2)) for t in (at.out, at.grad))
    places = found[:, :, 0].cast(DType.I32)
    zeros = g.expand(g.constant(0, at.grad.dtype), (rows, bins))
    how: dict[str, Any] = {"axis": 1, "reduction": "add"}
    return [g.apply("scatter_elements", zeros, places, grad[:, :, 1], **how)]


registry.register_all(
    _estimate(
        name="welch_power",
        infer=_infer_power,
        reference=power_of,
        lower=Compose(_build_power),
        attrs=CUT,
        samples=power_cases(None),
        doc="Welch estimate [B, F] of rows [B, T] under a window [n].",
    ),
    Op(
        name="power_peaks",
        infer=_infer_peaks,
        reference=peaks_of,
        lower=Kernel(_peaks_recipe),
        attrs=(Attr("k", "int"),),
        traits=frozenset({"reduction", "floats_only"}),
        flops=lambda inputs, out, attrs: float(inputs[0].numel),
        samples=PEAK_SAMPLES,
        telling=tuple(
            Sample((Drawn(s, low=0.0),), {"k": 4}) for s in ((4, 16), (256, 513))
        ),
        vjp=_peaks_back,
        batch=folding(0),
        doc="The k strongest bins [B, 2k] of power [B, F] as (bin, power) pairs.",
    ),
    _estimate(
        name="welch_row_peaks",
        infer=_infer_row_peaks,
        reference=_row_peaks,
        lower=Compose(_build_row_peaks),
        attrs=(*CUT, Attr("k", "int")),
        fused_from=("power_peaks", "welch_power"),
        samples=power_cases(4),
        doc="power_peaks of welch_power, [B, 2k], as one op.",
    ),
    Op(
        name="welch_peaks",
        batch=folding(0),
        infer=_infer_welch_peaks,
        reference=_welch_peaks,
        lower=Compose(_build_welch_peaks),
        attrs=(Attr("k", "int"), Attr("n_segments", "int")),
        traits=SPECTRAL | {"host_sync"},
        flops=lambda inputs, out, attrs: 4.0 * inputs[0].numel,
        tolerance=CLOSE,
        samples=SEGMENT_SAMPLES,
        doc="RLX's peaks [B, 2k] of block spectra [B * S, 2n], row b * S + s.",
    ),
)
