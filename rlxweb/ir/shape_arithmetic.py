"""Shape arithmetic: the integer functions that every shape rule is made of.

Pure functions on tuples of ints; strict, so that a rule which forgets a case fails
here with both numbers in the message rather than later in a kernel. Errors raised here
carry no `error_context`: `Graph.apply` fills in op, node and operand types, and what
asks by itself says so with `error_context`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, SupportsIndex

import numpy as np

from rlxweb.core.errors import AttributeRefused, DTypeError, RlxError, ShapeError

Shape = tuple[int, ...]

MAX_RANK = 8
MAX_REPR_CHARS = 60
"""Maximum number of characters of a bad value that an error repeats."""

# What a rule refuses with: `error_context` is filled in by `Graph.apply`.
bad_shape = partial(ShapeError, "")
bad_dtype = partial(DTypeError, "")
bad_attribute = partial(AttributeRefused, "")


@contextmanager
def error_context(context: str) -> Iterator[None]:
    """Context manager that sets what was being done in shape errors that have no
    context.
    """
    try:
        yield
    except RlxError as error:
        error.doing = error.doing or context
        raise


def numel(shape: Sequence[int]) -> int:
    """Number of elements; 1 for rank 0."""
    return math.prod(shape)


def format_shape(shape: Sequence[object]) -> str:
    """Format a shape as RLX prints it: `[4, 15, 384]`."""
    return "[" + ", ".join(str(d) for d in shape) + "]"


def as_integer(value: object, label: str) -> int:
    """Return an integer of any kind, NumPy's too, as int. Errors  ShapeError naming the
    value.
    """
    if type(value) is int:  # nearly all; asking a protocol is slow
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, SupportsIndex):
        raise bad_shape(f"{label} must be an integer, got {short_repr(value)}")
    try:
        return value.__index__()
    except TypeError:  # an array of several
        raise bad_shape(
            f"{label} must be an integer, got {short_repr(value)}"
        ) from None


def as_integers(values: object, label: str) -> tuple[int, ...]:
    """Return one integer or several as a tuple. Errors  ShapeError."""
    elements = as_tuple(values)
    if elements is None:
        raise bad_shape(f"{label} must be an integer, got {short_repr(values)}")
    return tuple(as_integer(value, label) for value in elements)


def as_pair(value: int | Sequence[int]) -> tuple[int, ...]:
    """Return one integer twice, a sequence as a tuple."""
    return (value, value) if isinstance(value, int) else tuple(value)


def short_repr(value: object) -> str:
    """Return a value's repr, shortened: an array in place of a number is not printed
    whole.
    """
    text = " ".join(repr(value).split())
    return (
        text
        if len(text) <= MAX_REPR_CHARS
        else f"{text[:MAX_REPR_CHARS]}… ({type(value).__name__})"
    )


def as_shape(value: SupportsIndex | Iterable[SupportsIndex]) -> Shape:
    """Return a checked shape: non-negative ints, rank at most 8."""
    if type(value) is tuple and len(value) <= MAX_RANK:
        for dim in value:
            if type(dim) is not int or dim < 0:
                break
        else:  # nearly all are a shape already
            return value
    values = as_tuple(value)
    if values is None:
        raise bad_shape(f"a shape must consist of integers, got {short_repr(value)}")
    dims = tuple(as_integer(d, "a dimension") for d in values)
    negative = [d for d in dims if d < 0]
    if negative:
        raise bad_shape(f"a dimension must be >= 0, got {negative[0]} in {dims}")
    if len(dims) > MAX_RANK:
        raise bad_shape(f"the rank is {len(dims)}", f"it must be at most {MAX_RANK}")
    return dims


def as_tuple(value: object) -> tuple[Any, ...] | None:
    """Return one value or several as a tuple; None for text and what is no
    collection.
    """
    if type(value) is tuple:
        return value
    if isinstance(value, np.ndarray):
        return (value[()],) if value.ndim == 0 else tuple(value)
    if isinstance(value, SupportsIndex):
        return (value,)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return None
    return tuple(value)


def normalize_axis(axis: int, rank: int) -> int:
    """Return `axis` counted from the front; ShapeError when outside [-rank, rank)."""
    axis = as_integer(axis, "an axis")
    if not -rank <= axis < rank:
        raise bad_shape(
            f"axis {axis} is out of range for rank {rank}",
            f"expected {-rank} to {rank - 1}"
            if rank
            else "an array of rank 0 has no axes",
        )
    return axis % rank if rank else 0


def normalize_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front, in their order; ShapeError for a
    duplicate.
    """
    normalized = tuple(normalize_axis(a, rank) for a in axes)
    if normalized and not rank:
        raise bad_shape(f"axis {axes[0]} of rank 0", "an array of rank 0 has no axes")
    if len(set(normalized)) != len(normalized):
        raise bad_shape(f"axes {tuple(axes)} name the same axis twice")
    return normalized


