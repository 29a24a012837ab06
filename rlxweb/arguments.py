"""Arguments of a call, checked: whole numbers, numbers, switches, one of a few names.

One rule for every function and every argument: True is no number, text is no number,
and nothing is rounded. Owns the words of the refusals.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from inspect import signature
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np

from rlxweb.errors import UsageError, did_you_mean, shown

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_FAR = 1e300
_COUNTABLE = 1 << 63


def whole(name: str, value: object, doing: str, *, of_float: bool = False) -> int:
    """A whole number, numpy's own too. Errors  UsageError for anything else.

    of_float   256.0 is taken as well, as SciPy takes it
    """
    if type(value) is int and -_COUNTABLE <= value < _COUNTABLE:
        return value
    found, held = None, _held(value)
    if of_float and isinstance(held, float) and held.is_integer():
        found = int(held)
    elif not isinstance(held, bool | np.bool_):
        with suppress(TypeError):
            found = operator.index(held)  # type: ignore[arg-type]
    if found is None:
        raise UsageError(
            doing, f"{name} is {shown(value)}", "it must be a whole number"
        )
    if not -_COUNTABLE <= found < _COUNTABLE:
        raise UsageError(doing, f"{name} is {shown(value)}", "it must fit into 64 bits")
    return found


def whole_from(least: int, name: str, value: object, doing: str) -> int:
    """Return a whole number that is at least `least`. Errors  UsageError otherwise."""
    found = whole(name, value, doing)
    if found < least:
        raise UsageError(doing, f"{name} is {found}", f"at least {least}")
    return found


def number(name: str, value: object, doing: str) -> float:
    """A finite real number. Errors  UsageError for anything else."""
    if (type(value) is float or type(value) is int) and -_FAR < value < _FAR:
        return float(value)
    held = _held(value)
    is_real = isinstance(held, Real) or (
        hasattr(held, "__float__")
        and not isinstance(held, complex | np.complexfloating)
    )
    if isinstance(held, bool | np.bool_) or not is_real:
        raise UsageError(doing, f"{name} is {shown(value)}", "it must be a number")
    try:
        found = float(held)  # type: ignore[arg-type]
    except OverflowError:
        found = np.inf
    except (TypeError, ValueError):
        found = np.nan
    if not np.isfinite(found):
        raise UsageError(doing, f"{name} is {shown(value)}", "it must be finite")
    return found


def _held(value: object) -> object:
    """What an array of one number holds; None where it is none, or a masked one."""
    if not isinstance(value, np.ndarray):
        return value
    is_number = not value.ndim and value.dtype.kind in "iuf"
    masked = getattr(value, "mask", False)
    return value.item() if is_number and not masked else None


def switch(name: str, value: object, doing: str) -> bool:
    """True or False, numpy's own and 1 and 0 too. Errors  UsageError for the rest."""
    if isinstance(value, bool | np.bool_) or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise UsageError(doing, f"{name} is {shown(value)}", "it must be True or False")


def instance(name: str, value: object, kind: type[T], doing: str) -> T:
    """Return a value if it is of the class. Errors  UsageError for anything else."""
    if isinstance(value, kind):
        return value
    rule = f"a {kind.__name__} is wanted"
    raise UsageError(doing, f"{name} is {shown(value)}", rule)


def one_or_none(name: str, value: object, kind: type[T], doing: str) -> T | None:
    """Return None, or a value of the class. Errors  UsageError for anything else."""
    return None if value is None else instance(name, value, kind, doing)


def one_of(name: str, value: Any, known: Iterable[str], doing: str) -> str:
    """One of a few names. Errors  UsageError that lists them."""
    names = tuple(known)
    if isinstance(value, str) and value in names:
        return value
    rule = f"it must be {' or '.join(map(repr, names))}"
    near = did_you_mean(value, names) if isinstance(value, str) else ""
    raise UsageError(doing, f"{name} is {shown(value)}", rule, near)


def bound(of: Callable[..., Any], name: str, /, *args: Any, **named: Any) -> Any:
    """The arguments of a call of `of`, defaults filled in, by name.

    name     the function that was called, which takes the same
    Errors   TypeError as Python's own, with that name
    """
    try:
        given = signature(of).bind(*args, **named)
    except TypeError as error:
        check_options(name, named, signature(of).parameters)
        raise TypeError(f"{name}() {error}") from None
    given.apply_defaults()
    return given.arguments


def check_options(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for an option that a function does not take.

    name     the function that the caller called
    Errors   TypeError in Python's words, with that name and the option that is meant
    """
    options = list(known)
    for one in given:
        if one not in options:
            near = did_you_mean(one, options)
            said = f"{name}() got an unexpected keyword argument {one!r}"
            raise TypeError(f"{said}; {near}" if near else said)


def helpful(function: F, name: str = "") -> F:
    """Let a function suggest the option that is meant for one it does not take.

    name     a second name of the function, by which it is called; "" for its own
    """
    name = name or function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError:
            check_options(name, options, signature(function).parameters)
            raise

    return cast(F, call)
