"""Dispatch tables: the implementation of each NumPy function and ufunc for traced
arrays.

Three tables: NumPy's ufuncs over real tensors, over complex ones, and its other
functions. The files of each family fill them; `call_numpy_function` looks a function
up, binds its arguments and words what is refused: a function that has no graph form, an
argument that has none (out=, where=). No function is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np

from rlxweb.core.errors import RlxError, TraceError, did_you_mean
from rlxweb.trace.trace_errors import add_user_location, trace_error

Implementation = Callable[..., Any]

REAL_UFUNCS: dict[np.ufunc, Implementation] = {}
"""Implementations of ufuncs on real arrays: (graph, tensors in the dtypes of NumPy's
loop) → result tensors.
"""
COMPLEX_UFUNCS: dict[np.ufunc, Implementation] = {}
"""Implementations of ufuncs on complex arrays: (trace, traced arrays) → traced result.
"""

# Arguments of NumPy's that say where or how to store a result, or leave elements out.
_UNSUPPORTED_ARGUMENTS = {
    "out": "use the returned result",
    "where": "apply np.where to the input first, with a neutral value such as 0 "
    "for a sum",
    "initial": "combine initial with the result, as in np.maximum(x.max(), initial)",
    "order": "pass order='C', the only supported order",
    "casting": "cast the operands first: x.astype(dtype)",
    "weights": "use np.sum(x * weights) / np.sum(weights)",
    "overwrite_input": "omit this argument",
    "mode": "omit this argument: out-of-range indices raise an error",
    "kind": "omit this argument: equal values keep their order",
    "subok": "omit this argument",
    "copy": "omit this argument",
    "like": "omit this argument",
}
_NEUTRAL_VALUES = (None, np._NoValue, "C", "K", "A", "raise", "same_kind", "unsafe")


@dataclass(frozen=True, slots=True)
class NumpyImplementation:
    """Implementation of a NumPy function, called with the trace and NumPy's arguments.

    Parameters named as in NumPy; those that end the signature of `function` with a name
    of `_UNSUPPORTED_ARGUMENTS` are there to be refused.
    """

    function: Implementation
    signature: Signature

    def bind_arguments(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        remaining = dict(kwargs)
        takes_any_keyword = any(
            p.kind is Parameter.VAR_KEYWORD for p in self.signature.parameters.values()
        )
        for key in (
            () if takes_any_keyword else set(remaining) - set(self.signature.parameters)
        ):
            # What NumPy has and we have not is refused where it says something.
            value = remaining.pop(key)
            if not _is_neutral(key, value):
                raise _argument_error(name, key, value)
        bound = self.signature.bind(None, *args, **remaining)
        for key, value in bound.arguments.items():
            if key in _UNSUPPORTED_ARGUMENTS and key not in self.accepted_names:
                if not _is_neutral(key, value):
                    raise _argument_error(name, key, value)
        return bound

    @property
    def accepted_names(self) -> frozenset[str]:
        """Names of `_UNSUPPORTED_ARGUMENTS` that this implementation accepts."""
        return getattr(self.function, "means", frozenset())


def _is_neutral(key: str, value: Any) -> bool:
    if key == "casting":
        return value in ("same_kind", "unsafe")
    if key in ("kind", "mode"):
        return value in (None, "raise", "stable", "quicksort", "mergesort", "heapsort")
    return (
        value is None
        or any(
            value is neutral
            or (
                isinstance(neutral, str) and isinstance(value, str) and neutral == value
            )
            for neutral in _NEUTRAL_VALUES
        )
        or (key in ("copy", "subok", "where") and value is True)
        or (key in ("copy", "subok", "overwrite_input", "returned") and value is False)
    )


def _argument_error(name: str, key: str, value: Any) -> TraceError:
    problem = f"{key}= is not supported in a traced function"
    if key not in _UNSUPPORTED_ARGUMENTS:
        hint = "omit this argument, or compute its effect with separate operations"
        return trace_error(name, problem, hint=hint)
    return trace_error(name, problem, hint=_UNSUPPORTED_ARGUMENTS[key])


NUMPY_FUNCTIONS: dict[Callable[..., Any], NumpyImplementation] = {}


def implements(
    *functions: Callable[..., Any], accepted: str = ""
) -> Callable[[Implementation], Implementation]:
    """Register the decorated function as the implementation of these NumPy functions,
    with NumPy's parameters.

    accepted  parameters that are taken although others of their name are refused
    """

    def register(implementation: Implementation) -> Implementation:
        implementation.__dict__["means"] = frozenset(accepted.split())
        for function in functions:
            NUMPY_FUNCTIONS[function] = NumpyImplementation(
                implementation, signature(implementation)
            )
        return implementation

    return register


def existing_functions(*names: str) -> list[Callable[..., Any]]:
    """Return the NumPy functions of these names that the installed NumPy has."""
    return [getattr(np, name) for name in names if hasattr(np, name)]


def numpy_name(function: Any) -> str:
    """Return a NumPy function's usual name, such as `np.linalg.norm`."""
    module_name = getattr(function, "__module__", "numpy") or "numpy"
    submodules = [
        p for p in module_name.split(".")[1:] if not p.startswith("_") and p != "core"
    ]
    name = getattr(function, "__qualname__", None) or function.__name__
    return ".".join(["np", *submodules, name])


def call_numpy_function(trace: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """Apply the graph form of a NumPy function. Errors  TraceError and those of the
    graph's shapes and dtypes, with the line of the call.
    """
    name = numpy_name(function)
    entry = NUMPY_FUNCTIONS.get(function)
    if entry is None:
        raise no_graph_form_error(name)
    try:
        bound = entry.bind_arguments(name, args, kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None
    try:
        _, *positional = bound.args
        return entry.function(trace, *positional, **bound.kwargs)
    except RlxError as error:
        raise add_user_location(error, name) from error.__cause__


def no_graph_form_error(name: str) -> TraceError:
    """Return the error for a function that is in no table, with the nearest
    alternative.
    """
    known_names = sorted(
        {numpy_name(f) for f in NUMPY_FUNCTIONS}
        | {f"np.{u.__name__}" for u in REAL_UFUNCS}
    )
    hint = _ALTERNATIVES.get(name) or did_you_mean(name, known_names)
    return trace_error(
        name,
        "this operation is not supported in a traced function",
        "a traced function can call only NumPy functions that a graph can express",
        hint or "use other functions, or call this one outside the traced function",
    )


_VALUE_DEPENDENT_HINT = (
    "the result size depends on the values; keep the shape with "
    "np.where(condition, x, 0)"
)
_ALTERNATIVES = {
    "np.nonzero": _VALUE_DEPENDENT_HINT,
    "np.argwhere": _VALUE_DEPENDENT_HINT,
    "np.flatnonzero": _VALUE_DEPENDENT_HINT,
    "np.unique": _VALUE_DEPENDENT_HINT,
    "np.extract": _VALUE_DEPENDENT_HINT,
    "np.compress": _VALUE_DEPENDENT_HINT,
    "np.put": "use np.where(condition, value, x)",
    "np.place": "use np.where(condition, value, x)",
    "np.copyto": "use np.where(condition, value, x)",
    "np.put_along_axis": "use np.where(condition, value, x)",
    "np.array_equal": "use (a == b).all(), and read the result outside the traced "
    "function",
    "np.allclose": "use np.isclose(a, b).all(), and read the result outside the traced "
    "function",
}
