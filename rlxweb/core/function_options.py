"""Options of public functions: what a user must know of a parameter besides its
signature.

The typed `def` of a function declares name, type and default of each parameter; an
`Option` beside it adds what the signature cannot say. Command-line options, the
settings of a batch run and its record are derived from the two, so that an option is
written down once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

FROM_SIGNATURE: Final = object()
"""Default of an option that has the default of its parameter."""

_ATTRIBUTE: Final = "rlxweb_options"


@dataclass(frozen=True, slots=True)
class Option:
    """Description of a parameter for users who do not write Python.

    Attributes
    ----------
    help : str
        One or two sentences.
    choices : tuple of str
        All values, if they are a few words.
    default : object
        Value where the user gives none. None leaves the parameter out of the call,
        FROM_SIGNATURE is the default of the parameter.
    is_positive : bool
        True for a number that must be above 0.
    below : float, optional
        Exclusive upper bound of a number; its lower bound is 0.
    is_list : bool
        True for an option that may be repeated; without any it is ().
    flags : tuple of str
        Further spellings on the command line, such as "-c".
    metavar : str
        Placeholder of the value in the help; "" for that of its type.
    name, kind : str, type
        Name of the parameter and type of one value; `declare_options` sets them.
    """

    help: str
    choices: tuple[str, ...] = ()
    default: Any = None
    is_positive: bool = False
    below: float | None = None
    is_list: bool = False
    flags: tuple[str, ...] = ()
    metavar: str = ""
    name: str = ""
    kind: type = str

    @property
    def initial_value(self) -> Any:
        """Value of the option where the user gives none."""
        return () if self.is_list else self.default


def declare_options(**options: Option) -> Callable[[F], F]:
    """Decorate a function or class with the options among its parameters.

    Raises
    ------
    TypeError
        For an option that is no parameter.
    """

    def decorate(function: F) -> F:
        parameters = signature(function).parameters
        declared = {}
        for name, option in options.items():
            if name not in parameters:
                raise TypeError(f"{function.__name__}() has no parameter {name!r}")
            parameter = parameters[name]
            is_inherited = option.default is FROM_SIGNATURE
            declared[name] = replace(
                option,
                name=name,
                kind=_value_type(parameter.annotation),
                default=parameter.default if is_inherited else option.default,
            )
        setattr(function, _ATTRIBUTE, declared)
        return function

    return decorate


def _value_type(annotation: object) -> type:
    """Return the type of one value of a parameter with this annotation, a string."""
    if not isinstance(annotation, str):
        raise TypeError(f"the annotation {annotation!r} must be a string")
    alternatives = {part.strip() for part in annotation.split("|")}
    if "float" in alternatives:
        return float
    if "int" in alternatives:
        return int
    return bool if alternatives == {"bool"} else str


def options_of(function: Callable[..., Any]) -> Mapping[str, Option]:
    """Return the declared options of a function by name, in their order."""
    declared: Mapping[str, Option] = getattr(function, _ATTRIBUTE)
    return declared


def call_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call from the values of options; None and () leave an
    argument out.
    """
    return {
        name: value
        for name, value in values.items()
        if value is not None and not (isinstance(value, tuple) and not value)
    }
