"""Gradient checkpointing: functions whose intermediate values a gradient recomputes
instead of keeping them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.errors import UsageError
from rlxweb.trace.pytrees import IdentityKey, flatten_tree
from rlxweb.trace.traced_array import TracedArray


def checkpoint(fn: Any) -> Any:
    """Wrap a function so that gradients recompute its intermediate values instead of
    keeping them.

    A gradient needs what was computed on the way. Of this function none of it is kept:
    it is computed once more when the gradient comes by, which takes the time of the
    function again and the memory of one such function at a time. Of use for the layers
    of a deep network. Results and gradients are the same to the bit.

    >>> loss = lambda w, x: np.sum(rlx.checkpoint(layer)(w, x))
    Errors   UsageError for what is no function
    """
    if not callable(fn):
        problem = f"got {describe_type(fn)}"
        raise UsageError(
            "checkpoint", problem, "expected a function that accepts arrays"
        )

    @wraps(fn)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        argument_leaves: list[tuple[str, Any]] = []
        tree = flatten_tree(
            (args, kwargs),
            "argument",
            argument_leaves,
            lambda leaf_value, path: IdentityKey(leaf_value),
        )
        traced_arrays = [
            leaf for _, leaf in argument_leaves if isinstance(leaf, TracedArray)
        ]
        if not traced_arrays:
            return fn(*args, **kwargs)
        graph = traced_arrays[0].trace.graph
        segment = len(graph)
        marked_args, marked_kwargs = tree.unflatten(
            iter(
                [
                    _mark_boundary(graph.segment_in, leaf, segment)
                    for _, leaf in argument_leaves
                ]
            )
        )
        result_leaves: list[tuple[str, Any]] = []
        result_tree = flatten_tree(
            fn(*marked_args, **marked_kwargs),
            "result",
            result_leaves,
            lambda leaf_value, path: IdentityKey(leaf_value),
        )
        return result_tree.unflatten(
            iter(
                [
                    _mark_boundary(graph.segment_out, leaf, segment)
                    for _, leaf in result_leaves
                ]
            )
        )

    return checkpointed


def _mark_boundary(mark: Callable[..., Any], x: Any, segment: int) -> Any:
    """Pass an array through a boundary of a checkpoint segment; other values pass
    unchanged.
    """
    if not isinstance(x, TracedArray):
        return x
    im = None if x.im is None else mark(x.im, segment)
    return TracedArray(x.trace, mark(x.re, segment), im, x.dtype)
