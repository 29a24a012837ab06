"""Slopes of the gates of networks: (graph, x, result, **attrs) → derivative."""

from __future__ import annotations

from typing import Any

_FAR = 1e4


def where_above(g: Any, x: Any, at: float, above: Any, below: Any) -> Any:
    """One slope above a point, another at and below it."""
    kind = x.dtype
    above, below = (
        g.constant(one, kind) if isinstance(one, int | float) else one
        for one in (above, below)
    )
    return g.where(x > at, above, below)


def _finite(g: Any, x: Any) -> Any:
    """Of gates that are open or closed beyond: infinity times 0 is no slope."""
    return g.clip(x, -_FAR, _FAR)


def _falling(g: Any, x: Any) -> Any:
    """Return exp(x) below 0 and a flat 1 from 0 on, so that it overflows nowhere.

    The corner at 0 has second derivative 0, as in PyTorch.
    """
    return g.exp(g.where(x < 0.0, x, g.constant(0, x.dtype)))


def softplus(g: Any, x: Any, y: Any) -> Any:
    """Of softplus: sigmoid."""
    return g.sigmoid(x)


def mish(g: Any, x: Any, y: Any) -> Any:
    """With t = tanh(softplus(x)): t + x (1 - t²) sigmoid(x)."""
    x = _finite(g, x)
    t = g.tanh(g.softplus(x))
    return t + x * (1.0 - t * t) * g.sigmoid(x)


def elu(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """Of elu: below 0 alpha exp(x), with all digits, which the result has not."""
    return where_above(g, x, 0.0, 1.0, _falling(g, x) * alpha)


def selu(g: Any, x: Any, y: Any, alpha: float, gamma: float) -> Any:
    """Of selu: gamma times elu's."""
    return where_above(g, x, 0.0, gamma, _falling(g, x) * (alpha * gamma))


def celu(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """Of celu: smooth at 0; of a negative alpha it is flat below."""
    below = _falling(g, x / alpha) if alpha >= 0 else 0.0
    return where_above(g, x, 0.0, 1.0, below)


def hard_sigmoid(g: Any, x: Any, y: Any, alpha: float, beta: float) -> Any:
    """Of hard_sigmoid: alpha on the line."""
    inside = g.logical_and(y > 0.0, y < 1.0)
    return inside.cast(x.dtype) * alpha


def hard_swish(g: Any, x: Any, y: Any) -> Any:
    """Return (2 x + 3) / 6 between -3 and 3, and the outer slopes at both ends."""
    inside = where_above(g, x, -3.0, x / 3.0 + 0.5, 0.0)
    return g.where(x < 3.0, inside, g.constant(1, x.dtype))


def softsign(g: Any, x: Any, y: Any) -> Any:
    """Of softsign: 1 / (1 + |x|)²."""
    far = 1.0 + g.abs(x)
    return 1.0 / (far * far)


def leaky_relu(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """Of leaky_relu: alpha at 0 and below."""
    return where_above(g, x, 0.0, 1.0, alpha)


def thresholded_relu(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """Of thresholded_relu: 1 above alpha."""
    return (x > alpha).cast(x.dtype)


def shrink(g: Any, x: Any, y: Any, lambd: float, bias: float) -> Any:
    """Of shrink: 1 beyond lambd."""
    return (g.abs(x) > lambd).cast(x.dtype)


def swish(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """With s = sigmoid(alpha x): s + alpha x s (1 - s)."""
    x = _finite(g, x * alpha)
    s = g.sigmoid(x)
    return s + x * s * (1.0 - s)


def by_x(g: Any, x: Any, slope: Any, y: Any) -> Any:
    """Of prelu, by its first operand."""
    return where_above(g, x, 0.0, 1.0, slope)


def by_slope(g: Any, x: Any, slope: Any, y: Any) -> Any:
    """Of prelu, by its second operand."""
    return where_above(g, x, 0.0, 0.0, x)
