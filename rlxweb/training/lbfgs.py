"""lbfgs: parameters where a function is least, by SciPy's L-BFGS-B and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import whole
from rlxweb.device import DeviceLike
from rlxweb.errors import NotFinite, Unsupported, UsageError
from rlxweb.given import named
from rlxweb.tracing.derivatives import value_and_grad
from rlxweb.tracing.function import function
from rlxweb.training.first_bad import first_bad
from rlxweb.training.meter import meter
from rlxweb.training.trees import taken_apart

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Minimum:
    """What a minimisation found.

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
    """Parameters at which a function is least, by L-BFGS (Liu and Nocedal 1989).

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
    minimize = _scipy()
    most = whole("steps", steps, "lbfgs")
    if most < 1:
        raise UsageError("lbfgs", f"steps is {steps}", "at least 1")
    both = function(
        value_and_grad(loss), device=device, adapter=adapter, precision=precision
    )
    flat = _Flat(params)
    call = both.held(params, *args)
    losses: list[float] = []
    known: dict[bytes, float] = {}

    def evaluated(x: Vector) -> tuple[float, Vector]:
        value, grads = call(flat.built(x), *args)
        known[x.tobytes()] = float(value)
        return float(value), flat.of(grads)

    first = flat.of(params)
    value, _ = evaluated(first)
    if not math.isfinite(value):
        feeds = {**call.params, **call.feeds(params, *args)}
        where = first_bad(call.graph, feeds)
        raise NotFinite("lbfgs, at the beginning", f"the loss is {value}", where)
    with meter(progress, 0, most) as shown_on:

        def stepped(x: Vector) -> None:
            losses.append(known[x.tobytes()])
            known.clear()
            shown_on(len(losses), losses[-1])

        options = {"maxiter": most, "maxfun": 20 * most, "gtol": tolerance, "ftol": 0.0}
        done = minimize(
            evaluated,
            first,
            jac=True,
            method="L-BFGS-B",
            callback=stepped,
            options=options,
        )
    found, why = flat.built(done.x), str(done.message)
    name = call.device.label
    return Minimum(found, float(done.fun), np.array(losses), len(losses), why, name)


class _Flat:
    """Parameters as one vector, and back."""

    def __init__(self, params: Any) -> None:
        self._tree, leaves = taken_apart(params, "params")
        self._kinds = [(tuple(x.shape), np.dtype(x.dtype)) for _, x in leaves]
        if not leaves:
            given = f"{named(params)} was given"
            raise UsageError("lbfgs", given, "parameters are arrays")

    def of(self, tree: Any) -> Vector:
        _, leaves = taken_apart(tree, "params")
        return np.concatenate([np.ravel(np.asarray(x, np.float64)) for _, x in leaves])

    def built(self, vector: Vector) -> Any:
        made, at = [], 0
        for shape, dtype in self._kinds:
            size = math.prod(shape)
            made.append(vector[at : at + size].reshape(shape).astype(dtype))
            at += size
        return self._tree.built(iter(made))


def _scipy() -> Any:
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise Unsupported(
            "lbfgs",
            f"SciPy is not there ({error})",
            hint="pip install 'rlxweb[filter]', or train with rlxweb.Adam",
        ) from None
    return minimize
