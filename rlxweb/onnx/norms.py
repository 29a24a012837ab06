"""Normalisations of batches, groups, lines and neighbouring channels."""

from __future__ import annotations

from rlxweb.ir.p_norm import norm_root
from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts

Ints = tuple[int, ...]


@converts("BatchNormalization", until=6)
def _old_batch_norm(
    call: Call,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    consumed_inputs: Ints = (),
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
) -> Tensor:
    if not spatial:
        call.refuse("spatial is 0", "numbers for each channel, not for each place")
    if not is_test:
        call.refuse("is_test is 0", "a model that is trained no more")
    return call.g.batch_norm(x, mean, var, scale, bias, epsilon)


@converts("BatchNormalization", since=7)
def _batch_norm(
    call: Call,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> Tensor | tuple[Tensor, ...]:
    if not spatial:
        call.refuse("spatial is 0", "numbers for each channel, not for each place")
    if not training_mode:
        if call.wants(1):
            call.refuse("it is asked for what it learns", "training_mode is 0")
        return call.g.batch_norm(x, mean, var, scale, bias, epsilon)
    own_mean, own_var = call.g.batch_statistics(x)
    made = call.g.batch_norm(x, own_mean, own_var, scale, bias, epsilon)
    kept = (
        old * momentum + new * (1.0 - momentum)
        for old, new in ((mean, own_mean), (var, own_var))
    )
    return (made, *kept)


@converts("InstanceNormalization", since=6)
def _instance_norm(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    return call.g.instance_norm(x, scale, bias, epsilon)


@converts("GroupNormalization", since=18)
def _group_norm(
    call: Call,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    if call.version < 21:  # numbers for each group
        scale, bias = (_for_channels(call, x, one) for one in (scale, bias))
    return call.g.group_norm(x, num_groups, scale, bias, epsilon)


def _for_channels(call: Call, x: Tensor, one: Tensor) -> Tensor:
    """A number for each group as one for each channel."""
    each = x.shape[1] // max(1, *one.shape)
    spread = call.g.expand(one.reshape((*one.shape, 1)), (*one.shape, each))
    return spread.reshape((-1,))


@converts("LayerNormalization", since=17)
def _layer_norm(
    call: Call,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor | None, ...]:
    axes = tuple(range(normal_axis(axis, x.rank), x.rank))
    made = call.g.layer_norm(x, scale, bias, axes, epsilon)
    mean = call.g.mean(x, axes, keep_dim=True) if call.wants(1) else None
    return made, mean, call.g.inv_std(x, axes, epsilon) if call.wants(2) else None


@converts("RMSNormalization", since=23)
@converts("SimplifiedLayerNormalization")
@converts("SimplifiedLayerNormalization", domain="com.microsoft")
def _rms_norm(
    call: Call,
    x: Tensor,
    scale: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """ONNX Runtime's optimiser writes the second name, in either domain."""
    if call.wants(1):
        call.refuse("output 1 is used", "only training needs it")
    axes = tuple(range(normal_axis(axis, x.rank), x.rank))
    return call.g.rms_norm(x, scale, None, axes, epsilon)


@converts("LRN")
def _local_response_norm(
    call: Call,
    x: Tensor,
    *,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
) -> Tensor:
    return call.g.local_response_norm(x, size, alpha, beta, bias, (size - 1) // 2)


@converts("MeanVarianceNormalization", since=9)
def _mean_variance_norm(call: Call, x: Tensor, *, axes: Ints = (0, 2, 3)) -> Tensor:
    g = call.g
    far = x - g.mean(x, axes, keep_dim=True)
    deviation = norm_root(g, g.mean(far * far, axes, keep_dim=True))
    return far / (deviation + 1e-9)


@converts("LpNormalization")
def _lp_norm(call: Call, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    if p not in (1, 2):
        call.contradict(f"p is {p}", "it is 1 or 2")
    # Nothing is divided by 0: a line of zeros stays one.
    return call.g.normalize(x, float(p), axis, 1e-37)
