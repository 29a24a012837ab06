"""Softmax, layer norm and rms norm: each line along one axis, normalised by itself.

Lines are never cut; any axis works without a transpose, since a shader walks a line by
its stride. f16 is computed in f32. Where a line does not fit a device's bindings, or a
device lacks the bindings, the compositions below take over. No device is known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from rlxweb.ir.batching import Examples, along
from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import (
    Access,
    Axis,
    Call,
    Compose,
    Kernel,
    Recipe,
    RecipeRule,
    Ref,
)
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, normal_axis, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import same_dtype
from rlxweb.ops.linalg import widened

_MOST_EPS = 3.4e38


def _infer_softmax(types: Types, attrs: Attrs) -> TensorType:
    normal_axis(attrs["axis"], types[0].rank)
    return types[0]


def _infer_norm(types: Types, attrs: Attrs) -> TensorType:
    x = types[0]
    same_dtype(types)
    n = x.shape[normal_axis(attrs["axis"], x.rank)]
    for name, one in zip(("gamma", "beta"), types[1:], strict=True):
        if one.shape != (n,):
            raise bad_shape(
                f"{name} {show(one.shape)}",
                f"axis {attrs['axis']} of {show(x.shape)} wants [{n}]",
                "one value for each element of the axis",
            )
    if not 0.0 <= attrs["eps"] <= _MOST_EPS:
        rule = f"eps is finite and >= 0, at most {_MOST_EPS:g} as float32 ends there"
        raise bad_attribute(f"eps {attrs['eps']}", rule)
    return x


def _lines(shader: str, turns: float, uses: tuple[str, ...] = ()) -> RecipeRule:
    """A recipe rule: `shader` once for every line along `axis`.

    turns    loop turns of the shader for each element of a line
    Operands after the first hold one value for each element of the line.
    """

    def recipe(inputs: Types, out: TensorType, attrs: Attrs) -> Recipe:
        axis = normal_axis(attrs["axis"], out.rank)
        n = out.shape[axis]
        outer, inner = math.prod(out.shape[:axis]), math.prod(out.shape[axis + 1 :])
        walk = (n * inner, 1, inner)
        own = {"eps": attrs["eps"]} if "eps" in attrs else {}
        call = Call(
            shader,
            axes=(Axis("outer", outer), Axis("inner", inner), Axis("n", n, "whole")),
            accesses=(
                Access(Ref("in", 0), walk),
                *(Access(Ref("in", i), (0, 0, 1)) for i in range(1, len(inputs))),
                Access(Ref("out"), walk, "write"),
            ),
            grid=(("outer", 1), ("inner", 1)),
            values={"outer_step": n * inner, "step": inner, **own},
            uses=uses,
            turns=turns,
        )
        return Recipe((call,))

    return recipe


def _softmax(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis, wide = attrs["axis"], widened(xp, x)
    if 0 in x.shape:
        return x
    e = xp.exp(wide - xp.max(wide, axis=axis, keepdims=True))
    made = e / xp.sum(e, axis=axis, keepdims=True)
    return xp.asarray(made, dtype=x.dtype)


def _log_softmax(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis, wide = attrs["axis"], widened(xp, x)
    if 0 in x.shape:
        return x
    far = wide - xp.max(wide, axis=axis, keepdims=True)
    made = far - xp.log(xp.sum(xp.exp(far), axis=axis, keepdims=True))
    return xp.asarray(made, dtype=x.dtype)


def _along(rank: int, axis: int, n: int) -> list[int]:
    """The shape in which n values broadcast along an axis."""
    shape = [1] * rank
    shape[axis] = n
    return shape


def _normed(centred: bool) -> Callable[..., Any]:
    """The meaning of layer norm, or of rms norm, which does not centre."""

    def reference(xp: Any, attrs: Attrs, x: Any, gamma: Any, beta: Any) -> Any:
        axis, wide = attrs["axis"], widened(xp, x)
        if 0 in x.shape:
            return x
        if centred:
            wide = wide - xp.mean(wide, axis=axis, keepdims=True)
        square = xp.mean(wide * wide, axis=axis, keepdims=True)
        shape = _along(x.ndim, axis, x.shape[axis])
        scale, shift = (widened(xp, one).reshape(shape) for one in (gamma, beta))
        made = wide / xp.sqrt(square + attrs["eps"]) * scale + shift
        return xp.asarray(made, dtype=x.dtype)

    return reference


def in_f32(g: Graph, *tensors: Tensor) -> tuple[Tensor, ...]:
    """f16 tensors cast to f32, so that no intermediate result is kept in f16."""
    return tuple(g.cast(t, DType.F32) if t.dtype is DType.F16 else t for t in tensors)


def _compose_softmax(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    axis = attrs["axis"]
    (wide,) = in_f32(g, x)
    e = g.exp(wide - g.max(wide, axis, keep_dim=True))
    made = e / g.sum(e, axis, keep_dim=True)
    return made if wide is x else g.cast(made, x.dtype)


def _compose_log_softmax(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    axis = attrs["axis"]
    if 0 in x.shape:
        return x
    (wide,) = in_f32(g, x)
    far = wide - g.max(wide, axis, keep_dim=True)
    made = far - g.log(g.sum(g.exp(far), axis, keep_dim=True))
    return made if wide is x else g.cast(made, x.dtype)


def _compose_norm(centred: bool) -> Compose:
    def build(g: Graph, attrs: Attrs, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        if 0 in x.shape:
            return g.identity(x)
        axis = normal_axis(attrs["axis"], x.rank)
        wide, scale, shift = in_f32(g, x, gamma, beta)
        if centred:
            wide = wide - g.mean(wide, axis, keep_dim=True)
        square = g.mean(wide * wide, axis, keep_dim=True)
        shape = _along(x.rank, axis, x.shape[axis])
        made = wide * g.rsqrt(square + attrs["eps"]) * g.reshape(scale, shape)
        made = made + g.reshape(shift, shape)
        return made if made.dtype is x.dtype else g.cast(made, x.dtype)

    return Compose(build)


# (shape, axis): any axis, odd and prime sizes, no lines, long lines, many lines.
_PLACES = [
    (shape, axis)
    for shape, (axis,) in spelled(
        "1@0 7@-1 64x64@-1 13x97@1 13x97@0 3x5x4@1 3x5x4@-3 2x3x16x9@2 0x5@1 5x0@1 "
        "3x0x4@2 65537x2@-1 2x65537@0 3x40009@-1 1x180001@-1"
    )
]


def _softmax_sample(
    shape: Shape, axis: int = -1, high: float = 6.0, note: str = ""
) -> Sample:
    return Sample((Drawn(shape, low=-high, high=high),), {"axis": axis}, note)


_SOFTMAX_SAMPLES = (
    *(_softmax_sample(shape, axis) for shape, axis in _PLACES),
    _softmax_sample((9, 31), -1, 80.0, "wide"),
    _softmax_sample((9, 31), -1, 1.5e38, "one-hot: the largest takes all"),
    Sample((Drawn((4, 9), low=3.0, high=3.0),), {"axis": -1}, "uniform"),
    Sample((Drawn((4, 9), DType.F16),), {"axis": -1}),
    Sample((Drawn((4, 9), DType.F64),), {"axis": 0}),
)


def _norm_sample(
    shape: Shape,
    axis: int = -1,
    dtype: DType = DType.F32,
    around: float = 0.0,
    note: str = "",
    **attrs: float,
) -> Sample:
    n = (shape[axis],)
    x = Drawn(shape, dtype, around - 2.0, around + 2.0)
    inputs = (x, Drawn(n, dtype), Drawn(n, dtype))
    return Sample(inputs, {"axis": axis, **attrs}, note)


# WGSL's exp is good to 3 + 2|x| ULP, and |x| reaches 160 in the samples; probabilities
# below 1e-37 may be flushed.
EXPONENTIAL = Tolerance(rtol=4e-5, atol=1e-7)
# The mean of values near 2 may be off by 2^-23; a line of almost equal values divides
# that by sqrt(eps), 1/316. The sample "far from zero" is the same at 200 and 1.
NORMED = Tolerance(rtol=1e-5, atol=4e-5, relative_to_peak=True)

# Beside that the logarithm of a sum, which is near 0 where one term is nearly all.
LOGARITHMIC = Tolerance(rtol=2e-6, atol=6e-6)

_AXIS = Attr("axis", "int", -1)


def _softmax_back(at: Taken) -> list[Tensor | None]:
    """The rule y · (grad - sum of y · grad)."""
    both = at.grad * at.out
    return [both - at.out * at.g.sum(both, (at.attrs["axis"],), keep_dim=True)]


def _normed_for_all(at: Examples) -> Tensor:
    """Lines of all examples at once; with a scale of its own each, that comes after."""
    axis = normal_axis(at.attrs["axis"], at.ranks[0])
    x, gamma, beta = at.inputs
    if not any(at.varies[1:]):
        return at.apply(x, gamma, beta, axis=axis + 1)
    g, shape = at.g, _along(at.ranks[0], axis, gamma.shape[-1])
    bare = (g.expand(g.constant(value, x.dtype), gamma.shape[-1:]) for value in (1, 0))
    made = at.apply(x, *bare, axis=axis + at.varies[0])
    scale, shift = (g.reshape(one, (*one.shape[:-1], *shape)) for one in (gamma, beta))
    return made * scale + shift


_norm = partial(
    Op,
    batch=_normed_for_all,
    arity=3,
    infer=_infer_norm,
    attrs=(_AXIS, Attr("eps", "float", 1e-5)),
    traits=frozenset({"floats_only"}),
    tolerance=NORMED,
    samples=(
        *(_norm_sample(shape, axis) for shape, axis in _PLACES),
        _norm_sample((5, 33), eps=0.5),
        _norm_sample((5, 33), around=200.0, note="far from zero"),
        _norm_sample((4, 9), dtype=DType.F16),
        _norm_sample((4, 9), 0, DType.F64),
    ),
    telling=tuple(_norm_sample(s, -1) for s in ((4, 16), (1 << 15, 4), (256, 512))),
)

registry.register_all(
    Op(
        name="softmax",
        infer=_infer_softmax,
        reference=_softmax,
        lower=Kernel(_lines("softmax", 0.375, ("nan",)), Compose(_compose_softmax)),
        attrs=(_AXIS,),
        traits=frozenset({"reduction", "floats_only"}),
        flops=lambda inputs, out, attrs: 5.0 * out.numel,
        tolerance=EXPONENTIAL,
        samples=_SOFTMAX_SAMPLES,
        telling=tuple(Sample((Drawn(s),)) for s in ((4, 16), (1 << 15, 4), (256, 512))),
        onnx=("Softmax",),
        vjp=_softmax_back,
        batch=along("axis"),
        doc="exp(x - max) / sum of exp(x - max) along an axis.",
    ),
    Op(
        name="log_softmax",
        infer=_infer_softmax,
        reference=_log_softmax,
        lower=Compose(_compose_log_softmax),
        attrs=(_AXIS,),
        traits=frozenset({"reduction", "floats_only"}),
        flops=lambda inputs, out, attrs: 5.0 * out.numel,
        tolerance=LOGARITHMIC,
        samples=_SOFTMAX_SAMPLES,
        onnx=("LogSoftmax",),
        doc="x - max - log(sum of exp(x - max)) along an axis: the logarithm of "
        "softmax, where that is 0 too.",
    ),
    _norm(
        name="layer_norm",
        reference=_normed(centred=True),
        lower=Kernel(_lines("layer_norm", 0.75), _compose_norm(centred=True)),
        flops=lambda inputs, out, attrs: 8.0 * out.numel,
        doc="(x - mean) / sqrt(variance + eps) · gamma + beta along an axis; the "
        "variance divides by n.",
    ),
    _norm(
        name="rms_norm",
        reference=_normed(centred=False),
        lower=Kernel(_lines("rms_norm", 0.5), _compose_norm(centred=False)),
        flops=lambda inputs, out, attrs: 6.0 * out.numel,
        doc="x / sqrt(mean of x² + eps) · gamma + beta along an axis.",
    ),
)
