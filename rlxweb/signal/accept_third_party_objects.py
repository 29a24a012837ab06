"""Decorator for functions of samples that accept other libraries' objects as well as
arrays.

What an object says of itself (its rate, the names of its channels, its unit) need not
be said again, and comes out with the result. An array goes by at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any, Final, TypeVar, cast

import numpy as np

from rlxweb.core.argument_validation import bind_call, check_call_options, coerce_float
from rlxweb.core.errors import RecordingWarning, UsageError
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.results.labels import Labels
from rlxweb.signal.third_party_sample_objects import ObjectSamples, inspect_object

F = TypeVar("F", bound=Callable[..., Any])

_ARRAY_TYPES: Final = frozenset({np.ndarray, list, tuple})
_RATE_TOLERANCE: Final = 1e-3
"""Relative tolerance between a rate that is given, which takes precedence, and that of
time stamps.
"""


def accept_objects(
    *names: str, like: Callable[..., Any] | None = None
) -> Callable[[F], F]:
    """Decorate a function so that some parameters accept objects; its results must have
    `named`.

    names   the first of its parameters
    like    the function whose arguments it takes, where it is that with another door
    """

    def decorate(function: F) -> F:
        arguments = _ObjectArguments(function, names, like or function)
        wrap = _wrap_coroutine if iscoroutinefunction(function) else _wrap_function
        return cast(F, wraps(function)(wrap(function, arguments)))

    return decorate


def _wrap_function(
    function: Callable[..., Any], arguments: _ObjectArguments
) -> Callable[..., Any]:
    """Wrap a function so that objects among its arguments are resolved."""
    is_alone = len(arguments.names) == 1

    def call(*positional: Any, **options: Any) -> Any:
        try:
            # Short rows are computed in less time than it takes to look around.
            if is_alone and positional and type(positional[0]) is np.ndarray:
                return function(*positional, **options)
            if arguments.is_plain(positional, options):
                return function(*positional, **options)
            resolved, labels = arguments.resolve(positional, options)
            return function(**resolved).named(labels)
        except TypeError:
            arguments.check(options)
            raise

    return call


def _wrap_coroutine(
    function: Callable[..., Any], arguments: _ObjectArguments
) -> Callable[..., Any]:
    """Wrap a coroutine function so that objects among its arguments are resolved."""

    async def call(*positional: Any, **options: Any) -> Any:
        if arguments.is_plain(positional, options):
            return await function(*positional, **options)
        resolved, labels = arguments.resolve(positional, options)
        return (await function(**resolved)).named(labels)

    return call


class _ObjectArguments:
    """Arguments of a decorated function, checked and resolved."""

    __slots__ = ("context", "name", "names", "signature")

    def __init__(
        self, function: Callable[..., Any], names: tuple[str, ...], like: Any
    ) -> None:
        self.name, self.context = function.__name__, like.__name__
        self.names, self.signature = names, signature(like)

    def is_plain(self, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Return whether no object is among the samples."""
        for index, name in enumerate(self.names):
            argument = args[index] if index < len(args) else options.get(name)
            if (
                type(argument) not in _ARRAY_TYPES
                and inspect_object(argument, "") is not None
            ):
                return False
        return True

    def check(self, options: Iterable[str]) -> None:
        """Raise TypeError for an option that the function does not take."""
        check_call_options(self.signature, self.name, options)

    def resolve(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[dict[str, Any], Labels]:
        """Return the arguments with arrays in place of objects, and the labels of the
        objects.
        """
        bound = bind_call(self.signature, self.name, args, options).arguments
        extra = bound.pop("options", {})
        return _resolve_objects(self.context, self.names, {**bound, **extra})


def _resolve_objects(
    context: str, names: tuple[str, ...], arguments: dict[str, Any]
) -> tuple[dict[str, Any], Labels]:
    """Return the arguments with arrays in place of objects, and the labels of the
    objects.

    Errors   UsageError for a rate or an axis that contradicts an object.
    """
    objects: list[ObjectSamples] = []
    for name in names:
        sample_object = inspect_object(arguments.get(name), f"{context}, {name}")
        if sample_object is None:
            continue
        objects.append(sample_object)
        arguments[name] = sample_object.read_samples()
    if arguments.get("axis", -1) != -1:
        raise UsageError(
            context,
            f"axis is {arguments['axis']}",
            f"{objects[0].source} itself defines the time axis",
            "leave axis out",
        )
    given_rate = (
        None
        if arguments.get("fs") is None
        else coerce_float("fs", arguments["fs"], context)
    )
    rates = [
        _object_rate(sample_object, given_rate)
        for sample_object in objects
        if sample_object.fs is not None
    ]
    if given_rate is not None:
        rates.insert(0, given_rate)
    if not rates:
        raise UsageError(
            context,
            f"{objects[0].source} has no sampling rate",
            "fs is required",
            "pass fs=HZ",
        )
    sources = [item.source for item in objects if item.fs is not None]
    first_compared = 1 if given_rate is None else 0
    for source, other in zip(sources[first_compared:], rates[1:], strict=True):
        if not abs(other - rates[0]) <= _RATE_TOLERANCE * abs(rates[0]):
            raise UsageError(
                context,
                f"{source} has a sampling rate of {other:g} Hz",
                f"the other signal has {rates[0]:g} Hz"
                if given_rate is None
                else f"fs is {rates[0]:g} Hz",
                "resample one of the signals first"
                if given_rate is None
                else "leave fs out, or resample the samples first",
            )
    arguments["fs"] = rates[0]
    return arguments, _combine_labels(
        [sample_object.labels for sample_object in objects]
    )


def _object_rate(sample_object: ObjectSamples, given_rate: float | None) -> float:
    """Return the rate of an object; the caller's rate decides which of several units is
    meant.
    """
    fs = 0.0 if sample_object.fs is None else sample_object.fs
    if not sample_object.unit_warning:
        return fs
    if given_rate is not None:
        close_rates = (
            rate
            for rate in sample_object.other_rates
            if abs(rate - given_rate) <= _RATE_TOLERANCE * given_rate
        )
        return next(close_rates, fs)
    text = (
        f"{sample_object.unit_warning}; {fs:.6g} Hz is assumed; put the unit "
        "in the name of the times (time_s, time_ms, time_ns)"
    )
    warnings.warn(
        RecordingWarning(sample_object.source, text), stacklevel=caller_stacklevel()
    )
    return fs


def _combine_labels(labels: list[Labels]) -> Labels:
    """Return the labels of one object, or of the pairs that two of a kind make."""
    first, *others = labels
    for other in others:
        if other.dims != first.dims or len(other.names) != len(first.names):
            return Labels(unit=first.unit if first.unit == other.unit else "")
        if other.names == first.names:
            continue
        names = tuple(
            a
            if a == b or a is None or b is None or len(a) != len(b)
            else tuple(f"{x}–{y}" for x, y in zip(a, b, strict=True))
            for a, b in zip(first.names, other.names, strict=True)
        )
        unit = first.unit if first.unit == other.unit else ""
        first = Labels(first.dims, names, unit)
    return first
