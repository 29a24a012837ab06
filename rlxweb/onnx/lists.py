"""Sequences and optionals: lists of Python, and None, while a model is converted."""

from __future__ import annotations

import numpy as np

from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, Value, converts
from rlxweb.onnx.movement import parts, squeezed, stacked
from rlxweb.onnx.records import GraphRecord


def _place(call: Call, xs: list[Value], at: Value, more: int = 0) -> int:
    """A position in a sequence from the front; `more` than its last may be named."""
    position = int(call.number(at, "the position"))
    if not -len(xs) <= position < len(xs) + more:
        call.contradict(f"position {position}", f"the sequence has {len(xs)} elements")
    return position + len(xs) if position < 0 else position


def _as_list(call: Call, xs: Value) -> list[Value]:
    if not isinstance(xs, list):
        call.contradict("its input is no sequence")
    return xs


@converts("SequenceConstruct")
def _construct(call: Call, *xs: Value) -> list[Value]:
    return list(xs)


@converts("SequenceEmpty")
def _empty(call: Call, *, dtype: int = 1) -> list[Value]:
    return []


@converts("SequenceLength")
def _length(call: Call, xs: list[Value]) -> Tensor:
    return call.g.hold(np.array(len(_as_list(call, xs)), np.int64))


@converts("SequenceAt")
def _at(call: Call, xs: list[Value], at: Tensor) -> Value:
    return _as_list(call, xs)[_place(call, xs, at)]


@converts("SequenceInsert")
def _insert(
    call: Call, xs: list[Value], x: Value, at: Tensor | None = None
) -> list[Value]:
    place = len(_as_list(call, xs)) if at is None else _place(call, xs, at, more=1)
    return [*xs[:place], x, *xs[place:]]


@converts("SequenceErase")
def _erase(call: Call, xs: list[Value], at: Tensor | None = None) -> list[Value]:
    place = len(_as_list(call, xs)) - 1 if at is None else _place(call, xs, at)
    return [x for n, x in enumerate(xs) if n != place]


@converts("ConcatFromSequence")
def _concat(call: Call, xs: list[Value], *, axis: int, new_axis: int = 0) -> Tensor:
    if not _as_list(call, xs):
        call.refuse("the sequence is empty", "the shape of the result is not known")
    return stacked(call, xs, axis) if new_axis else call.g.concat(xs, axis)


@converts("SplitToSequence")
def _split(
    call: Call,
    x: Tensor,
    split: Tensor | None = None,
    *,
    axis: int = 0,
    keepdims: int = 1,
) -> list[Value]:
    axis = normal_axis(axis, x.rank)
    size = x.shape[axis]
    sizes = (1,) * size if split is None else call.ints(split, "the sizes")
    if split is not None and not split.rank:
        (each,) = sizes
        if each <= 0:
            call.contradict(f"parts of {each} elements", "1 or more are wanted")
        sizes = tuple(min(each, size - at) for at in range(0, size, each))
    found = parts(call, x, axis, sizes)
    if split is None and not keepdims:
        return [squeezed(call, part, (axis,)) for part in found]
    return list(found)


@converts("Optional")
def _optional(call: Call, x: Value = None, *, type: object = None) -> Value:
    return x


@converts("OptionalGetElement")
def _element(call: Call, x: Value = None) -> Value:
    if x is None:
        call.contradict("the optional has no value")
    return x


@converts("OptionalHasElement")
def _has_element(call: Call, x: Value = None) -> Tensor:
    return call.g.hold(np.array(x is not None))


@converts("SequenceMap")
def _map(
    call: Call, xs: list[Value], *more: Value, body: GraphRecord
) -> tuple[list[Value], ...]:
    given = (_as_list(call, xs), *more)
    lengths = {len(one) for one in given if isinstance(one, list)}
    if len(lengths) != 1:
        call.contradict(f"sequences of {sorted(lengths)} elements", "one length")
    turns = [
        call.inner(body, [g[at] if isinstance(g, list) else g for g in given])
        for at in range(len(xs))
    ]
    return tuple([outs[at] for outs in turns] for at in range(len(body.outputs)))
