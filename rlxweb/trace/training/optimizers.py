"""Optimizers as traced functions on arrays: SGD, Adam, AdamW.

An optimiser is a frozen record of its settings. `init` makes its state for parameters,
`update` steps both; within a traced function that becomes part of its graph, and state
stays where the parameters are. Parameters are arrays, or tuples, lists, dicts and
dataclasses of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.core.errors import UsageError, shown
from rlxweb.trace.training.tree_map import map_trees, map_trees_to_many

Rate = float | Callable[[Any], Any]
"""Learning rate, or a function from the step number (1, 2, …, a float32) to it."""


class Optimizer(ABC):
    """Base class of optimizers."""

    rate: Rate

    @abstractmethod
    def init(self, params: Any) -> Any:
        """Return the state before the first step, for parameters or arrays like
        them.
        """

    @abstractmethod
    def update(self, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        """Return the next parameters and state.

        Errors   ShapeError for gradients unlike the parameters.
        """

    def _rate(self, count: Any, like: Any) -> Any:
        """Return the learning rate of a step, in the dtype of a parameter."""
        if callable(self.rate):
            return _cast_like(self.rate(count), like)
        return self.rate

    def _check(self, name: str, value: float, low: float, high: float) -> None:
        if not isinstance(value, int | float) or not low <= value < high:
            upper = "finite" if high == np.inf else f"below {high:g}"
            raise UsageError(
                type(self).__name__,
                f"{name} is {shown(value)}",
                f"{name} must be at least {low:g} and {upper}",
            )


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent: v ← momentum · v + g; p ← p - rate · v.

    rate      > 0, or a function of the step's number
    momentum  of the velocity v; 0: none
    nesterov  looks ahead: p ← p - rate · (g + momentum · v) (Sutskever et al. 2013)
    decay     of the weights, added to the gradient: g + decay · p
    """

    rate: Rate = 1e-2
    momentum: float = 0.0
    nesterov: bool = False
    decay: float = 0.0

    def __post_init__(self) -> None:
        _check_rate(self)
        self._check("momentum", self.momentum, 0.0, 1.0)
        self._check("decay", self.decay, 0.0, np.inf)

    def init(self, params: Any) -> Any:
        velocity = {"v": _zeros_like_params(params)} if self.momentum else {}
        return {"count": np.zeros((), np.float32), **velocity}

    def update(self, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        count = state["count"] + np.float32(1)

        def add_weight_decay(p: Any, g: Any) -> Any:
            return g + self.decay * p if self.decay else g

        def update_plain(p: Any, g: Any) -> Any:
            return p - self._rate(count, p) * add_weight_decay(p, g)

        def update_with_momentum(p: Any, g: Any, v: Any) -> tuple[Any, Any]:
            g = add_weight_decay(p, g)
            v = self.momentum * v + g
            direction = g + self.momentum * v if self.nesterov else v
            return p - self._rate(count, p) * direction, v

        context = "SGD.update"
        if not self.momentum:
            return map_trees(update_plain, params, grads, context=context), {
                "count": count
            }
        params, v = map_trees_to_many(
            2, update_with_momentum, params, grads, state["v"], context=context
        )
        return params, {"count": count, "v": v}


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam optimizer (Kingma and Ba 2015): steps by running means of gradients and
    their squares.

    m ← b1 m + (1 - b1) g;  v ← b2 v + (1 - b2) g²;
    p ← p - rate · m̂ / (sqrt(v̂) + eps), with m̂, v̂ divided by 1 - bⁿ of the n-th step

    rate    > 0, or a function of the step's number
    b1, b2  of the two means
    eps     keeps the quotient finite
    """

    rate: Rate = 1e-3
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _check_rate(self)
        self._check("b1", self.b1, 0.0, 1.0)
        self._check("b2", self.b2, 0.0, 1.0)
        self._check("eps", self.eps, 0.0, 1.0)

    def init(self, params: Any) -> Any:
        zeros = _zeros_like_params(params)
        return {
            "count": np.zeros((), np.float32),
            "m": zeros,
            "v": _zeros_like_params(params),
        }

    def update(self, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        count = state["count"] + np.float32(1)

        def update_parameter(p: Any, g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            m = self.b1 * m + (1.0 - self.b1) * g
            v = self.b2 * v + (1.0 - self.b2) * (g * g)
            n = _cast_like(count, p)
            mean, square = m / (1.0 - self.b1**n), v / (1.0 - self.b2**n)
            step = mean / (np.sqrt(square) + self.eps)
            return self._take_step(p, step, self._rate(count, p)), m, v

        context = f"{type(self).__name__}.update"
        trees = map_trees_to_many(
            3, update_parameter, params, grads, state["m"], state["v"], context=context
        )
        return trees[0], {"count": count, "m": trees[1], "v": trees[2]}

    def _take_step(self, p: Any, step: Any, rate: Any) -> Any:
        return p - rate * step


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    p ← p - rate · (m̂ / (sqrt(v̂) + eps) + decay · p)
    """

    decay: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("decay", self.decay, 0.0, np.inf)

    def _take_step(self, p: Any, step: Any, rate: Any) -> Any:
        return p - rate * (step + self.decay * p)


def _check_rate(optimizer: Optimizer) -> None:
    if callable(optimizer.rate):
        return
    if not isinstance(optimizer.rate, int | float) or not 0.0 < optimizer.rate < np.inf:
        raise UsageError(
            type(optimizer).__name__,
            f"rate is {shown(optimizer.rate)}",
            "rate must be a finite number above 0, or a function of the step number",
        )


def _cast_like(value: Any, like: Any) -> Any:
    """Cast a number to the dtype of an array; Python numbers pass unchanged."""
    if isinstance(value, int | float):
        return value
    return value if value.dtype == like.dtype else value.astype(like.dtype)


def _zeros_like_params(params: Any) -> Any:
    def zeros_like_array(p: Any) -> Any:
        return np.zeros(tuple(p.shape), p.dtype)

    return map_trees(
        zeros_like_array, params, context="create the state of an optimiser"
    )
