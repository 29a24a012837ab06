"""vmap: a function on one example as a function on many, computed together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, cast

import numpy as np

from rlxweb.arguments import whole as whole_number
from rlxweb.errors import RlxError, UsageError, shown
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import normal_axis, show
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing.callables import name_of_callable, signature_of
from rlxweb.tracing.function import Within
from rlxweb.tracing.of_graphs import mapped_graph
from rlxweb.tracing.place import placed, refused
from rlxweb.tracing.trace import Trace, running
from rlxweb.tracing.traced import Traced
from rlxweb.tracing.trees import Same, Tree, flattened

Axes = int | Sequence[int | None] | None


def vmap(
    fn: Callable[..., Any] | Graph,
    in_axes: Axes = 0,
    out_axes: int = 0,
    *,
    count: int | None = None,
    inputs: str | Sequence[str] | None = None,
) -> Any:
    """A function on one example, or a graph for one, mapped over many.

    >>> rlx.vmap(lambda x, w: np.linalg.norm(x @ w), in_axes=(0, None))(xs, w)

    in_axes   along which axis of each argument the examples lie; None: it is the same
              for all of them. One number counts for all arguments, and for all arrays
              within one
    out_axes  where they are to lie in the results
    count, inputs   of a graph: how many examples there are, and which inputs have them
              along a new first axis; None: all. The result is a graph then

    The function is traced for one example, and each op of it is applied to all of them
    at once. It is called, compiled and nested as `rlxweb.grad` is: vmap of grad gives
    a gradient for each example.
    Errors    UsageError; TraceError for arrays of different numbers of examples;
    Unsupported for very many of an op that takes one at a time.
    """
    if isinstance(fn, Graph):
        doing = f"vmap of graph '{fn.name}'"
        if count is None:
            problem = "how many examples there are is not said"
            raise UsageError(doing, problem, hint="vmap(graph, count=8)")
        return mapped_graph(fn, whole_number("count", count, doing), inputs, doing)
    return Within(_Mapped(fn, in_axes, out_axes))


class _Mapped:
    """A mapped function within a tracing: called with traced arguments."""

    def __init__(self, fn: Any, in_axes: Axes, out_axes: int) -> None:
        self.__signature__ = signature_of(fn, "vmap")
        update_wrapper(cast(Any, self), fn, updated=())
        self._fn = fn
        self._doing = f"vmap of '{name_of_callable(fn)}'"
        each = in_axes if isinstance(in_axes, tuple | list) else (in_axes,)
        if not all(a is None or type(a) is int for a in each):
            problem = f"in_axes is {shown(in_axes)}"
            raise UsageError(self._doing, problem, "an axis or None for each argument")
        if type(out_axes) is not int:
            problem = f"out_axes is {shown(out_axes)}"
            raise UsageError(self._doing, problem, "an axis is wanted")
        self._in_axes, self._out_axes = in_axes, out_axes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        axes = self._axes(len(args))
        leaves: list[tuple[str, Any, int | None]] = []
        trees = [self._leaves(a, n, axes[n], leaves) for n, a in enumerate(args)]
        trace = running()
        if trace is None or not leaves:
            raise refused(self._doing, "it was given no array")
        wholes = [
            None if axis is None else self._front(trace, path, x, axis)
            for path, x, axis in leaves
        ]
        count = self._count(leaves, wholes)
        ones = [
            x if whole is None else _example(trace, whole)
            for (_, x, _), whole in zip(leaves, wholes, strict=True)
        ]
        given = iter(ones)
        result = self._fn(*(tree.built(given) for tree in trees), **kwargs)
        pairs = [
            (one, whole)
            for one, whole in zip(ones, wholes, strict=True)
            if whole is not None
        ]
        return self._for_all(trace, result, pairs, count)

    def _axes(self, count: int) -> list[int | None]:
        if self._in_axes is None or isinstance(self._in_axes, int):
            return [self._in_axes] * count
        if len(self._in_axes) != count:
            raise refused(
                self._doing,
                f"{count} arguments were given by position",
                f"in_axes has {len(self._in_axes)}",
            )
        return list(self._in_axes)

    def _leaves(
        self,
        value: Any,
        number: int,
        axis: int | None,
        leaves: list[tuple[str, Any, int | None]],
    ) -> Tree:
        found: list[tuple[str, Any]] = []
        path = f"argument {number}"
        tree = flattened(value, path, found, lambda v, at: Same(v))
        leaves += [(at, x, axis) for at, x in found]
        return tree

    def _front(self, trace: Trace, path: str, x: Any, axis: int) -> Traced:
        """An array with its examples along the first axis."""
        lifted: Traced = trace.lifted(x)
        if not -lifted.ndim <= axis < lifted.ndim:
            problem = f"{path} is {show(lifted.shape)}"
            raise refused(self._doing, problem, f"its examples lie along axis {axis}")
        at = normal_axis(axis, lifted.ndim)
        moved: Traced = np.moveaxis(cast(Any, lifted), at, 0) if at else lifted
        return moved

    def _count(
        self,
        leaves: Sequence[tuple[str, Any, int | None]],
        wholes: Sequence[Traced | None],
    ) -> int:
        counts = {
            path: whole.shape[0]
            for (path, _, _), whole in zip(leaves, wholes, strict=True)
            if whole is not None
        }
        if not counts:
            hint = "name the axis of the examples of one"
            raise refused(self._doing, "no argument has examples", hint=hint)
        first, *rest = counts.items()
        for path, count in rest:
            if count != first[1]:
                problem = f"{path} has {count} examples, {first[0]} has {first[1]}"
                raise refused(self._doing, problem, "all have as many")
        return int(first[1])

    def _for_all(
        self,
        trace: Trace,
        result: Any,
        pairs: Sequence[tuple[Traced, Traced]],
        count: int,
    ) -> Any:
        found: list[tuple[str, Any]] = []
        tree = flattened(result, "result", found, lambda v, path: Same(v))
        outs = [trace.lifted(one) for _, one in found]
        parts = [p for out in outs for p in _parts(out)]
        ones = [p for one, _ in pairs for p in _parts(one)]
        wholes = [p for _, whole in pairs for p in _parts(whole)]
        try:
            made = iter(trace.graph.vectorized(parts, ones, wholes) if parts else [])
        except RlxError as error:
            raise placed(error, self._doing) from None
        every = []
        for out in outs:
            re = next(made)
            im = None if out.im is None else next(made)
            whole = Traced(trace, re, im, out.dtype)
            to = normal_axis(self._out_axes, whole.ndim)
            every.append(np.moveaxis(cast(Any, whole), 0, to) if to else whole)
        return tree.built(iter(every))


def _parts(x: Traced) -> list[Tensor]:
    return [x.re] if x.im is None else [x.re, x.im]


def _example(trace: Trace, whole: Traced) -> Traced:
    """What stands for one example: only its shape and dtype count."""
    g = trace.graph

    def one(part: Tensor) -> Tensor:
        zero = g.constant(False if part.dtype.value == "bool" else 0, part.dtype)
        return g.identity(g.expand(zero, part.shape[1:]))

    im = None if whole.im is None else one(whole.im)
    return Traced(trace, one(whole.re), im, whole.dtype)
