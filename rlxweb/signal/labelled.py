"""Functions of samples that take other libraries' objects as well as arrays.

What an object says of itself (its rate, the names of its channels, its unit) need not
be said again, and comes out with the result. An array goes by at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, Final, TypeVar, cast

import numpy as np

from rlxweb.arguments import check_options, number
from rlxweb.callers import outside
from rlxweb.errors import RecordingWarning, UsageError
from rlxweb.results.labels import Labels
from rlxweb.signal.objects import Given, object_given

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN: Final = frozenset({np.ndarray, list, tuple})
_CLOSE: Final = 1e-3
"""By which a rate that is given may differ from that of stamps; it goes before."""


def takes_objects(
    *names: str, like: Callable[..., Any] | None = None
) -> Callable[[F], F]:
    """Of a function: these parameters may be objects. Its results know `named`.

    names   the first of its parameters
    like    the function whose arguments it takes, where it is that with another door
    """

    def made(function: F) -> F:
        door = _Door(function, names, like or function)
        made_of = _awaited if iscoroutinefunction(function) else _called
        return cast(F, wraps(function)(made_of(function, door)))

    return made


def _called(function: Callable[..., Any], door: _Door) -> Callable[..., Any]:
    is_alone = len(door.names) == 1

    def call(*args: Any, **options: Any) -> Any:
        try:
            # Short rows are computed in less time than it takes to look around.
            if is_alone and args and type(args[0]) is np.ndarray:
                return function(*args, **options)
            if door.is_plain(args, options):
                return function(*args, **options)
            given, labels = door.settled(args, options)
            return function(**given).named(labels)
        except TypeError:
            door.check(options)
            raise

    return call


def _awaited(function: Callable[..., Any], door: _Door) -> Callable[..., Any]:
    async def call(*args: Any, **options: Any) -> Any:
        if door.is_plain(args, options):
            return await function(*args, **options)
        given, labels = door.settled(args, options)
        return (await function(**given)).named(labels)

    return call


class _Door:
    """What comes in to a function."""

    __slots__ = ("doing", "name", "names", "rules")

    def __init__(
        self, function: Callable[..., Any], names: tuple[str, ...], like: Any
    ) -> None:
        self.name, self.doing = function.__name__, like.__name__
        self.names, self.rules = names, signature(like)

    def is_plain(self, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """No object is among the samples."""
        for at, name in enumerate(self.names):
            one = args[at] if at < len(args) else options.get(name)
            if type(one) not in _PLAIN and object_given(one, "") is not None:
                return False
        return True

    def check(self, options: Iterable[str]) -> None:
        """Raise TypeError for an option that the function does not take."""
        known = self.rules.parameters
        if not any(one.kind is Parameter.VAR_KEYWORD for one in known.values()):
            check_options(self.name, options, known)

    def settled(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[dict[str, Any], Labels]:
        """The arguments with arrays in place of objects, and what the objects said."""
        try:
            given = self.rules.bind(*args, **options).arguments
        except TypeError as error:
            self.check(options)
            raise TypeError(f"{self.name}() {error}") from None
        extra = given.pop("options", {})
        return _settled(self.doing, self.names, {**given, **extra})


def _settled(
    doing: str, names: tuple[str, ...], given: dict[str, Any]
) -> tuple[dict[str, Any], Labels]:
    """The arguments with arrays in place of objects, and what the objects said.

    Errors   UsageError for a rate or an axis that contradicts an object.
    """
    found: list[Given] = []
    for name in names:
        own = object_given(given.get(name), f"{doing}, {name}")
        if own is None:
            continue
        found.append(own)
        given[name] = own.samples()
    if given.get("axis", -1) != -1:
        raise UsageError(
            doing,
            f"axis is {given['axis']}",
            "the object says itself where time is",
            "leave axis out",
        )
    asked = None if given.get("fs") is None else number("fs", given["fs"], doing)
    rates = [_rate_of(own, asked) for own in found if own.fs is not None]
    if asked is not None:
        rates.insert(0, asked)
    if not rates:
        raise UsageError(
            doing, f"{found[0].what} tells no rate", "fs is wanted", "give fs=HZ"
        )
    for other in rates[1:]:
        if not abs(other - rates[0]) <= _CLOSE * abs(rates[0]):
            raise UsageError(
                doing,
                f"{found[0].what} has {other:g} Hz",
                f"{rates[0]:g} Hz was given",
                "leave fs out, or resample the samples first",
            )
    given["fs"] = rates[0]
    return given, _labels([own.labels for own in found])


def _rate_of(own: Given, asked: float | None) -> float:
    """Return the rate of an object; the caller's tells which of several units it is."""
    fs = 0.0 if own.fs is None else own.fs
    if not own.doubt:
        return fs
    if asked is not None:
        near = (one for one in own.others if abs(one - asked) <= _CLOSE * asked)
        return next(near, fs)
    text = f"{own.doubt}; {fs:.6g} Hz is taken: name the unit in the name of the clock"
    warnings.warn(RecordingWarning(own.what, text), stacklevel=outside())
    return fs


def _labels(found: list[Labels]) -> Labels:
    """Of one object, or of the pairs that two of a kind make."""
    first, *others = found
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
