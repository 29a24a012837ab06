"""Convolution over one, two or three spatial axes, in groups.

[N, C, …] and weights [M, C / groups, …] as PyTorch and ONNX have them: a correlation,
the kernel is not turned. f16 is summed in f32, integers wrap. Which window begins where
is in `recipes/windows.py`, the kernel in `recipes/conv_calls.py`. No device is known
here.
"""

from __future__ import annotations

import math
from typing import Any

from rlxweb.ir.batching import Examples, folded
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel, Recipe
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import NUMBERS, need, same_dtype
from rlxweb.ops.linalg import SUMMED, widened
from rlxweb.ops.windows import windows_in
from rlxweb.ops.windows_back import conv_back
from rlxweb.recipes.conv_calls import conv_recipe, convolution
from rlxweb.recipes.windows import DILATIONS, PADS, STRIDES, Windows, windows_of

GROUPS = Attr("groups", "int", 1)


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, w = types
    dtype = same_dtype(types)
    need(types, NUMBERS)
    if x.rank < 3 or w.rank != x.rank:
        raise bad_shape(
            f"an array of rank {x.rank} beside weights of rank {w.rank}",
            "[N, C, spatial axes…] and [M, C / groups, kernel…]",
            "reshape one image to [1, C, …]",
        )
    groups = attrs["groups"]
    if groups < 1 or w.shape[0] % groups:
        raise bad_attribute(
            f"groups={groups} beside weights {show(w.shape)}",
            "groups is at least 1 and divides the first dimension of the weights",
        )
    if w.shape[1] * groups != x.shape[1]:
        raise bad_shape(
            f"the array has {x.shape[1]} channels",
            f"weights {show(w.shape)} in {groups} groups want {w.shape[1] * groups}",
            "the second dimension of the weights is channels / groups",
        )
    windows = windows_of(x.shape[2:], w.shape[2:], attrs)
    return TensorType((x.shape[0], w.shape[0], *windows.out), dtype)


def _recipe(inputs: Types, out: TensorType, attrs: Attrs) -> Recipe:
    x, w = inputs
    return conv_recipe(convolution(x.shape, w.shape, attrs), x.dtype)


def _conv(xp: Any, attrs: Attrs, x: Any, w: Any) -> Any:
    windows = windows_of(tuple(x.shape[2:]), tuple(w.shape[2:]), attrs)
    made = products(xp, attrs["groups"], windows, widened(xp, x), widened(xp, w))
    return xp.asarray(made, dtype=x.dtype)


def products(xp: Any, groups: int, windows: Windows, x: Any, w: Any) -> Any:
    """Each group's weights by its windows, laid side by side."""
    n, m, c = x.shape[0], w.shape[0], w.shape[1]
    places, taps = numel(windows.out), math.prod(windows.kernel)
    cut = xp.reshape(windows_in(xp, x, windows), (n, groups, c, places, taps))
    cut = xp.reshape(
        xp.permute_dims(cut, (0, 1, 2, 4, 3)), (n, groups, c * taps, places)
    )
    rows = xp.reshape(w, (1, groups, m // groups, c * taps))
    return xp.reshape(xp.matmul(rows, cut), (n, m, *windows.out))


def _for_all(at: Examples) -> Tensor:
    """Images of all examples as one batch; weights of each make channels of their own
    where the images are the same.
    """
    if not at.varies[1]:
        return folded(at)
    if at.varies[0] or at.attrs["groups"] > 1:
        return by_groups(at)
    g, (x, w) = at.g, at.inputs
    made = at.apply(x, g.reshape(w, (at.count * w.shape[1], *w.shape[2:])))
    return _channels_apart(at, made)


def by_groups(at: Examples) -> Tensor:
    """With weights of its own each example is a group of channels."""
    g, n, w = at.g, at.count, at.inputs[1]
    x = g.moveaxis(at.repeated(0), 0, 1)
    x = g.reshape(x, (x.shape[0], n * x.shape[2], *x.shape[3:]))
    weights = g.reshape(w, (n * w.shape[1], *w.shape[2:]))
    return _channels_apart(at, at.apply(x, weights, groups=n * at.attrs["groups"]))


def _channels_apart(at: Examples, made: Tensor) -> Tensor:
    shape = (made.shape[0], at.count, at.shape[1], *made.shape[2:])
    return at.g.moveaxis(at.g.reshape(made, shape), 1, 0)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * out.numel * numel(inputs[1].shape[1:])


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    """A product of the weights of each group by its windows."""
    groups, w = attrs["groups"], inputs[1].shape
    size = {
        "batch": out.shape[0] * groups,
        "m": out.shape[1] // groups,
        "k": numel(w[1:]),
        "n": numel(out.shape[2:]),
    }
    return "whole_matmul" if out.dtype.is_integer else "matmul", size


def _case(
    x: Shape, w: Shape, dtype: DType = DType.F32, note: str = "", **attrs: Any
) -> Sample:
    whole = dtype in (DType.F16, DType.I32)
    drawn = tuple(Drawn(s, dtype, -2, 2, whole=whole) for s in (x, w))
    return Sample(drawn, attrs, note)


_SAMPLES = (
    _case((2, 3, 17), (4, 3, 5), strides=2, pads=2),
    _case((1, 2, 9, 11), (3, 2, 3, 3), pads=1),
    _case((2, 4, 9, 10), (6, 2, 3, 2), groups=2, strides=(2, 3), pads=(1, 0, 0, 2)),
    _case((1, 5, 8, 9), (5, 1, 3, 3), groups=5, dilations=2, pads=(2, 2)),
    _case((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), strides=(1, 2, 1), pads=(0, 1, 1)),
    _case((1, 3, 23, 31), (18, 3, 4, 4), pads=(3, 0, 1, 2), note="pieces"),
    _case((3, 40, 4, 5), (21, 40, 1, 1), note="one tap"),
    _case((3, 16, 5, 6), (72, 8, 3, 3), groups=2, pads=1, note="many channels"),
    _case((4, 70, 4, 4), (5, 70, 4, 4), note="few results of long sums"),
    _case((1, 1, 1500), (2, 1, 1100), pads=30, note="a long sum"),
    _case((2, 0, 5, 5), (3, 0, 2, 2), note="nothing to sum: zeros"),
    _case((0, 2, 5), (3, 2, 2), note="no images"),
    _case((1, 1, 1), (1, 1, 1)),
    _case((65_537, 1, 2), (1, 1, 2), note="many images"),
    _case((1, 3, 6, 6), (2, 3, 3, 3), DType.F16, pads=1),
    _case((1, 3, 6, 6), (2, 3, 3, 3), DType.I32, pads=1),
    _case((1, 3, 6, 6), (2, 3, 3, 3), DType.F64, pads=1),
)

registry.register_all(
    Op(
        name="conv",
        arity=2,
        infer=_infer,
        reference=_conv,
        lower=Kernel(_recipe),
        attrs=(STRIDES, DILATIONS, PADS, GROUPS),
        traits=frozenset({"blas"}),
        flops=_flops,
        work=_work,
        tolerance=SUMMED,
        samples=_SAMPLES,
        vjp=conv_back,
        batch=_for_all,
        doc="Convolution (a correlation) of [N, C, …] by weights [M, C / groups, …] "
        "over 1 to 3 spatial axes. strides, dilations and pads: one number for all "
        "axes or one each; pads also all fronts and then all ends.",
    ),
)
