"""Tensor: a handle to one node of a graph, with operators that add nodes.

Holds no data. Everything an operator does goes through the graph's builder methods, so
shape and dtype errors appear at the line that wrote the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from rlxweb.errors import GraphError, UsageError
from rlxweb.given import named
from rlxweb.ir.dtype import DType, DTypeLike
from rlxweb.ir.shape import Shape, doing

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

Number = int | float | bool
Operand = Number | npt.NDArray[Any] | np.generic
"""What becomes a constant beside a tensor; see `Builder.operand`."""


def _operator(
    method: str, turned: bool = False
) -> Callable[[Tensor, Tensor | Operand], Tensor]:
    """The builder's method over (self, other), or (other, self) when turned."""

    def operator(self: Tensor, other: Tensor | Operand) -> Tensor:
        add: Callable[..., Tensor] = getattr(self.graph, method)
        return add(other, self) if turned else add(self, other)

    operator.__name__ = method
    return operator


def _method(name: str) -> Callable[..., Tensor]:
    """The builder's method of that name with self as its first operand."""

    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        add: Callable[..., Tensor] = getattr(self.graph, name)
        return add(self, *args, **named)

    method.__name__ = name
    method.__doc__ = f"`Graph.{name}` of this tensor."
    return method


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value in a graph. `==` compares identity; use `.eq()` for element-wise.

    It has no values until the graph is run: what needs them (NumPy's functions, `if`,
    `for`, `len`, `in`) is refused with what to do instead.
    """

    graph: Graph
    id: int

    # NumPy leaves `array + tensor` to the tensor, where it would make an object array.
    __array_ufunc__: ClassVar[None] = None
    __hash__ = object.__hash__

    @property
    def shape(self) -> Shape:
        """Its dimensions; where they vary, a `Size` stands for each that does."""
        shape = self.graph.node(self.id).type.shape
        log = self.graph.recording
        return shape if log is None else log.told_shape(self.id, shape)

    @property
    def dtype(self) -> DType:
        return self.graph.node(self.id).type.dtype

    @property
    def rank(self) -> int:
        return len(self.graph.node(self.id).type.shape)

    def __repr__(self) -> str:
        return f"Tensor(%{self.id} {self.graph.node(self.id).type})"

    def _has_no_values(self, wanted: str, hint: str) -> NoReturn:
        raise UsageError(
            f"{wanted} of {self!r}",
            "a tensor of a graph has no values until the graph is run",
            hint=hint,
        )

    def __bool__(self) -> bool:
        self._has_no_values("the truth value", "use graph.where(condition, a, b)")

    def __iter__(self) -> NoReturn:
        rows = (
            f"t[i] for i in range({self.shape[0]})" if self.rank else "it is a scalar"
        )
        self._has_no_values("a loop over the values", f"its parts are tensors: {rows}")

    def __len__(self) -> int:
        self._has_no_values("len()", f"its shape is known: t.shape is {self.shape}")

    def __contains__(self, value: object) -> bool:
        self._has_no_values("`in`", "compare element by element: graph.eq(t, value)")

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        hint = "set_outputs([t]), compile, and take the array that run() returns"
        self._has_no_values("a NumPy array", hint)

    def __array_function__(
        self, function: Any, types: object, args: object, kwargs: object
    ) -> NoReturn:
        name = _GRAPH_NAMES.get(function.__name__, function.__name__)
        known = callable(getattr(self.graph, name, None))
        hint = f"use graph.{name}" if known else "build it from methods of the graph"
        self._has_no_values(f"np.{function.__name__}", hint)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | float | np.ndarray | np.generic):
            raise UsageError(
                f"{self!r} == {named(other)}",
                "`==` asks whether two names mean the same tensor",
                hint="compare element by element with t.eq(value) or t.ne(value)",
            )
        return self is other

    __add__ = _operator("add")
    __radd__ = _operator("add", turned=True)
    __sub__ = _operator("sub")
    __rsub__ = _operator("sub", turned=True)
    __mul__ = _operator("mul")
    __rmul__ = _operator("mul", turned=True)
    __truediv__ = _operator("div")
    __rtruediv__ = _operator("div", turned=True)
    __pow__ = _operator("pow")
    __rpow__ = _operator("pow", turned=True)

    __floordiv__ = _operator("floor_divide")
    __rfloordiv__ = _operator("floor_divide", turned=True)
    __mod__ = _operator("mod")
    __rmod__ = _operator("mod", turned=True)
    __and__ = _operator("bitwise_and")
    __rand__ = _operator("bitwise_and", turned=True)
    __or__ = _operator("bitwise_or")
    __ror__ = _operator("bitwise_or", turned=True)
    __xor__ = _operator("bitwise_xor")
    __rxor__ = _operator("bitwise_xor", turned=True)
    __lshift__ = _operator("shift_left")
    __rlshift__ = _operator("shift_left", turned=True)
    __rshift__ = _operator("shift_right")
    __rrshift__ = _operator("shift_right", turned=True)

    __matmul__ = _operator("matmul")
    __rmatmul__ = _operator("matmul", turned=True)

    def __neg__(self) -> Tensor:
        return self.graph.neg(self)

    def __abs__(self) -> Tensor:
        return self.graph.abs(self)

    def __invert__(self) -> Tensor:
        return self.graph.bitwise_not(self)

    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")
    eq = _operator("eq")
    ne = _operator("ne")

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The dims one by one, or all of them as one sequence."""
        dims: Any = shape[0] if len(shape) == 1 else shape
        return self.graph.reshape(self, dims)

    def transpose(self, *perm: int | Sequence[int]) -> Tensor:
        """The axes in their new order, one by one or as one sequence; none reverses."""
        every = tuple(range(self.rank))[::-1]
        order: Any = perm[0] if len(perm) == 1 else perm or every
        return self.graph.transpose(self, order)

    @property
    def T(self) -> Tensor:  # noqa: N802  NumPy's name
        """The axes reversed, as numpy.ndarray.T."""
        return self.transpose()

    exp, log, sqrt, rsqrt = map(_method, ("exp", "log", "sqrt", "rsqrt"))
    sin, cos, tan, atan = map(_method, ("sin", "cos", "tan", "atan"))
    floor, ceil, trunc, sign = map(_method, ("floor", "ceil", "trunc", "sign"))
    clip, clamp, square = map(_method, ("clip", "clamp", "square"))
    tanh, sigmoid, relu = map(_method, ("tanh", "sigmoid", "relu"))
    gelu, silu = map(_method, ("gelu", "silu"))
    expand, broadcast_to, flip = map(_method, ("expand", "broadcast_to", "flip"))
    squeeze, unsqueeze, flatten = map(_method, ("squeeze", "unsqueeze", "flatten"))
    pad, tile, repeat, roll = map(_method, ("pad", "tile", "repeat", "roll"))
    moveaxis, swapaxes, take = map(_method, ("moveaxis", "swapaxes", "take"))
    abs, round, softmax = map(_method, ("abs", "round", "softmax"))
    max, min, prod, cumsum = map(_method, ("max", "min", "prod", "cumsum"))
    cumprod, sort, argsort = map(_method, ("cumprod", "sort", "argsort"))
    any, all, var, std = map(_method, ("any", "all", "var", "std"))
    argmax, argmin, logsumexp = map(_method, ("argmax", "argmin", "logsumexp"))
    log_softmax, norm, dot = map(_method, ("log_softmax", "norm", "dot"))
    diagonal, trace = map(_method, ("diagonal", "trace"))

    def cast(self, dtype: DTypeLike) -> Tensor:
        return self.graph.cast(self, dtype)

    def sum(self, axes: Any = None, keep_dim: bool = False) -> Tensor:
        return self.graph.sum(self, axes, keep_dim)

    def mean(self, axes: Any = None, keep_dim: bool = False) -> Tensor:
        return self.graph.mean(self, axes, keep_dim)

    def __getitem__(self, key: Any) -> Tensor:
        """NumPy's indexing: `t[2]`, `t[:, ::-2]`, `t[..., None]`, `t[[0, 3]]`.

        One axis may be indexed by a list, an array or an integer tensor, or one or more
        by a mask of constants. All else is a view.
        Errors   ShapeError, IndexRefused, UsageError for a mask that is computed.
        """
        return self.graph.getitem(self, key)


