"""Second half of the pyrlx shim: `with graph("name") as g`, and nodes with
operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.pyrlx import shim

_SCALAR_METHODS = (
    *("add", "sub", "mul", "div", "binary", "compare"),
    *("where_", "eq_", "ne_", "lt_", "le_", "gt_", "ge_"),
)


class Node:
    """Node number together with its graph."""

    def __init__(self, proxy: Proxy, number: int) -> None:
        self.proxy, self.id = proxy, number

    def __int__(self) -> int:
        return self.id

    __index__ = __int__
    __hash__ = object.__hash__

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.proxy.raw.shape_of(self.id)[0])

    @property
    def dtype(self) -> str:
        return self.proxy.raw.shape_of(self.id)[1]

    @property
    def T(self) -> Node:  # noqa: N802  NumPy's name, and pyrlx's
        return self.transpose()

    def transpose(self, *perm: Any) -> Node:
        axes = _as_integers(perm) or tuple(reversed(range(len(self.shape))))
        return self.proxy.transpose(self, axes)

    def reshape(self, *shape: Any) -> Node:
        return self.proxy.reshape(self, _as_integers(shape))

    def sum(self, axes: Sequence[int], keep_dim: bool = False) -> Node:
        return self.proxy.sum(self, axes, keep_dim)

    def mean(self, axes: Sequence[int], keep_dim: bool = False) -> Node:
        return self.proxy.mean(self, axes, keep_dim)

    def __repr__(self) -> str:
        return f"Node(id={self.id}, shape={self.shape}, dtype={self.dtype})"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.proxy, name)
        return lambda *args, **keywords: method(self, *args, **keywords)

    def __matmul__(self, other: Any) -> Node:
        scalar = isinstance(other, int | float)
        return (self.proxy.mul if scalar else self.proxy.matmul)(self, other)

    __rmatmul__ = __matmul__
    """Of a number; two nodes never come here."""

    def __neg__(self) -> Node:
        return self.proxy.neg(self)


def _as_integers(values: tuple[Any, ...]) -> tuple[int, ...]:
    """Return integers that were passed one by one or as a list."""
    return tuple(values[0]) if values and not isinstance(values[0], int) else values


def _operator(method: str, op: str, is_reflected: bool = False) -> Callable[..., Node]:
    def operator(self: Node, other: Any) -> Node:
        operands = (other, self) if is_reflected else (self, other)
        return getattr(self.proxy, method)(op, *operands)

    return operator


for _name, _op in (
    *(("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div")),
    ("pow", "pow"),
):
    setattr(Node, f"__{_name}__", _operator("binary", _op))
    setattr(Node, f"__r{_name}__", _operator("binary", _op, is_reflected=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Node, f"__{_name}__", _operator("compare", _name))


class Proxy:
    """Graph whose methods take and return nodes, and accept plain numbers as
    operands.
    """

    def __init__(self, name: str) -> None:
        self.raw = shim.Graph(name)

    def _wrap_result(self, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(map(self._wrap_result, result))
        return Node(self, result) if isinstance(result, int) else result

    def __getattr__(self, name: str) -> Any:
        if name == "outputs":
            raise AttributeError("outputs is write-only")
        method = getattr(self.raw, name)

        def call(*args: Any, **keywords: Any) -> Any:
            if name in _SCALAR_METHODS:
                args = self._promote_numbers(args)
            return self._wrap_result(method(*args, **keywords))

        return call

    def _promote_numbers(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Replace numbers by constants of the first node's dtype."""
        dtype = next(a.dtype for a in args if isinstance(a, Node))
        return tuple(
            self.raw.constant(a, dtype) if isinstance(a, int | float) else a
            for a in args
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "outputs":
            self.raw.set_outputs(value)
        else:
            super().__setattr__(name, value)


@contextmanager
def graph(name: str) -> Iterator[Proxy]:
    """Build a graph in a block; `g.raw` is the graph to compile."""
    yield Proxy(name)