def normalize_sorted_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return sorted, distinct axes counted from the front."""
    normalized = tuple(normalize_axis(a, rank) for a in axes)
    if len(set(normalized)) != len(normalized):
        raise bad_shape(f"axes {tuple(axes)} name the same axis twice")
    return tuple(sorted(normalized))


def broadcast(*shapes: Sequence[int]) -> Shape:
    """Broadcast all shapes, right-aligned as in NumPy."""
    rank = max((len(s) for s in shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for index, dim in enumerate(shape, rank - len(shape)):
            if dim == 1:
                continue
            if out[index] not in (1, dim):
                text = " with ".join(format_shape(s) for s in shapes)
                raise bad_shape(
                    f"cannot broadcast {text}",
                    f"dimension {index - rank} is {out[index]} in one shape and {dim} "
                    "in another",
                    "reshape or expand one of the operands",
                )
            out[index] = dim
    return tuple(out)


def solve_expand(shape: Sequence[int], target: Sequence[int]) -> Shape:
    """Broadcast `shape` to `target`; a -1 of `target` leaves that dimension as it
    is.
    """
    if any(d < -1 for d in target):
        raise bad_shape(f"a dimension must be >= -1, got {tuple(target)}")
    new_axes = len(target) - len(shape)
    if -1 in target[: max(new_axes, 0)]:
        raise bad_shape(
            f"cannot expand {format_shape(shape)} to {format_shape(target)}",
            f"-1 keeps an existing dimension, but dimension {target.index(-1)} is new",
            "pass the size of each new dimension",
        )
    resolved = [
        shape[index - new_axes] if d == -1 else d for index, d in enumerate(target)
    ]
    try:
        return broadcast(shape, as_shape(resolved))
    except ShapeError as error:
        error.problem = f"cannot expand {format_shape(shape)} to {format_shape(target)}"
        error.rule = (
            "aligned from the right, dimensions must be equal or one of them must be 1"
        )
        error.hint = "reshape the tensor first so that its axes line up"
        raise


def solve_reshape(shape: Sequence[int], target: Sequence[int]) -> Shape:
    """Return `target` with its single -1 solved; the element counts must agree."""
    total = numel(shape)
    unknown_axes = [i for i, d in enumerate(target) if d == -1]
    if any(d < -1 for d in target):
        raise bad_shape(f"a dimension must be >= -1, got {tuple(target)}")
    if len(unknown_axes) > 1:
        raise bad_shape(f"only one dimension can be -1, got {tuple(target)}")
    if unknown_axes:
        known_total = math.prod(d for d in target if d != -1)
        if known_total == 0 or total % known_total:
            raise bad_shape(
                f"cannot reshape {format_shape(shape)} to {format_shape(target)}",
                f"the number of elements, {total}, must be a multiple of {known_total}"
                ", the product of the other dimensions"
                if known_total
                else "-1 is ambiguous if another dimension is 0",
            )
        target = [total // known_total if d == -1 else d for d in target]
    if numel(target) != total:
        raise bad_shape(
            f"cannot reshape {format_shape(shape)} to {format_shape(target)}",
            f"the shapes have {total} and {numel(target)} elements",
        )
    return as_shape(target)