def listed(given: object, doing: str, so: str) -> tuple[Any, ...]:
    """The members of a list of tensors. Errors  GraphError for what is no list."""
    try:
        if not isinstance(given, Tensor):
            return tuple(given)  # type: ignore[arg-type]
    except TypeError:  # nothing to go through, or an array of no dimensions
        pass
    raise GraphError(doing, f"{named(given)} was given", "a list is wanted", so)


@contextmanager
def working(what: str, x: object, *others: object) -> Iterator[None]:
    """Errors from within say what is done to x; it and the others are tensors.

    Errors   GraphError for what is none.
    """
    for one in (x, *others):
        if not isinstance(one, Tensor):
            raise GraphError(
                what,
                f"{named(one)} was given",
                "a tensor is wanted",
                "make it one: graph.input, graph.param or graph.constant",
            )
    with doing(f"{what} of {x!r}"):
        yield


# NumPy's names of what a graph calls otherwise.
_GRAPH_NAMES = {
    "concatenate": "concat",
    "vstack": "concat",
    "hstack": "concat",
    "sliding_window_view": "windows",
    "amax": "max",
    "amin": "min",
    "remainder": "mod",
    "arctan2": "atan2",
    "bitwise_invert": "bitwise_not",
    "left_shift": "shift_left",
    "right_shift": "shift_right",
    **{f"arc{n}": f"a{n}" for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}
