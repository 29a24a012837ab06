"""Pyrlx's second half: `with graph("name") as g`, and nodes with operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.pyrlx import shim

_OVER_NUMBERS = (
    *("add", "sub", "mul", "div", "binary", "compare"),
    *("where_", "eq_", "ne_", "lt_", "le_", "gt_", "ge_"),
)


class Node:
    """A node's number, with the graph it is of."""

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
        axes = _flat(perm) or tuple(reversed(range(len(self.shape))))
        return self.proxy.transpose(self, axes)

    def reshape(self, *shape: Any) -> Node:
        return self.proxy.reshape(self, _flat(shape))

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


def _flat(given: tuple[Any, ...]) -> tuple[int, ...]:
    """Numbers, or one list of them."""
    return tuple(given[0]) if given and not isinstance(given[0], int) else given


def _operator(call: str, op: str, turned: bool = False) -> Callable[..., Node]:
    def operator(self: Node, other: Any) -> Node:
        both = (other, self) if turned else (self, other)
        return getattr(self.proxy, call)(op, *both)

    return operator


for _name, _op in (
    *(("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div")),
    ("pow", "pow"),
):
    setattr(Node, f"__{_name}__", _operator("binary", _op))
    setattr(Node, f"__r{_name}__", _operator("binary", _op, turned=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Node, f"__{_name}__", _operator("compare", _name))


class Proxy:
    """A graph whose methods take and give nodes, and numbers beside them."""

    def __init__(self, name: str) -> None:
        self.raw = shim.Graph(name)

    def _wrapped(self, made: Any) -> Any:
        if isinstance(made, tuple):
            return tuple(map(self._wrapped, made))
        return Node(self, made) if isinstance(made, int) else made

    def __getattr__(self, name: str) -> Any:
        if name == "outputs":
            raise AttributeError("outputs is write-only")
        method = getattr(self.raw, name)

        def call(*args: Any, **keywords: Any) -> Any:
            if name in _OVER_NUMBERS:
                args = self._promoted(args)
            return self._wrapped(method(*args, **keywords))

        return call

    def _promoted(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Numbers become constants of the dtype of the node beside them."""
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
    """A graph that is built in a block; `g.raw` is what is compiled."""
    yield Proxy(name)
