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

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.errors import GraphError, UsageError
from rlxweb.ir.dtype import DType, DTypeLike
from rlxweb.ir.shape_arithmetic import Shape, error_context

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

Number = int | float | bool
Operand = Number | npt.NDArray[Any] | np.generic
"""Values that become constants beside a tensor; see `Graph.operand`."""
Axes = int | Sequence[int]
"""Axis or axes of a tensor; negative ones count from the end."""


def _binary_method(
    method: str, is_reflected: bool = False
) -> Callable[[Tensor, Tensor | Operand], Tensor]:
    """Return the builder's method over (self, other), or (other, self) when
    reflected.
    """

    def operator(self: Tensor, other: Tensor | Operand) -> Tensor:
        add_node: Callable[..., Tensor] = getattr(self.graph, method)
        return add_node(other, self) if is_reflected else add_node(self, other)

    operator.__name__ = method
    return operator


def _graph_method(name: str) -> Callable[..., Tensor]:
    """Return the builder's method of that name with self as its first operand."""

    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        add_node: Callable[..., Tensor] = getattr(self.graph, name)
        return add_node(self, *args, **named)

    method.__name__ = name
    method.__doc__ = f"`Graph.{name}` with this tensor as the first operand."
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
        """The dimensions; a symbolic size stands for each that varies."""
        shape = self.graph.node(self.id).type.shape
        log = self.graph.recording
        return shape if log is None else log.observe_shape(self.id, shape)

    @property
    def dtype(self) -> DType:
        return self.graph.node(self.id).type.dtype

    @property
    def rank(self) -> int:
        return len(self.graph.node(self.id).type.shape)

    def __repr__(self) -> str:
        return f"Tensor(%{self.id} {self.graph.node(self.id).type})"

    def _refuse_values(self, request: str, hint: str) -> NoReturn:
        """Raise UsageError for an operation that needs the tensor's values."""
        raise UsageError(
            f"{request} of {self!r}",
            "a graph tensor has no values until the graph runs",
            hint=hint,
        )

    def __bool__(self) -> bool:
        self._refuse_values("the truth value", "use graph.where(condition, a, b)")

    def __iter__(self) -> NoReturn:
        hint = (
            f"loop over tensors: t[i] for i in range({self.shape[0]})"
            if self.rank
            else "use the scalar itself, without a loop"
        )
        self._refuse_values("a loop over the values", hint)

    def __len__(self) -> int:
        self._refuse_values("len()", f"use t.shape, which is {self.shape}")

    def __contains__(self, value: object) -> bool:
        self._refuse_values(
            "the `in` test", "compare element by element: graph.eq(t, value)"
        )

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        hint = "call set_outputs([t]), compile, and use the array that run() returns"
        self._refuse_values("conversion to NumPy", hint)

    def __array_function__(
        self, function: Any, types: object, args: object, kwargs: object
    ) -> NoReturn:
        name = _NUMPY_TO_GRAPH_NAMES.get(function.__name__, function.__name__)
        has_method = callable(getattr(self.graph, name, None))
        hint = f"use graph.{name}" if has_method else "use the methods of the graph"
        self._refuse_values(f"np.{function.__name__}", hint)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | float | np.ndarray | np.generic):
            raise UsageError(
                f"{self!r} == {describe_type(other)}",
                "`==` only tests whether both are the same tensor object",
                hint="compare element by element with t.eq(value) or t.ne(value)",
            )
        return self is other

    __add__ = _binary_method("add")
    __radd__ = _binary_method("add", is_reflected=True)
    __sub__ = _binary_method("sub")
    __rsub__ = _binary_method("sub", is_reflected=True)
    __mul__ = _binary_method("mul")
    __rmul__ = _binary_method("mul", is_reflected=True)
    __truediv__ = _binary_method("div")
    __rtruediv__ = _binary_method("div", is_reflected=True)
    __pow__ = _binary_method("pow")
    __rpow__ = _binary_method("pow", is_reflected=True)

    __floordiv__ = _binary_method("floor_divide")
    __rfloordiv__ = _binary_method("floor_divide", is_reflected=True)
    __mod__ = _binary_method("mod")
    __rmod__ = _binary_method("mod", is_reflected=True)
    __and__ = _binary_method("bitwise_and")
    __rand__ = _binary_method("bitwise_and", is_reflected=True)
    __or__ = _binary_method("bitwise_or")
    __ror__ = _binary_method("bitwise_or", is_reflected=True)
    __xor__ = _binary_method("bitwise_xor")
    __rxor__ = _binary_method("bitwise_xor", is_reflected=True)
    __lshift__ = _binary_method("shift_left")
    __rlshift__ = _binary_method("shift_left", is_reflected=True)
    __rshift__ = _binary_method("shift_right")
    __rrshift__ = _binary_method("shift_right", is_reflected=True)

    __matmul__ = _binary_method("matmul")
    __rmatmul__ = _binary_method("matmul", is_reflected=True)

    def __neg__(self) -> Tensor:
        return self.graph.neg(self)

    def __abs__(self) -> Tensor:
        return self.graph.abs(self)

    def __invert__(self) -> Tensor:
        return self.graph.bitwise_not(self)

    __lt__ = _binary_method("lt")
    __le__ = _binary_method("le")
    __gt__ = _binary_method("gt")
    __ge__ = _binary_method("ge")
    eq = _binary_method("eq")
    ne = _binary_method("ne")

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Reshape to dims that are given one by one, or as one sequence."""
        dims: Any = shape[0] if len(shape) == 1 else shape
        return self.graph.reshape(self, dims)

    def transpose(self, *perm: int | Sequence[int]) -> Tensor:
        """Permute the axes, given one by one or as one sequence; no axes reverse the
        order.
        """
        reversed_axes = tuple(range(self.rank))[::-1]
        order: Any = perm[0] if len(perm) == 1 else perm or reversed_axes
        return self.graph.transpose(self, order)

    @property
    def T(self) -> Tensor:  # noqa: N802  NumPy's name
        """The tensor with its axes reversed, as numpy.ndarray.T."""
        return self.transpose()

    exp, log, sqrt, rsqrt = map(_graph_method, ("exp", "log", "sqrt", "rsqrt"))
    sin, cos, tan, atan = map(_graph_method, ("sin", "cos", "tan", "atan"))
    floor, ceil, trunc, sign = map(_graph_method, ("floor", "ceil", "trunc", "sign"))
    clip, clamp, square = map(_graph_method, ("clip", "clamp", "square"))
    tanh, sigmoid, relu = map(_graph_method, ("tanh", "sigmoid", "relu"))
    gelu, silu = map(_graph_method, ("gelu", "silu"))
    expand, broadcast_to, flip = map(_graph_method, ("expand", "broadcast_to", "flip"))
    squeeze, unsqueeze, flatten = map(
        _graph_method, ("squeeze", "unsqueeze", "flatten")
    )
    pad, tile, repeat, roll = map(_graph_method, ("pad", "tile", "repeat", "roll"))
    moveaxis, swapaxes, take = map(_graph_method, ("moveaxis", "swapaxes", "take"))
    abs, round, softmax = map(_graph_method, ("abs", "round", "softmax"))
    max, min, prod, cumsum = map(_graph_method, ("max", "min", "prod", "cumsum"))
    cumprod, sort, argsort = map(_graph_method, ("cumprod", "sort", "argsort"))
    any, all, var, std = map(_graph_method, ("any", "all", "var", "std"))
    argmax, argmin, logsumexp = map(_graph_method, ("argmax", "argmin", "logsumexp"))
    log_softmax, norm, dot = map(_graph_method, ("log_softmax", "norm", "dot"))
    diagonal, trace = map(_graph_method, ("diagonal", "trace"))

    def cast(self, dtype: DTypeLike) -> Tensor:
        return self.graph.cast(self, dtype)

    def sum(self, axes: Any = None, keep_dim: bool = False) -> Tensor:
        return self.graph.sum(self, axes, keep_dim)

    def mean(self, axes: Any = None, keep_dim: bool = False) -> Tensor:
        return self.graph.mean(self, axes, keep_dim)

    def __getitem__(self, key: Any) -> Tensor:
        """Index as NumPy does: `t[2]`, `t[:, ::-2]`, `t[..., None]`, `t[[0, 3]]`.

        One axis may be indexed by a list, an array or an integer tensor, or one or more
        by a mask of constants. All else is a view.
        Errors   ShapeError, IndexRefused, UsageError for a mask that is computed.
        """
        return self.graph.getitem(self, key)


TensorLike = Tensor | Operand
"""Tensor, or a value that becomes a constant beside one."""


def as_tensor_tuple(tensors: object, context: str, usage: str) -> tuple[Any, ...]:
    """Return the members of a list of tensors. Errors  GraphError for what is no
    list.
    """
    try:
        if not isinstance(tensors, Tensor):
            return tuple(tensors)  # type: ignore[arg-type]
    except TypeError:  # nothing to go through, or an array of no dimensions
        pass
    raise GraphError(
        context,
        f"got {describe_type(tensors)}",
        "expected a list of tensors",
        f"pass a list, for example {usage}",
    )


def not_a_tensor(value: object) -> tuple[str, str, str]:
    """Return problem, rule and hint where a tensor was expected."""
    return (
        f"got {describe_type(value)}",
        "expected a tensor",
        "create one with graph.input, graph.param or graph.constant",
    )


@contextmanager
def op_context(operation: str, x: object, *others: object) -> Iterator[None]:
    """Context manager for adding an op to x: checks that all operands are tensors, and
    names the operation and x in errors.

    Errors   GraphError for what is none.
    """
    for operand in (x, *others):
        if not isinstance(operand, Tensor):
            raise GraphError(operation, *not_a_tensor(operand))
    with error_context(f"{operation} of {x!r}"):
        yield


# NumPy's names of what a graph calls otherwise.
_NUMPY_TO_GRAPH_NAMES = {
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
