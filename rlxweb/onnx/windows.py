"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.recipes.windows import same_pads

Ints = tuple[int, ...]


def _checked(call: Call, kernel: Sequence[int], said: Ints | None) -> None:
    if said is not None and tuple(said) != tuple(kernel):
        call.contradict(f"kernel_shape is {said}", f"the weights have {tuple(kernel)}")


def _geometry(
    call: Call,
    x: Tensor,
    kernel: Ints,
    given: tuple[Ints | None, Ints | None, Ints | None, str],
) -> dict[str, Any]:
    """Strides, dilations and pads in numbers, of these and `auto_pad` as given."""
    strides, dilations, pads, auto_pad = given
    size = x.shape[2:]
    strides = strides or (1,) * len(size)
    dilations = dilations or (1,) * len(size)
    if len(kernel) != len(size) or {len(strides), len(dilations)} != {len(size)}:
        call.contradict(
            f"a kernel of {kernel}, strides {strides}, dilations {dilations}",
            f"x has {len(size)} spatial axes",
        )
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        is_upper = auto_pad == "SAME_UPPER"
        pads = same_pads(size, kernel, strides, dilations, is_upper)
    elif auto_pad == "VALID":
        pads = None
    elif auto_pad not in ("NOTSET", ""):
        call.contradict(f"auto_pad is {auto_pad!r}", "no version of the op knows that")
    pads = pads or (0,) * (2 * len(size))
    return {"strides": strides, "dilations": dilations, "pads": pads}


