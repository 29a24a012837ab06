"""Vectorizing map (`vmap`): apply a function of one example to a batch of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, cast

import numpy as np

from rlxweb.core.argument_validation import coerce_integer as whole_number
from rlxweb.core.errors import RlxError, UsageError, shown
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import format_shape, normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.trace.callable_signatures import callable_name, callable_signature
from rlxweb.trace.function import InlineFunction
from rlxweb.trace.graph_grad_and_vmap import vmap_graph
from rlxweb.trace.pytrees import IdentityKey, PyTree, flatten_tree
from rlxweb.trace.trace import Trace, current_trace
from rlxweb.trace.trace_errors import add_user_location, trace_error
from rlxweb.trace.traced_array import TracedArray

AxesLike = int | Sequence[int | None] | None


def vmap(
    fn: Callable[..., Any] | Graph,
    in_axes: AxesLike = 0,
    out_axes: int = 0,
    *,
    count: int | None = None,
    inputs: str | Sequence[str] | None = None,
) -> Any:
    """Map a function on one example, or a graph for one, over many examples.

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
        context = f"vmap of graph '{fn.name}'"
        if count is None:
            problem = "the number of examples is missing"
            hint = "pass count, for example vmap(graph, count=8)"
            raise UsageError(context, problem, hint=hint)
        return vmap_graph(fn, whole_number("count", count, context), inputs, context)
    return InlineFunction(_VmapFunction(fn, in_axes, out_axes))


class _VmapFunction:
    """Mapped function as it runs within a trace: called with traced arguments."""

    def __init__(self, fn: Any, in_axes: AxesLike, out_axes: int) -> None:
        self.__signature__ = callable_signature(fn, "vmap")
        update_wrapper(cast(Any, self), fn, updated=())
        self._fn = fn
        self._context = f"vmap of '{callable_name(fn)}'"
        axes = in_axes if isinstance(in_axes, tuple | list) else (in_axes,)
        if not all(a is None or type(a) is int for a in axes):
            problem = f"in_axes is {shown(in_axes)}"
            raise UsageError(
                self._context,
                problem,
                "in_axes must be an axis, None, or a tuple with an axis or None for "
                "each argument",
            )
        if type(out_axes) is not int:
            problem = f"out_axes is {shown(out_axes)}"
            raise UsageError(self._context, problem, "expected an integer")
        self._in_axes, self._out_axes = in_axes, out_axes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        axes = self._argument_axes(len(args))
        leaves: list[tuple[str, Any, int | None]] = []
        trees = [
            self._flatten_argument(a, n, axes[n], leaves) for n, a in enumerate(args)
        ]
        trace = current_trace()
        if trace is None or not leaves:
            raise trace_error(self._context, "no argument is an array")
        batches = [
            None if axis is None else self._move_batch_axis_first(trace, path, x, axis)
            for path, x, axis in leaves
        ]
        count = self._batch_size(leaves, batches)
        examples = [
            x if batch is None else _placeholder_example(trace, batch)
            for (_, x, _), batch in zip(leaves, batches, strict=True)
        ]
        example_leaves = iter(examples)
        result = self._fn(*(tree.unflatten(example_leaves) for tree in trees), **kwargs)
        pairs = [
            (example, batch)
            for example, batch in zip(examples, batches, strict=True)
            if batch is not None
        ]
        return self._vectorize_result(trace, result, pairs, count)

    def _argument_axes(self, count: int) -> list[int | None]:
        if self._in_axes is None or isinstance(self._in_axes, int):
            return [self._in_axes] * count
        if len(self._in_axes) != count:
            raise trace_error(
                self._context,
                f"got {count} positional arguments",
                f"in_axes has {len(self._in_axes)} entries",
            )
        return list(self._in_axes)

    def _flatten_argument(
        self,
        value: Any,
        position: int,
        axis: int | None,
        leaves: list[tuple[str, Any, int | None]],
    ) -> PyTree:
        named_arrays: list[tuple[str, Any]] = []
        path = f"argument {position}"
        tree = flatten_tree(
            value, path, named_arrays, lambda leaf, leaf_path: IdentityKey(leaf)
        )
        leaves += [(leaf_path, x, axis) for leaf_path, x in named_arrays]
        return tree

    def _move_batch_axis_first(
        self, trace: Trace, path: str, x: Any, axis: int
    ) -> TracedArray:
        """Return an array with its examples along the first axis."""
        array: TracedArray = trace.as_traced(x)
        if not -array.ndim <= axis < array.ndim:
            problem = f"{path} has shape {format_shape(array.shape)}"
            raise trace_error(self._context, problem, f"in_axes selects axis {axis}")
        batch_axis = normalize_axis(axis, array.ndim)
        moved: TracedArray = (
            np.moveaxis(cast(Any, array), batch_axis, 0) if batch_axis else array
        )
        return moved

    def _batch_size(
        self,
        leaves: Sequence[tuple[str, Any, int | None]],
        batches: Sequence[TracedArray | None],
    ) -> int:
        counts = {
            path: batch.shape[0]
            for (path, _, _), batch in zip(leaves, batches, strict=True)
            if batch is not None
        }
        if not counts:
            hint = "set the axis of at least one argument in in_axes"
            problem = "no argument is mapped: in_axes is None for every array"
            raise trace_error(self._context, problem, hint=hint)
        first, *rest = counts.items()
        for path, count in rest:
            if count != first[1]:
                problem = f"{path} has {count} examples, {first[0]} has {first[1]}"
                rule = "all mapped arrays must have the same number of examples"
                raise trace_error(self._context, problem, rule)
        return int(first[1])

    def _vectorize_result(
        self,
        trace: Trace,
        result: Any,
        pairs: Sequence[tuple[TracedArray, TracedArray]],
        count: int,
    ) -> Any:
        result_leaves: list[tuple[str, Any]] = []
        tree = flatten_tree(
            result,
            "result",
            result_leaves,
            lambda leaf_value, path: IdentityKey(leaf_value),
        )
        outputs = [trace.as_traced(leaf) for _, leaf in result_leaves]
        parts = [p for out in outputs for p in _component_tensors(out)]
        examples = [p for leaf, _ in pairs for p in _component_tensors(leaf)]
        batches = [p for _, batch in pairs for p in _component_tensors(batch)]
        try:
            batched_tensors = iter(
                trace.graph.vectorized(parts, examples, batches) if parts else []
            )
        except RlxError as error:
            raise add_user_location(error, self._context) from None
        batched_outputs = []
        for out in outputs:
            re = next(batched_tensors)
            im = None if out.im is None else next(batched_tensors)
            batch = TracedArray(trace, re, im, out.dtype)
            out_axis = normalize_axis(self._out_axes, batch.ndim)
            batched_outputs.append(
                np.moveaxis(cast(Any, batch), 0, out_axis) if out_axis else batch
            )
        return tree.unflatten(iter(batched_outputs))


def _component_tensors(x: TracedArray) -> list[Tensor]:
    return [x.re] if x.im is None else [x.re, x.im]


def _placeholder_example(trace: Trace, batch: TracedArray) -> TracedArray:
    """Return a placeholder for one example; only its shape and dtype matter."""
    g = trace.graph

    def placeholder(part: Tensor) -> Tensor:
        zero = g.constant(False if part.dtype.value == "bool" else 0, part.dtype)
        return g.identity(g.expand(zero, part.shape[1:]))

    im = None if batch.im is None else placeholder(batch.im)
    return TracedArray(trace, placeholder(batch.re), im, batch.dtype)
