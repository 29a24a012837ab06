"""Which of NumPy's functions a traced array answers, and with what.

Three tables: NumPy's ufuncs over real tensors, over complex ones, and its other
functions. The files of each family fill them; `call_function` looks a function up,
binds its arguments and words what is refused: a function that has no graph form, an
argument that has none (out=, where=). No function is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np

from rlxweb.errors import RlxError, TraceError, did_you_mean
from rlxweb.tracing.place import placed, refused

How = Callable[..., Any]

REAL: dict[np.ufunc, How] = {}
"""Of a graph and tensors of the dtypes of NumPy's loop, the result's tensors."""
COMPLEX: dict[np.ufunc, How] = {}
"""Of traced arrays of complex and real dtypes, the traced result."""

# Arguments of NumPy's that say where or how to store a result, or leave elements out.
_NOWHERE = {
    "out": "take the result it returns",
    "where": "use np.where before it, with the value that changes nothing",
    "initial": "combine it with the result: np.maximum(x.max(), initial)",
    "order": "rows come one behind the other here: order='C'",
    "casting": "cast the operands first: x.astype(dtype)",
    "weights": "multiply by them and sum",
    "overwrite_input": "leave it out",
    "mode": "leave it out: an index outside is refused",
    "kind": "leave it out: equal values keep their order",
    "subok": "leave it out",
    "copy": "leave it out",
    "like": "leave it out",
}
_NONE = (None, np._NoValue, "C", "K", "A", "raise", "same_kind", "unsafe")


@dataclass(frozen=True, slots=True)
class Entry:
    """What answers a function of NumPy: called with the trace and NumPy's arguments.

    Parameters named as in NumPy; those that end the signature of `how` with a name of
    `_NOWHERE` are there to be refused.
    """

    how: How
    shape: Signature

    def arguments(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        left = dict(kwargs)
        free = any(
            p.kind is Parameter.VAR_KEYWORD for p in self.shape.parameters.values()
        )
        for key in () if free else set(left) - set(self.shape.parameters):
            # What NumPy has and we have not is refused where it says something.
            value = left.pop(key)
            if not _says_nothing(key, value):
                raise _argument(name, key, value)
        given = self.shape.bind(None, *args, **left)
        for key, value in given.arguments.items():
            if key in _NOWHERE and key not in self.used:
                if not _says_nothing(key, value):
                    raise _argument(name, key, value)
        return given

    @property
    def used(self) -> frozenset[str]:
        """Parameters of such a name that mean something here."""
        return getattr(self.how, "means", frozenset())


def _says_nothing(key: str, value: Any) -> bool:
    if key == "casting":
        return value in ("same_kind", "unsafe")
    if key in ("kind", "mode"):
        return value in (None, "raise", "stable", "quicksort", "mergesort", "heapsort")
    return (
        value is None
        or any(
            value is one
            or (isinstance(one, str) and isinstance(value, str) and one == value)
            for one in _NONE
        )
        or (key in ("copy", "subok", "where") and value is True)
        or (key in ("copy", "subok", "overwrite_input", "returned") and value is False)
    )


def _argument(name: str, key: str, value: Any) -> TraceError:
    if key not in _NOWHERE:
        problem = f"its argument {key}= has no graph form"
        return refused(name, problem, hint="leave it out, or do it in steps")
    problem = f"{key}= is not taken in a traced function"
    return refused(name, problem, hint=_NOWHERE[key])


FUNCTIONS: dict[Callable[..., Any], Entry] = {}


def numpys(*functions: Callable[..., Any], means: str = "") -> Callable[[How], How]:
    """What follows answers these functions of NumPy, with NumPy's parameters.

    means   parameters that are taken although others of their name are refused
    """

    def register(how: How) -> How:
        how.__dict__["means"] = frozenset(means.split())
        for function in functions:
            FUNCTIONS[function] = Entry(how, signature(how))
        return how

    return register


def there(*names: str) -> list[Callable[..., Any]]:
    """NumPy's functions of these names, without those that it has not yet."""
    return [getattr(np, name) for name in names if hasattr(np, name)]


def name_of(function: Any) -> str:
    """`np.linalg.norm`, as people write it."""
    home = getattr(function, "__module__", "numpy") or "numpy"
    inner = [p for p in home.split(".")[1:] if not p.startswith("_") and p != "core"]
    name = getattr(function, "__qualname__", None) or function.__name__
    return ".".join(["np", *inner, name])


def call_function(trace: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """The graph form of a function of NumPy, applied. Errors  TraceError and those of
    the graph's shapes and dtypes, with the place of the call.
    """
    name = name_of(function)
    entry = FUNCTIONS.get(function)
    if entry is None:
        raise no_form(name)
    try:
        given = entry.arguments(name, args, kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None
    try:
        _, *positional = given.args
        return entry.how(trace, *positional, **given.kwargs)
    except RlxError as error:
        raise placed(error, name) from error.__cause__


def no_form(name: str) -> TraceError:
    """The refusal of a function that is in no table, with what is near."""
    known = sorted({name_of(f) for f in FUNCTIONS} | {f"np.{u.__name__}" for u in REAL})
    hint = _INSTEAD.get(name) or did_you_mean(name, known)
    return refused(
        name,
        "it has no graph form",
        "a traced function is made of NumPy's functions that a graph can express",
        hint or "write it with others, or call it on arrays outside of the function",
    )


_OF_VALUES = (
    "how many elements that is shows only in the values; keep the shape: "
    "np.where(condition, x, 0)"
)
_INSTEAD = {
    "np.nonzero": _OF_VALUES,
    "np.argwhere": _OF_VALUES,
    "np.flatnonzero": _OF_VALUES,
    "np.unique": _OF_VALUES,
    "np.extract": _OF_VALUES,
    "np.compress": _OF_VALUES,
    "np.put": "use np.where(condition, value, x)",
    "np.place": "use np.where(condition, value, x)",
    "np.copyto": "use np.where(condition, value, x)",
    "np.put_along_axis": "use np.where(condition, value, x)",
    "np.array_equal": "use (a == b).all(), and read it where the function was called",
    "np.allclose": "use np.isclose(a, b).all(), and read it outside of the function",
}