def _with_bias(made: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return made
    return made + bias.reshape((*bias.shape, *(1,) * (made.rank - 2)))


@converts("Conv")
def _conv(
    call: Call,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    kernel = w.shape[2:]
    _checked(call, kernel, kernel_shape)
    where = _geometry(call, x, kernel, (strides, dilations, pads, auto_pad))
    return _with_bias(call.g.apply("conv", x, w, groups=group, **where), bias)


@converts("ConvInteger")
def _conv_integer(
    call: Call,
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    g, kernel = call.g, w.shape[2:]
    _checked(call, kernel, kernel_shape)
    where = _geometry(call, x, kernel, (strides, dilations, pads, auto_pad))
    x, w = (
        _from_zero(call, one, zero)
        for one, zero in ((x, x_zero_point), (w, w_zero_point))
    )
    return g.apply("conv", x, w, groups=group, **where)


def _from_zero(call: Call, x: Tensor, zero: Tensor | None) -> Tensor:
    """Integers less their zero point, which may be one for each row of weights."""
    wide = call.g.cast(x, DType.I32)
    if zero is None:
        return wide
    shape = (*zero.shape, *(1,) * (x.rank - 1)) if prod(zero.shape) > 1 else ()
    return wide - call.g.cast(zero, DType.I32).reshape(shape)


@converts("ConvTranspose")
def _conv_transpose(
    call: Call,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    kernel, rank = w.shape[2:], x.rank - 2
    _checked(call, kernel, kernel_shape)
    given = (strides, dilations, pads, "NOTSET")
    where = _geometry(call, x, kernel, given)
    more = list(output_padding or (0,) * rank)
    wanted: Sequence[int] | None = output_shape and output_shape[-rank:]
    if wanted is None and auto_pad.startswith("SAME"):
        pairs = zip(x.shape[2:], where["strides"], strict=True)
        wanted = [n * s for n, s in pairs]
    if wanted is not None:
        where["pads"] = _cut_to(x, kernel, where, wanted, more, auto_pad)
    elif auto_pad == "VALID":
        where["pads"] = (0,) * (2 * rank)
    made = call.g.apply(
        "conv_transpose", x, w, groups=group, output_padding=more, **where
    )
    return _with_bias(made, bias)


def _cut_to(
    x: Tensor,
    kernel: Ints,
    where: dict[str, Any],
    wanted: Sequence[int],
    more: list[int],
    auto_pad: str,
) -> Ints:
    """The pads that leave so many results; where there are too few, `more` grows."""
    fronts, ends = [], []
    for at, out in enumerate(wanted):
        reach = (kernel[at] - 1) * where["dilations"][at] + 1
        whole = (x.shape[2 + at] - 1) * where["strides"][at] + reach + more[at]
        left = max(0, whole - out)
        more[at] += max(0, out - whole)
        half = left // 2
        fronts.append(half if auto_pad == "SAME_UPPER" else left - half)
        ends.append(left - fronts[-1])
    return (*fronts, *ends)


@converts("MaxPool")
def _max_pool(
    call: Call,
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    where = _geometry(call, x, kernel_shape, (strides, dilations, pads, auto_pad))
    where |= {"kernel": kernel_shape, "ceil_mode": bool(ceil_mode)}
    made = call.g.apply("max_pool", x, **where)
    if not call.wants(1):
        return made
    places = call.g.apply("max_pool_indices", x, **where)
    return made, _through_all(call, x, places, bool(storage_order))


def _through_all(call: Call, x: Tensor, places: Tensor, by_columns: bool) -> Tensor:
    """Places within an image as places in all of x, as ONNX counts them."""
    g, size = call.g, x.shape[2:]
    if by_columns:
        order = np.arange(prod(size)).reshape(size[::-1]).T.reshape(-1)
        places = g.gather(g.constant(order.astype(np.int32)), places)
    images = np.arange(x.shape[0] * x.shape[1], dtype=np.int64) * prod(size)
    images = images.reshape(*x.shape[:2], *(1,) * len(size))
    return g.cast(places, DType.I64) + g.constant(images)


@converts("MaxUnpool", since=9)
def _max_unpool(
    call: Call,
    x: Tensor,
    places: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    g, rank = call.g, x.rank - 2
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    size = [
        (n - 1) * s + k - pads[at] - pads[at + rank]
        for at, (n, s, k) in enumerate(
            zip(x.shape[2:], strides, kernel_shape, strict=True)
        )
    ]
    shape = (*x.shape[:2], *size)
    nothing = g.expand(g.constant(np.zeros((), x.dtype.numpy)), (prod(shape),))
    made = g.scatter_elements(nothing, places.reshape((-1,)), x.reshape((-1,)))
    made = made.reshape(shape)
    if output_shape is None:
        return made
    wanted = call.ints(output_shape, "the shape of the output")
    for axis, (n, own) in enumerate(zip(wanted, shape, strict=True)):
        if n > own:
            more = (*made.shape[:axis], n - own, *made.shape[axis + 1 :])
            empty = g.expand(g.constant(np.zeros((), x.dtype.numpy)), more)
            made = g.concat([made, empty], axis)
        elif n < own:
            call.contradict(f"axis {axis} of {n} elements", f"it has {own}")
    return made


@converts("AveragePool")
def _average_pool(
    call: Call,
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    where = _geometry(call, x, kernel_shape, (strides, dilations, pads, auto_pad))
    return call.g.apply(
        "avg_pool",
        x,
        kernel=kernel_shape,
        ceil_mode=bool(ceil_mode),
        count_include_pad=bool(count_include_pad),
        **where,
    )


@converts("LpPool", since=2)
def _lp_pool(
    call: Call,
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    p: int = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    where = _geometry(call, x, kernel_shape, (strides, dilations, pads, auto_pad))
    where |= {"kernel": kernel_shape, "ceil_mode": bool(ceil_mode)}
    return call.g.apply("lp_pool", x, p=float(p), **where)


@converts("GlobalAveragePool")
def _global_average_pool(call: Call, x: Tensor) -> Tensor:
    return call.g.mean(x, range(2, x.rank), keep_dim=True)


@converts("GlobalMaxPool")
def _global_max_pool(call: Call, x: Tensor) -> Tensor:
    return call.g.max(x, range(2, x.rank), keep_dim=True)


@converts("GlobalLpPool", since=2)
def _global_lp_pool(call: Call, x: Tensor, *, p: int = 2) -> Tensor:
    if p < 1:
        call.contradict(f"p is {p}", "it is at least 1")
    g, axes = call.g, range(2, x.rank)
    if p == 1:
        return g.sum(g.abs(x), axes, keep_dim=True)
    if p == 2:
        return g.sqrt(g.sum(x * x, axes, keep_dim=True))
    return g.pow(g.sum(g.pow(g.abs(x), float(p)), axes, keep_dim=True), 1.0 / p)
