"""Converters of batch, group, layer and local response normalisation."""

from __future__ import annotations

from rlxweb.ir.p_norm import norm_root
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts

Ints = tuple[int, ...]


@converts("BatchNormalization", until=6)
def _old_batch_norm(
    ctx: ConversionContext,
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
        ctx.raise_unsupported(
            "spatial is 0",
            "must be 1: statistics per position are not supported, only per channel",
        )
    if not is_test:
        ctx.raise_unsupported("is_test is 0", "must be 1: only inference is supported")
    return ctx.graph.batch_norm(x, mean, var, scale, bias, epsilon)


@converts("BatchNormalization", since=7)
def _batch_norm(
    ctx: ConversionContext,
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
        ctx.raise_unsupported(
            "spatial is 0",
            "must be 1: statistics per position are not supported, only per channel",
        )
    if not training_mode:
        if ctx.needs_output(1):
            ctx.raise_unsupported(
                "output 1 is used and training_mode is 0",
                "output 1 requires training_mode 1",
            )
        return ctx.graph.batch_norm(x, mean, var, scale, bias, epsilon)
    batch_mean, batch_var = ctx.graph.batch_statistics(x)
    normalized = ctx.graph.batch_norm(x, batch_mean, batch_var, scale, bias, epsilon)
    running_statistics = (
        old * momentum + new * (1.0 - momentum)
        for old, new in ((mean, batch_mean), (var, batch_var))
    )
    return (normalized, *running_statistics)


@converts("InstanceNormalization", since=6)
def _instance_norm(
    ctx: ConversionContext,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
) -> Tensor:
    return ctx.graph.instance_norm(x, scale, bias, epsilon)


@converts("GroupNormalization", since=18)
def _group_norm(
    ctx: ConversionContext,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    if ctx.version < 21:  # numbers for each group
        scale, bias = (
            _group_to_channel_values(ctx, x, values) for values in (scale, bias)
        )
    return ctx.graph.group_norm(x, num_groups, scale, bias, epsilon)


def _group_to_channel_values(
    ctx: ConversionContext, x: Tensor, values: Tensor
) -> Tensor:
    """Expand one value for each group to one for each channel."""
    channels_per_group = x.shape[1] // max(1, *values.shape)
    expanded = ctx.graph.expand(
        values.reshape((*values.shape, 1)), (*values.shape, channels_per_group)
    )
    return expanded.reshape((-1,))


@converts("LayerNormalization", since=17)
def _layer_norm(
    ctx: ConversionContext,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor | None, ...]:
    axes = tuple(range(normalize_axis(axis, x.rank), x.rank))
    normalized = ctx.graph.layer_norm(x, scale, bias, axes, epsilon)
    mean = ctx.graph.mean(x, axes, keep_dim=True) if ctx.needs_output(1) else None
    return (
        normalized,
        mean,
        ctx.graph.inv_std(x, axes, epsilon) if ctx.needs_output(2) else None,
    )


@converts("RMSNormalization", since=23)
@converts("SimplifiedLayerNormalization")
@converts("SimplifiedLayerNormalization", domain="com.microsoft")
def _rms_norm(
    ctx: ConversionContext,
    x: Tensor,
    scale: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """Convert RMS normalisation; ONNX Runtime's optimiser writes
    `SimplifiedLayerNormalization`, in either domain.
    """
    if ctx.needs_output(1):
        ctx.raise_unsupported(
            "output 1 is used", "output 1 is for training, which is not supported"
        )
    axes = tuple(range(normalize_axis(axis, x.rank), x.rank))
    return ctx.graph.rms_norm(x, scale, None, axes, epsilon)


@converts("LRN")
def _local_response_norm(
    ctx: ConversionContext,
    x: Tensor,
    *,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
) -> Tensor:
    return ctx.graph.local_response_norm(x, size, alpha, beta, bias, (size - 1) // 2)


@converts("MeanVarianceNormalization", since=9)
def _mean_variance_norm(
    ctx: ConversionContext, x: Tensor, *, axes: Ints = (0, 2, 3)
) -> Tensor:
    g = ctx.graph
    centered = x - g.mean(x, axes, keep_dim=True)
    deviation = norm_root(g, g.mean(centered * centered, axes, keep_dim=True))
    return centered / (deviation + 1e-9)


@converts("LpNormalization")
def _lp_norm(
    ctx: ConversionContext, x: Tensor, *, axis: int = -1, p: int = 2
) -> Tensor:
    if p not in (1, 2):
        ctx.raise_invalid_model(f"p is {p}", "must be 1 or 2")
    # Nothing is divided by 0: a line of zeros stays one.
    return ctx.graph.normalize(x, float(p), axis, 1e-37)
