"""nn: the ops of a graph as functions on arrays, for what NumPy has no name for.

`rlx.nn.conv(x, w)` is `Graph.conv` of the graph that is traced; called with plain
arrays it is computed at once. Convolutions, pooling, norms, attention, transforms of
signals: every method of `Graph` that adds to it and takes tensors.
"""

from __future__ import annotations

from functools import cache
from inspect import Signature, signature
from typing import Any

from rlxweb.errors import RlxError, did_you_mean
from rlxweb.ir.builder import Builder
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing.function import Within
from rlxweb.tracing.place import placed, refused
from rlxweb.tracing.trace import Trace, running
from rlxweb.tracing.traced import Traced
from rlxweb.tracing.trees import is_array

_NOT = frozenset(
    """input param constant apply operand gradients tangents vectorized segment_in
    segment_out output set_output set_outputs""".split()
)


class _OfGraph:
    """One of them, within a tracing."""

    def __init__(self, name: str) -> None:
        method = getattr(Graph, name)
        self._name = self.__name__ = name
        self.__qualname__ = f"nn.{name}"
        self.__module__ = "rlxweb.nn"
        self.__doc__ = method.__doc__
        _, *rest = signature(method).parameters.values()
        free = [p.replace(annotation=p.empty) for p in rest]
        self.__signature__ = Signature(free)

    def __call__(self, *args: Any, **named: Any) -> Any:
        trace = running()
        if trace is None:
            raise refused(f"nn.{self._name}", "it was given no array")
        given = [self._tensor(trace, one) for one in args]
        how = {key: self._tensor(trace, one) for key, one in named.items()}
        try:
            made = getattr(trace.graph, self._name)(*given, **how)
        except RlxError as error:
            raise placed(error, f"nn.{self._name}") from None
        return _traced(trace, made)

    def _tensor(self, trace: Trace, value: Any) -> Any:
        """An array as a tensor, in lists too; what is none as it is."""
        if isinstance(value, tuple | list) and any(map(is_array, value)):
            return [self._tensor(trace, one) for one in value]
        if not is_array(value):
            return value
        lifted: Traced = trace.lifted(value)
        if lifted.im is not None:
            raise refused(
                f"nn.{self._name}",
                f"an array is {lifted.dtype}",
                "the ops of a graph take real arrays",
                "pass x.real and x.imag",
            )
        return lifted.re


def _traced(trace: Trace, made: Any) -> Any:
    if isinstance(made, Tensor):
        return Traced(trace, made)
    if isinstance(made, tuple | list):
        return tuple(_traced(trace, one) for one in made)
    return made


class Ops:
    """The ops of a graph as functions on arrays; see `rlxweb.nn`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in _names():
            hint = did_you_mean(name, _names())
            raise AttributeError(f"rlxweb.nn has no op {name!r}; {hint}".rstrip("; "))
        return _function(name)

    def __dir__(self) -> list[str]:
        return sorted(_names())

    def __repr__(self) -> str:
        return f"<rlxweb.nn: {len(_names())} ops of a graph, as functions on arrays>"


@cache
def _names() -> frozenset[str]:
    every = {n for n in dir(Builder) if not n.startswith("_")} & Graph.BUILDS
    return frozenset(every - _NOT)


@cache
def _function(name: str) -> Within:
    return Within(_OfGraph(name))


nn = Ops()
