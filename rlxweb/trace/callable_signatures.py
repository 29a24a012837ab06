"""Names and signatures of traced callables: methods, partial functions, callable
objects, and functions written in C that have none.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from inspect import BoundArguments, Parameter, Signature, signature
from types import MethodDescriptorType
from typing import Any

import numpy as np

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.errors import UsageError

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def callable_name(function: Any) -> str:
    """Return a callable's name for messages; a partial is named after its function."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def callable_signature(function: Any, context: str) -> Signature:
    """Return a callable's signature; if it has none, a signature that takes any
    arguments.

    Raises UsageError for an object that cannot be called, and for a method of `ndarray`
    itself, which takes NumPy's arrays only.
    """
    if not callable(function):
        received = f"got {describe_type(function)}"
        raise UsageError(context, received, "expected a function that accepts arrays")
    if isinstance(function, MethodDescriptorType):
        owner_class, name = function.__objclass__, function.__name__
        if issubclass(np.ndarray, owner_class):
            problem = f"{owner_class.__name__}.{name} accepts only NumPy arrays"
            rule = "rlxweb calls the function with traced arrays"
            raise UsageError(context, problem, rule, f"pass lambda x: x.{name}()")
    try:
        return signature(function)
    except ValueError:
        return signature(lambda *args, **kwargs: None)


def call_without_defaults(
    function: Any, signature: Signature, arguments: dict[str, Any]
) -> Any:
    """Call a function with its arguments by name, without those that are defaults.

    Some of NumPy's functions refuse their own defaults when they are passed.
    """
    passed_arguments: dict[str, Any] = {}
    needs_position = False  # an argument that comes later cannot be passed by name
    for name, parameter in reversed(list(signature.parameters.items())):
        value, kind = arguments[name], parameter.kind
        is_default = _is_default(value, parameter.default)
        if kind is Parameter.VAR_POSITIONAL:
            is_default = not value
        if is_default and not (needs_position and kind in _POSITIONAL):
            continue
        passed_arguments[name] = value
        needs_position |= kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)
    bound = BoundArguments(signature, OrderedDict(passed_arguments))
    return function(*bound.args, **bound.kwargs)


def _is_default(value: Any, default: Any) -> bool:
    """Return whether a value is the default, or a tuple of its parts.

    NumPy's `out=(None, None)` is equal to its default, but not the same object.
    """
    if type(value) is tuple and type(default) is tuple:
        pairs = zip(value, default, strict=False)
        return len(value) == len(default) and all(_is_default(*pair) for pair in pairs)
    return value is default
