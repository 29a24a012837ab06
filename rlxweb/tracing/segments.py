"""checkpoint: functions that a gradient computes again, in place of keeping values."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from rlxweb.errors import UsageError
from rlxweb.given import named
from rlxweb.tracing.traced import Traced
from rlxweb.tracing.trees import Same, flattened


def checkpoint(fn: Any) -> Any:
    """A function as it is, that keeps nothing for its gradient but what it reads.

    A gradient needs what was computed on the way. Of this function none of it is kept:
    it is computed once more when the gradient comes by, which takes the time of the
    function again and the memory of one such function at a time. Of use for the layers
    of a deep network. Results and gradients are the same to the bit.

    >>> loss = lambda w, x: np.sum(rlx.checkpoint(layer)(w, x))
    Errors   UsageError for what is no function
    """
    if not callable(fn):
        given = f"{named(fn)} was given"
        raise UsageError("checkpoint", given, "a function on arrays is wanted")

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        found: list[tuple[str, Any]] = []
        tree = flattened((args, kwargs), "argument", found, lambda v, path: Same(v))
        traced = [one for _, one in found if isinstance(one, Traced)]
        if not traced:
            return fn(*args, **kwargs)
        graph = traced[0].trace.graph
        segment = len(graph)
        given, named_ = tree.built(
            iter([_passed(graph.segment_in, one, segment) for _, one in found])
        )
        ends: list[tuple[str, Any]] = []
        made = flattened(fn(*given, **named_), "result", ends, lambda v, path: Same(v))
        return made.built(
            iter([_passed(graph.segment_out, one, segment) for _, one in ends])
        )

    return call


def _passed(by: Callable[..., Any], x: Any, segment: int) -> Any:
    """An array through an end of a segment."""
    if not isinstance(x, Traced):
        return x
    im = None if x.im is None else by(x.im, segment)
    return Traced(x.trace, by(x.re, segment), im, x.dtype)
