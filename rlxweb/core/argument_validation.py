"""Validation of arguments: integers, real numbers, booleans, one of a few names.

One rule for every function and every argument: True is no number, text is no number,
and nothing is rounded. Owns the words of the refusals.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from inspect import BoundArguments, Parameter, Signature, signature
from numbers import Real
from typing import Any, Final, TypeVar, cast

import numpy as np

from rlxweb.core.errors import UsageError, did_you_mean, shown

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

NAMES_ELSEWHERE: Final = {
    "band": "bands",
    "channel": "channels",
    "freq_max": "fmax",
    "freq_min": "fmin",
    "highest": "fmax",
    "length": "nperseg",
    "lowest": "fmin",
    "max_freq": "fmax",
    "min_freq": "fmin",
    "n_fft": "nperseg",
    "n_overlap": "noverlap",
    "n_peaks": "k",
    "n_per_seg": "nperseg",
    "number": "k",
    "overlap": "noverlap",
    "peaks": "k",
    "picks": "channels",
    "rate": "fs",
    "sample_rate": "fs",
    "sampling_rate": "fs",
    "sfreq": "fs",
    "sr": "fs",
    "top": "k",
}
"""Names of parameters in MNE, librosa, PyTorch and others, and the names here."""

_FAST_PATH_BOUND = 1e300
_INT64_BOUND = 1 << 63


def coerce_integer(
    name: str, value: object, context: str, *, accept_float: bool = False
) -> int:
    """Return an integer, NumPy's included. Raise UsageError for anything else.

    accept_float  256.0 is taken as well, as SciPy takes it
    """
    if type(value) is int and -_INT64_BOUND <= value < _INT64_BOUND:
        return value
    integer, scalar = None, _scalar_value(value)
    if accept_float and isinstance(scalar, float) and scalar.is_integer():
        integer = int(scalar)
    elif not isinstance(scalar, bool | np.bool_):
        with suppress(TypeError):
            integer = operator.index(scalar)  # type: ignore[arg-type]
    if integer is None:
        raise UsageError(
            context, f"{name} is {shown(value)}", "it must be a whole number"
        )
    if not -_INT64_BOUND <= integer < _INT64_BOUND:
        raise UsageError(
            context, f"{name} is {shown(value)}", "it must fit in a 64-bit integer"
        )
    return integer


def coerce_integer_from(minimum: int, name: str, value: object, context: str) -> int:
    """Return an integer of at least `minimum`. Raise UsageError otherwise."""
    integer = coerce_integer(name, value, context)
    if integer < minimum:
        raise UsageError(
            context, f"{name} is {integer}", f"it must be at least {minimum}"
        )
    return integer


def coerce_float(name: str, value: object, context: str) -> float:
    """Return a finite real number. Raise UsageError for anything else."""
    if (
        type(value) is float or type(value) is int
    ) and -_FAST_PATH_BOUND < value < _FAST_PATH_BOUND:
        return float(value)
    scalar = _scalar_value(value)
    is_real = isinstance(scalar, Real) or (
        hasattr(scalar, "__float__")
        and not isinstance(scalar, complex | np.complexfloating)
    )
    if isinstance(scalar, bool | np.bool_) or not is_real:
        raise UsageError(context, f"{name} is {shown(value)}", "it must be a number")
    try:
        result = float(scalar)  # type: ignore[arg-type]
    except OverflowError:
        result = np.inf
    except (TypeError, ValueError):
        result = np.nan
    if not np.isfinite(result):
        raise UsageError(context, f"{name} is {shown(value)}", "it must be finite")
    return result


def _scalar_value(value: object) -> object:
    """Return the number in a zero-dimensional array; None for other arrays or a masked
    value.
    """
    if not isinstance(value, np.ndarray):
        return value
    is_number = not value.ndim and value.dtype.kind in "iuf"
    masked = getattr(value, "mask", False)
    return value.item() if is_number and not masked else None


def coerce_bool(name: str, value: object, context: str) -> bool:
    """Return a boolean; NumPy booleans, 1 and 0 are accepted. Raise UsageError for
    anything else.
    """
    if isinstance(value, bool | np.bool_) or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise UsageError(context, f"{name} is {shown(value)}", "it must be True or False")


def check_instance(name: str, value: object, expected_type: type[T], context: str) -> T:
    """Return the value if it is of the expected type. Raise UsageError otherwise."""
    if isinstance(value, expected_type):
        return value
    rule = f"expected a {expected_type.__name__}"
    raise UsageError(context, f"{name} is {shown(value)}", rule)


def check_optional_instance(
    name: str, value: object, expected_type: type[T], context: str
) -> T | None:
    """Return None or a value of the expected type. Raise UsageError otherwise."""
    return (
        None if value is None else check_instance(name, value, expected_type, context)
    )


def check_choice(name: str, value: Any, choices: Iterable[str], context: str) -> str:
    """Return one of a few names. Raise UsageError that lists them for anything else."""
    names = tuple(choices)
    if isinstance(value, str) and value in names:
        return value
    rule = f"it must be {' or '.join(map(repr, names))}"
    suggestion = did_you_mean(value, names) if isinstance(value, str) else ""
    raise UsageError(context, f"{name} is {shown(value)}", rule, suggestion)


def bind_arguments(
    function: Callable[..., Any], name: str, /, *args: Any, **kwargs: Any
) -> Any:
    """Return the arguments of a call of `function` by name, with defaults filled in.

    name     the function that was called, which takes the same
    Errors   TypeError as Python's own, with that name
    """
    bound_arguments = bind_call(signature(function), name, args, kwargs)
    bound_arguments.apply_defaults()
    return bound_arguments.arguments


def bind_call(
    called: Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> BoundArguments:
    """Return the arguments of a call by name.

    Errors   TypeError as Python's own, with the name of the function that was called,
             and the argument that is meant by a misspelled one
    """
    try:
        return called.bind(*args, **kwargs)
    except TypeError as error:
        check_call_options(called, name, kwargs)
        raise TypeError(f"{name}() {error}") from None


def check_call_options(called: Signature, name: str, options: Iterable[str]) -> None:
    """Raise the TypeError of `check_option_names`, unless any option is accepted."""
    parameters = called.parameters
    if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values()):
        check_option_names(name, options, parameters)


def check_option_names(
    name: str, given_options: Iterable[str], known: Iterable[str]
) -> None:
    """Raise TypeError for an option that a function does not accept.

    name     the function that the caller called
    Errors   TypeError in Python's words, with that name and the option that is meant
    """
    known_options = list(known)
    for option in given_options:
        if option not in known_options:
            meant = NAMES_ELSEWHERE.get(option.lower())
            suggestion = (
                f"did you mean {meant!r}?"
                if meant in known_options
                else did_you_mean(option, known_options)
            )
            message = f"{name}() got an unexpected keyword argument {option!r}"
            raise TypeError(f"{message}; {suggestion}" if suggestion else message)


def suggest_misspelled_options(function: F, name: str = "") -> F:
    """Decorate a function so that its TypeError for an unknown option suggests the
    right one.

    name     a second name of the function, by which it is called; "" for its own
    """
    name = name or function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_call_options(signature(function), name, kwargs)
            raise

    return cast(F, wrapper)
