"""Minimization of a function by SciPy's L-BFGS-B, with traced gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.argument_validation import coerce_integer
from rlxweb.core.array_coercion import describe_type
from rlxweb.core.device import DeviceLike
from rlxweb.core.errors import NotFinite, Unsupported, UsageError
from rlxweb.trace.derivatives import value_and_grad
from rlxweb.trace.function import function
from rlxweb.trace.training.nonfinite_search import describe_first_nonfinite
from rlxweb.trace.training.progress_bar import progress_bar
from rlxweb.trace.training.tree_map import flatten_arrays

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Minimum:
    """Result of a minimization.

    params   built as they were given, as NumPy arrays of their dtypes
    loss     there
    losses   [steps] float64, after each step
    steps    of the algorithm; each takes one or more evaluations
    why      SciPy's word for why it ended
    device   where the function was evaluated
    """

    params: Any
    loss: float
    losses: Vector
    steps: int
    why: str
    device: str

    def __repr__(self) -> str:
        return f"Minimum(loss {self.loss:.6g} after {self.steps} steps: {self.why})"


def lbfgs(
    loss: Callable[..., Any],
    params: Any,
    *args: Any,
    steps: int = 100,
    tolerance: float = 1e-6,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: str | None = None,
    progress: bool | None = None,
) -> Minimum:
    """Minimize a function of parameters by L-BFGS (Liu and Nocedal 1989).

    loss       (params, *args) → one float, as `rlxweb.grad` takes it: of all data, as
               no batches are drawn
    params     where to begin: arrays, in tuples, lists, dicts, dataclasses
    args       what else the function takes, arrays too; kept as they are
    steps      at most
    tolerance  of the largest element of the gradient, at which it ends
    device, adapter, precision   as of `rlxweb.function`: there the function is
               evaluated, with its gradient; SciPy decides on the host
    progress   a bar on standard error; None: where that is a terminal

    Errors     Unsupported without SciPy (extra `filter`); NotFinite where the function
               is no number at the beginning; those of `rlxweb.grad`.
    """
    minimize = _import_minimize()
    max_steps = coerce_integer("steps", steps, "lbfgs")
    if max_steps < 1:
        raise UsageError("lbfgs", f"steps is {steps}", "steps must be at least 1")
    loss_and_gradients = function(
        value_and_grad(loss), device=device, adapter=adapter, precision=precision
    )
    flat_parameters = _FlatParameters(params)
    bound_call = loss_and_gradients.held(params, *args)
    losses: list[float] = []
    losses_by_vector: dict[bytes, float] = {}

    def evaluate(x: Vector) -> tuple[float, Vector]:
        value, grads = bound_call(flat_parameters.unflatten(x), *args)
        losses_by_vector[x.tobytes()] = float(value)
        return float(value), flat_parameters.flatten(grads)

    initial_vector = flat_parameters.flatten(params)
    value, _ = evaluate(initial_vector)
    if not math.isfinite(value):
        feeds = {**bound_call.params, **bound_call.feeds(params, *args)}
        nonfinite_op = describe_first_nonfinite(bound_call.graph, feeds)
        raise NotFinite(
            "lbfgs at the initial parameters", f"the loss is {value}", nonfinite_op
        )
    with progress_bar(progress, 0, max_steps) as report_progress:

        def record_step(x: Vector) -> None:
            losses.append(losses_by_vector[x.tobytes()])
            losses_by_vector.clear()
            report_progress(len(losses), losses[-1])

        options = {
            "maxiter": max_steps,
            "maxfun": 20 * max_steps,
            "gtol": tolerance,
            "ftol": 0.0,
        }
        scipy_result = minimize(
            evaluate,
            initial_vector,
            jac=True,
            method="L-BFGS-B",
            callback=record_step,
            options=options,
        )
    best_params = flat_parameters.unflatten(scipy_result.x)
    why = str(scipy_result.message)
    name = bound_call.device.label
    return Minimum(
        best_params, float(scipy_result.fun), np.array(losses), len(losses), why, name
    )


class _FlatParameters:
    """Conversion of parameters to one vector, and back."""

    def __init__(self, params: Any) -> None:
        self._tree, leaves = flatten_arrays(params, "params")
        self._shapes_and_dtypes = [
            (tuple(x.shape), np.dtype(x.dtype)) for _, x in leaves
        ]
        if not leaves:
            problem = f"params is {describe_type(params)}"
            raise UsageError("lbfgs", problem, "params must contain at least one array")

    def flatten(self, tree: Any) -> Vector:
        _, leaves = flatten_arrays(tree, "params")
        return np.concatenate([np.ravel(np.asarray(x, np.float64)) for _, x in leaves])

    def unflatten(self, vector: Vector) -> Any:
        arrays, offset = [], 0
        for shape, dtype in self._shapes_and_dtypes:
            size = math.prod(shape)
            arrays.append(vector[offset : offset + size].reshape(shape).astype(dtype))
            offset += size
        return self._tree.unflatten(iter(arrays))


def _import_minimize() -> Any:
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise Unsupported(
            "lbfgs",
            f"SciPy is not installed ({error})",
            hint="pip install 'rlxweb[filter]', or train with rlxweb.Adam",
        ) from None
    return minimize
