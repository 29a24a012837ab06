"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Required, TypedDict, Unpack

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.recipes.windows import same_pads

Ints = tuple[int, ...]
_PADDED = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


class Where(TypedDict, total=False):
    """The attributes of windows that all have, as given."""

    auto_pad: str
    dilations: Ints
    pads: Ints
    strides: Ints


class Weighted(Where, total=False):
    """Those of a convolution."""

    group: int
    kernel_shape: Ints


def _geometry(call: Call, x: Tensor, kernel: Ints, where: Where) -> dict[str, Any]:
    """Strides, dilations and pads in numbers."""
    size, auto_pad = x.shape[2:], where.get("auto_pad") or "NOTSET"
    strides = where.get("strides") or (1,) * len(size)
    dilations = where.get("dilations") or (1,) * len(size)
    pads = where.get("pads")
    if len(kernel) != len(size) or {len(strides), len(dilations)} != {len(size)}:
        call.contradict(
            f"a kernel of {kernel}, strides {strides}, dilations {dilations}",
            f"x has {len(size)} spatial axes",
        )
    if auto_pad not in _PADDED:
        call.contradict(f"auto_pad is {auto_pad!r}", "no version of the op knows that")
    if auto_pad.startswith("SAME"):
        is_upper = auto_pad == "SAME_UPPER"
        pads = same_pads(size, kernel, strides, dilations, is_upper)
    elif auto_pad == "VALID":
        pads = None
    pads = pads or (0,) * (2 * len(size))
    return {"strides": strides, "dilations": dilations, "pads": pads}


def of_weights(call: Call, x: Tensor, w: Tensor, given: Weighted) -> dict[str, Any]:
    """The attributes of a convolution of ours."""
    kernel, said = w.shape[2:], given.get("kernel_shape")
    if said is not None and said != kernel:
        call.contradict(f"kernel_shape is {said}", f"the weights have {kernel}")
    where = _geometry(call, x, kernel, given)
    return {"groups": given.get("group", 1), **where}


class Pooled(Where, total=False):
    """Those of a pool."""

    kernel_shape: Required[Ints]
    ceil_mode: int


def _of_pool(call: Call, x: Tensor, given: Pooled) -> dict[str, Any]:
    """The attributes of a pool of ours."""
    kernel = given["kernel_shape"]
    where = _geometry(call, x, kernel, given)
    return {"kernel": kernel, "ceil_mode": bool(given.get("ceil_mode")), **where}


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
    **given: Unpack[Weighted],
) -> Tensor:
    made = call.g.apply("conv", x, w, **of_weights(call, x, w, given))
    return _with_bias(made, bias)


@converts("ConvTranspose")
def _conv_transpose(
    call: Call,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    **given: Unpack[Weighted],
) -> Tensor:
    kernel, rank = w.shape[2:], x.rank - 2
    auto_pad = given.get("auto_pad", "NOTSET")
    where = of_weights(call, x, w, given)
    more = list(output_padding or (0,) * rank)
    wanted: Sequence[int] | None = output_shape and output_shape[-rank:]
    if wanted is None and auto_pad.startswith("SAME"):
        pairs = zip(x.shape[2:], where["strides"], strict=True)
        wanted = [n * s for n, s in pairs]
    if wanted is not None:
        where["pads"] = _cut_to(x, kernel, where, wanted, more, auto_pad)
    made = call.g.apply("conv_transpose", x, w, output_padding=more, **where)
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
    storage_order: int = 0,
    **given: Unpack[Pooled],
) -> Tensor | tuple[Tensor, Tensor]:
    where = _of_pool(call, x, given)
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
    count_include_pad: int = 0,
    **given: Unpack[Pooled],
) -> Tensor:
    return pooled_mean(call, x, bool(count_include_pad), given)


def pooled_mean(call: Call, x: Tensor, padding: bool, given: Pooled) -> Tensor:
    """An average pool; `padding`: what is padded counts."""
    where = _of_pool(call, x, given)
    return call.g.apply("avg_pool", x, count_include_pad=padding, **where)


@converts("LpPool", since=2)
def _lp_pool(
    call: Call,
    x: Tensor,
    *,
    p: int = 2,
    **given: Unpack[Pooled],
) -> Tensor:
    return call.g.apply("lp_pool", x, p=float(p), **_of_pool(call, x, given))


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
    return g.norm(x, float(p), axes, keep_dim=True)
