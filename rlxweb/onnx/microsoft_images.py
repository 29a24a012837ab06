"""Ops of com.microsoft over images whose channels lie last, and of Stable Diffusion.

ONNX Runtime's optimiser writes them for GPUs: norms of groups with what stands before
and after them, convolutions and pools of channels that lie last, what the transformers
of a U-Net add and gate. Weights of convolutions lie as ONNX's own do.
"""

from __future__ import annotations

from typing import Unpack

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.onnx.microsoft import DOMAIN, activated, own
from rlxweb.onnx.windows import Pooled, Weighted


@converts("GroupNorm", domain=DOMAIN)
def _group_norm(
    call: Call,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Tensor:
    how = (groups, epsilon, activation, bool(channels_last))
    return _normed(call, x, gamma, beta, how)


@converts("SkipGroupNorm", domain=DOMAIN)
def _skip_group_norm(
    call: Call,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    skip: Tensor,
    bias: Tensor | None = None,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Of the sum with what was skipped, which may be one number for each channel."""
    g, is_last = call.g, bool(channels_last)
    channel = x.rank - 1 if is_last else 1
    one = [1] * x.rank
    one[channel] = x.shape[channel]
    each = (x.shape[0], *one[1:])
    if skip.shape == (x.shape[0], x.shape[channel]):
        skip = g.reshape(skip, each)
    if skip.shape not in (x.shape, each):
        call.contradict(
            f"skip is {show(skip.shape)}", f"{show(x.shape)} or {show(each)} here"
        )
    total = x + skip
    total = total if bias is None else total + g.reshape(bias, one)
    how = (groups, epsilon, activation, is_last)
    return _normed(call, total, gamma, beta, how), total


def _normed(
    call: Call,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    how: tuple[int, float, int, bool],
) -> Tensor:
    """A norm of groups and its activation, in the wider type of x and gamma."""
    g, (groups, epsilon, activation, is_last) = call.g, how
    if activation not in (0, 1):
        call.contradict(f"activation is {activation}", "0: none, 1: SiLU")
    if gamma.dtype is beta.dtype and {x.dtype, gamma.dtype} == {DType.F16, DType.F32}:
        gamma, beta = (g.cast(one, DType.F32) for one in (gamma, beta))
    wide = g.cast(x, gamma.dtype)
    wide = g.moveaxis(wide, -1, 1) if is_last else wide
    made = g.group_norm(wide, groups, gamma, beta, epsilon)
    made = g.silu(made) if activation else made
    made = g.moveaxis(made, 1, -1) if is_last else made
    return g.cast(made, x.dtype)


@converts("NhwcConv", domain=DOMAIN)
def _conv(
    call: Call,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    **given: Unpack[Weighted],
) -> Tensor:
    g = call.g
    made = own("Conv").convert(call, g.moveaxis(x, -1, 1), w, bias, **given)
    return g.moveaxis(made, 1, -1)


@converts("NhwcFusedConv", domain=DOMAIN)
def _fused_conv(
    call: Call,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    more: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    **given: Unpack[Weighted],
) -> Tensor:
    """What is added lies as the result does."""
    made = _conv(call, x, w, bias, **given)
    made = made if more is None else made + more
    return activated(call, made, activation, activation_params)


@converts("NhwcMaxPool", domain=DOMAIN)
def _max_pool(call: Call, x: Tensor, **given: Unpack[Pooled]) -> Tensor:
    g = call.g
    made = own("MaxPool").convert(call, g.moveaxis(x, -1, 1), **given)
    return g.moveaxis(made, 1, -1)


@converts("BiasAdd", domain=DOMAIN)
def _bias_add(call: Call, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return x + bias + skip


@converts("BiasSplitGelu", domain=DOMAIN)
def _bias_split_gelu(call: Call, x: Tensor, bias: Tensor) -> Tensor:
    """The first half of the channels times GELU of the second."""
    if x.shape[-1] % 2:
        call.contradict(f"{x.shape[-1]} channels", "an even number: two halves")
    left, right = call.g.split(x + bias, 2, -1)
    return left * call.g.gelu(right)
