"""Names and signatures of the callables that people trace: functions, methods, partial
functions, callable objects, and functions written in C that have no signature.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from inspect import BoundArguments, Parameter, Signature, signature
from types import MethodDescriptorType
from typing import Any

import numpy as np

from rlxweb.errors import UsageError
from rlxweb.given import named

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def name_of_callable(function: Any) -> str:
    """Return a callable's name for messages; a partial has that of its function."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def signature_of(function: Any, doing: str) -> Signature:
    """Return the signature of a callable; without one, that of any arguments.

    Raises UsageError for an object that cannot be called, and for a method of `ndarray`
    itself, which takes NumPy's arrays only.
    """
    if not callable(function):
        given = f"{named(function)} was given"
        raise UsageError(doing, given, "a function on arrays is wanted")
    if isinstance(function, MethodDescriptorType):
        home, name = function.__objclass__, function.__name__
        if issubclass(np.ndarray, home):
            problem = f"{home.__name__}.{name} takes NumPy's own arrays only"
            rule = "traced arrays take their place"
            raise UsageError(doing, problem, rule, f"pass lambda x: x.{name}()")
    try:
        return signature(function)
    except ValueError:
        return signature(lambda *args, **kwargs: None)


def call_without_defaults(
    function: Any, shape: Signature, arguments: dict[str, Any]
) -> Any:
    """Call a function with its arguments by name, without those that are defaults.

    Some of NumPy's functions refuse their own defaults when they are passed.
    """
    passed: dict[str, Any] = {}
    by_position = False  # an argument that comes later cannot be passed by name
    for name, parameter in reversed(list(shape.parameters.items())):
        value, kind = arguments[name], parameter.kind
        is_default = _is_same(value, parameter.default)
        if kind is Parameter.VAR_POSITIONAL:
            is_default = not value
        if is_default and not (by_position and kind in _POSITIONAL):
            continue
        passed[name] = value
        by_position |= kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)
    bound = BoundArguments(shape, OrderedDict(passed))
    return function(*bound.args, **bound.kwargs)


def _is_same(value: Any, default: Any) -> bool:
    """Return whether a value is the default, or a tuple of its parts.

    NumPy's `out=(None, None)` is equal to its default, but not the same object.
    """
    if type(value) is tuple and type(default) is tuple:
        parts = zip(value, default, strict=False)
        return len(value) == len(default) and all(_is_same(*both) for both in parts)
    return value is default
