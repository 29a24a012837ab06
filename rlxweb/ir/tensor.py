"""Tensor: a handle to one node of a graph, with operators that add nodes.

Holds no data. Everything an operator does goes through the graph's builder methods, so
shape and dtype errors appear at the line that wrote the expression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlxweb.errors import ShapeError, UsageError
from rlxweb.ir.dtype import DType, DTypeLike
from rlxweb.ir.shape import Shape, normal_axis

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

Number = int | float | bool


def _operator(
    method: str, turned: bool = False
) -> Callable[[Tensor, Tensor | Number], Tensor]:
    """The builder's method over (self, other), or (other, self) when turned."""

    def operator(self: Tensor, other: Tensor | Number) -> Tensor:
        add: Callable[..., Tensor] = getattr(self.graph, method)
        return add(other, self) if turned else add(self, other)

    operator.__name__ = method
    return operator


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value in a graph. `==` compares identity; use `.eq()` for element-wise."""

    graph: Graph
    id: int

    @property
    def shape(self) -> Shape:
        return self.graph.node(self.id).type.shape

    @property
    def dtype(self) -> DType:
        return self.graph.node(self.id).type.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor(%{self.id} {self.graph.node(self.id).type})"

    def __bool__(self) -> bool:
        raise UsageError(
            repr(self),
            "a tensor has no truth value while the graph is being built",
            hint="use graph.where(condition, a, b)",
        )

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

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.graph.matmul(self, other)

    def __neg__(self) -> Tensor:
        return self.graph.neg(self)

    def __abs__(self) -> Tensor:
        return self.graph.abs(self)

    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")
    eq = _operator("eq")
    ne = _operator("ne")

    def reshape(self, *shape: int) -> Tensor:
        return self.graph.reshape(self, shape)

    def transpose(self, *perm: int) -> Tensor:
        return self.graph.transpose(self, perm or tuple(range(self.rank))[::-1])

    def cast(self, dtype: DTypeLike) -> Tensor:
        return self.graph.cast(self, dtype)

    def sum(self, axes: Any = None, keep_dim: bool = False) -> Tensor:
        return self.graph.sum(self, axes, keep_dim)

    def mean(self, axes: Any = None, keep_dim: bool = False) -> Tensor:
        return self.graph.mean(self, axes, keep_dim)

    def __getitem__(self, key: int | slice | tuple[int | slice, ...]) -> Tensor:
        """Basic slicing with step 1: `t[2]`, `t[1:5]`, `t[:, 3:]`.

        Errors   ShapeError for a step, an index out of range or too many axes.
        """
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > self.rank:
            raise ShapeError(repr(self), f"{len(keys)} indices", f"rank is {self.rank}")
        out, dropped = self, []
        for axis, one in enumerate(keys):
            size = self.shape[axis]
            if isinstance(one, slice):
                start, stop, step = one.indices(size)
                if step != 1:
                    raise ShapeError(
                        repr(self),
                        f"slice step {step}",
                        "only step 1 is a view",
                        "gather the wanted rows",
                    )
                length = max(0, stop - start)
            else:
                start, length = normal_axis(one, size), 1
                dropped.append(axis)
            if (start, length) != (0, size):
                out = self.graph.narrow(out, axis, start, length)
        if dropped:
            keep = tuple(d for a, d in enumerate(out.shape) if a not in dropped)
            out = self.graph.reshape(out, keep)
        return out
