"""Derivatives of parametric activations: (graph, x, result, **attrs) → slope."""

from __future__ import annotations

from typing import Any

_MAX_GATE_INPUT = 1e4


def piecewise_slope(g: Any, x: Any, threshold: float, above: Any, below: Any) -> Any:
    """Return one slope above a threshold and another at and below it."""
    dtype = x.dtype
    above, below = (
        g.constant(value, dtype) if isinstance(value, int | float) else value
        for value in (above, below)
    )
    return g.where(x > threshold, above, below)


def _clip_gate_input(g: Any, x: Any) -> Any:
    """Clip the input where the gate is fully open or closed, to avoid infinity times
    0.
    """
    return g.clip(x, -_MAX_GATE_INPUT, _MAX_GATE_INPUT)


def _exp_below_zero(g: Any, x: Any) -> Any:
    """Return exp(x) below 0 and a flat 1 from 0 on, so that it overflows nowhere.

    The corner at 0 has second derivative 0, as in PyTorch.
    """
    return g.exp(g.where(x < 0.0, x, g.constant(0, x.dtype)))


def softplus_slope(g: Any, x: Any, y: Any) -> Any:
    """Derivative of softplus: sigmoid(x)."""
    return g.sigmoid(x)


def mish_slope(g: Any, x: Any, y: Any) -> Any:
    """Derivative of mish: t + x (1 - t²) sigmoid(x) with t = tanh(softplus(x))."""
    x = _clip_gate_input(g, x)
    t = g.tanh(g.softplus(x))
    return t + x * (1.0 - t * t) * g.sigmoid(x)


def elu_slope(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """Derivative of elu: below 0 alpha exp(x), with all digits, unlike the result."""
    return piecewise_slope(g, x, 0.0, 1.0, _exp_below_zero(g, x) * alpha)


def selu_slope(g: Any, x: Any, y: Any, alpha: float, gamma: float) -> Any:
    """Derivative of selu: gamma times that of elu."""
    return piecewise_slope(g, x, 0.0, gamma, _exp_below_zero(g, x) * (alpha * gamma))


def celu_slope(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """Derivative of celu: smooth at 0; flat below 0 for a negative alpha."""
    below = _exp_below_zero(g, x / alpha) if alpha >= 0 else 0.0
    return piecewise_slope(g, x, 0.0, 1.0, below)


def hard_sigmoid_slope(g: Any, x: Any, y: Any, alpha: float, beta: float) -> Any:
    """Derivative of hard_sigmoid: alpha on the line."""
    is_inside = g.logical_and(y > 0.0, y < 1.0)
    return is_inside.cast(x.dtype) * alpha


def hard_swish_slope(g: Any, x: Any, y: Any) -> Any:
    """Derivative of hard_swish: (2 x + 3) / 6 between -3 and 3, and the outer slopes at
    both ends.
    """
    inside = piecewise_slope(g, x, -3.0, x / 3.0 + 0.5, 0.0)
    return g.where(x < 3.0, inside, g.constant(1, x.dtype))


def softsign_slope(g: Any, x: Any, y: Any) -> Any:
    """Derivative of softsign: 1 / (1 + |x|)²."""
    denominator = 1.0 + g.abs(x)
    return 1.0 / (denominator * denominator)


def leaky_relu_slope(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """Derivative of leaky_relu: alpha at 0 and below, 1 above."""
    return piecewise_slope(g, x, 0.0, 1.0, alpha)


def thresholded_relu_slope(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """Derivative of thresholded_relu: 1 above alpha."""
    return (x > alpha).cast(x.dtype)


def shrink_slope(g: Any, x: Any, y: Any, lambd: float, bias: float) -> Any:
    """Derivative of shrink: 1 beyond lambd."""
    return (g.abs(x) > lambd).cast(x.dtype)


def swish_slope(g: Any, x: Any, y: Any, alpha: float) -> Any:
    """Derivative of swish: s + alpha x s (1 - s) with s = sigmoid(alpha x)."""
    x = _clip_gate_input(g, x * alpha)
    s = g.sigmoid(x)
    return s + x * s * (1.0 - s)


def prelu_slope_by_x(g: Any, x: Any, slope: Any, y: Any) -> Any:
    """Derivative of prelu by its first operand."""
    return piecewise_slope(g, x, 0.0, 1.0, slope)


def prelu_slope_by_slope(g: Any, x: Any, slope: Any, y: Any) -> Any:
    """Derivative of prelu by its second operand."""
    return piecewise_slope(g, x, 0.0, 0.0, x)
