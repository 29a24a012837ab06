"""Graph methods for convolutions, under PyTorch's names and arguments.

Whoever needs other paddings at the two ends of an axis, ONNX's say, calls the op
itself: `apply("conv", x, weight, pads=(…))`. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, ParamSpec

from rlxweb.core.errors import AttributeRefused, ShapeError
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import (
    as_integers,
    as_pair,
    bad_shape,
    format_shape,
    short_repr,
)
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

SpatialSizes = int | Sequence[int]
P = ParamSpec("P")


def _fixed_rank_method(
    generic_method: Callable[P, Tensor], rank: int
) -> Callable[P, Tensor]:
    """Return the method for one number of spatial axes, as PyTorch has one for each."""
    name = f"{generic_method.__name__}{rank}d"

    def method(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        x = kwargs.get("x", args[1] if len(args) > 1 else None)
        if isinstance(x, Tensor) and x.rank != rank + 2:
            raise ShapeError(
                f"{name} of {format_shape(x.shape)}",
                f"the array has rank {x.rank}",
                f"expected rank {rank + 2}: a batch axis, a channel axis and "
                f"{rank} spatial {'axis' if rank == 1 else 'axes'}",
                "reshape a single image to [1, C, …]",
            )
        return generic_method(*args, **kwargs)

    method.__name__, method.__qualname__ = name, f"Graph.{name}"
    method.__doc__ = generic_method.__doc__
    method.__dict__["__signature__"] = signature(generic_method)
    return method


def add_fixed_rank_methods(*generic_methods: Callable[..., Tensor]) -> None:
    """Register the methods for 1, 2 and 3 spatial axes of each: `conv2d` of `conv`."""
    for generic_method in generic_methods:
        for rank in (1, 2, 3):
            graph_method(_fixed_rank_method(generic_method, rank))


def _add_channel_bias(g: Graph, convolved: Tensor, bias: Tensor | None) -> Tensor:
    """Add a number to each channel, if there is a bias."""
    if bias is None:
        return convolved
    if bias.shape != convolved.shape[1:2]:
        raise ShapeError(
            "bias of a convolution",
            f"the bias has shape {format_shape(bias.shape)}",
            f"expected shape {format_shape(convolved.shape[1:2])}, one number per "
            "output channel",
        )
    ones = (1,) * (convolved.rank - 2)
    return g.apply("add", convolved, g.reshape(bias, (*bias.shape, *ones)))


@graph_method
def conv(
    g: Graph,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: SpatialSizes = 1,
    padding: SpatialSizes | str = 0,
    dilation: SpatialSizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve [N, C, …] with weights [M, C / groups, …]: [N, M, …].

    padding   zeros at both ends of each axis, one number for all or one each;
              "same": as many results as elements, with stride 1; "valid": none
    Errors   ShapeError, AttributeRefused, DTypeError.
    """
    convolved = g.apply(
        "conv",
        x,
        weight,
        strides=stride,
        dilations=dilation,
        pads=_resolve_padding(x, weight, stride, padding, dilation),
        groups=groups,
    )
    return _add_channel_bias(g, convolved, bias)


@graph_method
def conv_transpose(
    g: Graph,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: SpatialSizes = 1,
    padding: SpatialSizes = 0,
    output_padding: SpatialSizes = 0,
    groups: int = 1,
    dilation: SpatialSizes = 1,
) -> Tensor:
    """Return the transposed convolution of [N, C, …] with weights [C, M / groups, …].

    padding          results left out at both ends of each axis
    output_padding   results more at the end of each axis
    Errors   ShapeError, AttributeRefused, DTypeError.
    """
    convolved = g.apply(
        "conv_transpose",
        x,
        weight,
        strides=stride,
        dilations=dilation,
        pads=padding,
        output_padding=output_padding,
        groups=groups,
    )
    return _add_channel_bias(g, convolved, bias)


@graph_method
def deform_conv2d(
    g: Graph,
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: SpatialSizes = 1,
    padding: SpatialSizes = 0,
    dilation: SpatialSizes = 1,
    mask: Tensor | None = None,
) -> Tensor:
    """Return a convolution whose taps are moved by offsets, as torchvision's.

    x        [N, C, H, W]
    offset   [N, 2·offset_groups·h·w, …]: how far down and across each tap is moved
    weight   [O, C/groups, h, w]
    bias     [O]
    mask     [N, offset_groups·h·w, …]: what each tap counts

    The groups follow from the shapes. Errors  ShapeError, AttributeRefused.
    """
    if {x.rank, offset.rank, weight.rank} != {4}:
        raise bad_shape(
            f"the ranks of x, offset and weight are {x.rank}, {offset.rank} "
            f"and {weight.rank}",
            "x, offset and weight must have rank 4",
        )
    offsets_per_group = 2 * weight.shape[2] * weight.shape[3]
    pads = as_pair(padding)
    inputs = (x, weight, offset) if mask is None else (x, weight, offset, mask)
    convolved = g.apply(
        "deform_conv",
        *inputs,
        strides=as_pair(stride),
        dilations=as_pair(dilation),
        pads=(*pads, *pads),
        groups=max(x.shape[1] // max(weight.shape[1], 1), 1),
        offset_groups=max(offset.shape[1] // max(offsets_per_group, 1), 1),
    )
    return _add_channel_bias(g, convolved, bias)


add_fixed_rank_methods(conv, conv_transpose)


def _resolve_padding(
    x: Tensor,
    weight: Tensor,
    stride: SpatialSizes,
    padding: SpatialSizes | str,
    dilation: SpatialSizes,
) -> SpatialSizes:
    """Return the padding in numbers; PyTorch's words "same" and "valid" are
    resolved.
    """
    if not isinstance(padding, str):
        return padding
    if padding not in ("same", "valid"):
        raise AttributeRefused(
            f"conv with padding={short_repr(padding)}",
            "the padding is invalid",
            "expected 'same', 'valid', one integer, or one integer per spatial axis",
        )
    if padding == "valid":
        return 0
    if any(step != 1 for step in as_integers(stride, "a stride")):
        raise AttributeRefused(
            f"conv with padding='same' and stride={short_repr(stride)}",
            "the result would be smaller than the input",
            "padding='same' requires stride 1",
            "pass the padding as numbers",
        )
    kernel = weight.shape[2:]
    dilations = as_integers(dilation, "a dilation")
    dilations = dilations * len(kernel) if len(dilations) == 1 else dilations
    totals = [(k - 1) * d for k, d in zip(kernel, dilations, strict=False)]
    fronts = [total // 2 for total in totals]
    return (
        *fronts,
        *(total - front for total, front in zip(totals, fronts, strict=True)),
    )
