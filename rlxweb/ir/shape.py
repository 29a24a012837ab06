"""Shapes: the integer arithmetic every shape rule is made of.

Pure functions on tuples of ints; strict, so that a rule which forgets a case fails
here with both numbers in the message rather than later in a kernel. Errors raised here
carry no `doing`: `Graph.apply` fills in op, node and operand types, and what asks by
itself says so with `doing`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, SupportsIndex

import numpy as np

from rlxweb.errors import AttributeRefused, DTypeError, RlxError, ShapeError

Shape = tuple[int, ...]

MAX_RANK = 8
SHOWN = 60
"""Characters of a bad value that an error repeats."""

# What a rule refuses with: `doing` is filled in by `Graph.apply`.
bad_shape = partial(ShapeError, "")
bad_dtype = partial(DTypeError, "")
bad_attribute = partial(AttributeRefused, "")


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Errors of shapes from within get this as what was being done."""
    try:
        yield
    except RlxError as error:
        error.doing = error.doing or what
        raise


def numel(shape: Sequence[int]) -> int:
    """Number of elements; 1 for rank 0."""
    return math.prod(shape)


def show(shape: Sequence[object]) -> str:
    """`[4, 15, 384]`, as RLX prints it."""
    return "[" + ", ".join(str(d) for d in shape) + "]"


def as_integer(value: object, what: str) -> int:
    """Any integer, NumPy's too. Errors  ShapeError naming what was given."""
    if type(value) is int:  # nearly all; asking a protocol is slow
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, SupportsIndex):
        raise bad_shape(f"{what} must be an integer, got {short(value)}")
    try:
        return value.__index__()
    except TypeError:  # an array of several
        raise bad_shape(f"{what} must be an integer, got {short(value)}") from None


def short(value: object) -> str:
    """repr, cut: an array given in place of a number is not printed whole."""
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({type(value).__name__})"


def as_shape(value: SupportsIndex | Iterable[SupportsIndex]) -> Shape:
    """A checked shape: non-negative ints, rank at most 8."""
    every = many(value)
    if every is None:
        raise bad_shape(f"a shape is integers, got {short(value)}")
    dims = tuple(as_integer(d, "a dimension") for d in every)
    negative = [d for d in dims if d < 0]
    if negative:
        raise bad_shape(f"a dimension must be >= 0, got {negative[0]} in {dims}")
    if len(dims) > MAX_RANK:
        raise bad_shape(f"rank {len(dims)}", f"rank is at most {MAX_RANK}")
    return dims


def many(value: object) -> tuple[Any, ...] | None:
    """One value or several as a tuple; None for text and what is no collection."""
    if type(value) is tuple:
        return value
    if isinstance(value, np.ndarray):
        return (value[()],) if value.ndim == 0 else tuple(value)
    if isinstance(value, SupportsIndex):
        return (value,)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return None
    return tuple(value)


def normal_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front; ShapeError when outside [-rank, rank)."""
    axis = as_integer(axis, "an axis")
    if not -rank <= axis < rank:
        raise bad_shape(
            f"axis {axis} is outside rank {rank}", f"allowed {-rank} … {rank - 1}"
        )
    return axis % rank if rank else 0


def distinct_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in their order; ShapeError for one named twice."""
    found = tuple(normal_axis(a, rank) for a in axes)
    if found and not rank:
        raise bad_shape(f"axis {axes[0]} of rank 0", "it has no axes")
    if len(set(found)) != len(found):
        raise bad_shape(f"axes {tuple(axes)} name the same axis twice")
    return found


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Sorted, distinct axes counted from the front."""
    found = tuple(normal_axis(a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise bad_shape(f"axes {tuple(axes)} name the same axis twice")
    return tuple(sorted(found))


def broadcast(*shapes: Sequence[int]) -> Shape:
    """NumPy's right-aligned broadcast of all shapes."""
    rank = max((len(s) for s in shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for at, dim in enumerate(shape, rank - len(shape)):
            if dim == 1:
                continue
            if out[at] not in (1, dim):
                text = " with ".join(show(s) for s in shapes)
                raise bad_shape(
                    f"cannot broadcast {text}",
                    f"dimension {at - rank} is {out[at]} on one side and {dim} "
                    "on the other",
                    "reshape or expand one of them",
                )
            out[at] = dim
    return tuple(out)


def solve_expand(shape: Sequence[int], target: Sequence[int]) -> Shape:
    """The broadcast of both; a -1 of `target` leaves that dimension as it is."""
    if any(d < -1 for d in target):
        raise bad_shape(f"a dimension must be >= -1, got {tuple(target)}")
    lead = len(target) - len(shape)
    if -1 in target[: max(lead, 0)]:
        raise bad_shape(
            f"cannot expand {show(shape)} to {show(target)}",
            f"-1 keeps a dimension, and the first {lead} are new",
            "give new dimensions their sizes",
        )
    kept = [shape[at - lead] if d == -1 else d for at, d in enumerate(target)]
    try:
        return broadcast(shape, as_shape(kept))
    except ShapeError as error:
        error.problem = f"cannot expand {show(shape)} to {show(target)}"
        error.rule = "right-aligned, each dimension must be 1 or the target's"
        error.hint = "reshape it first so that the axes line up"
        raise


def solve_reshape(shape: Sequence[int], target: Sequence[int]) -> Shape:
    """`target` with its single -1 solved; the element counts must agree."""
    total = numel(shape)
    wild = [i for i, d in enumerate(target) if d == -1]
    if any(d < -1 for d in target):
        raise bad_shape(f"a dimension must be >= -1, got {tuple(target)}")
    if len(wild) > 1:
        raise bad_shape(f"only one -1 can be solved, got {tuple(target)}")
    if wild:
        rest = math.prod(d for d in target if d != -1)
        if rest == 0 or total % rest:
            raise bad_shape(
                f"cannot reshape {show(shape)} to {show(target)}",
                f"{total} elements do not divide into {rest}",
            )
        target = [total // rest if d == -1 else d for d in target]
    if numel(target) != total:
        raise bad_shape(
            f"cannot reshape {show(shape)} to {show(target)}",
            f"{total} elements against {numel(target)}",
        )
    return as_shape(target)
