"""Converters of sequence and optional ops, which become Python lists and None during
conversion.
"""

from __future__ import annotations

import numpy as np

from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts
from rlxweb.onnx.model_records import GraphRecord
from rlxweb.onnx.reshape_transpose_slice import split_axis, squeeze_axes, stack_values


def _resolve_position(
    ctx: ConversionContext, xs: list[Value], index: Value, extra: int = 0
) -> int:
    """Return a nonnegative position in a sequence; up to `extra` positions past its
    last are allowed.
    """
    position = int(ctx.require_number(index, "the position"))
    if not -len(xs) <= position < len(xs) + extra:
        ctx.raise_invalid_model(
            f"position {position} is out of range",
            f"the sequence has {len(xs)} elements",
        )
    return position + len(xs) if position < 0 else position


def _require_list(ctx: ConversionContext, xs: Value) -> list[Value]:
    if not isinstance(xs, list):
        ctx.raise_invalid_model("input 0 is not a sequence")
    return xs


@converts("SequenceConstruct")
def _sequence_construct(ctx: ConversionContext, *xs: Value) -> list[Value]:
    return list(xs)


@converts("SequenceEmpty")
def _sequence_empty(ctx: ConversionContext, *, dtype: int = 1) -> list[Value]:
    return []


@converts("SequenceLength")
def _sequence_length(ctx: ConversionContext, xs: list[Value]) -> Tensor:
    return ctx.graph.add_constant(np.array(len(_require_list(ctx, xs)), np.int64))


@converts("SequenceAt")
def _sequence_at(ctx: ConversionContext, xs: list[Value], position: Tensor) -> Value:
    return _require_list(ctx, xs)[_resolve_position(ctx, xs, position)]


@converts("SequenceInsert")
def _sequence_insert(
    ctx: ConversionContext, xs: list[Value], x: Value, position: Tensor | None = None
) -> list[Value]:
    index = (
        len(_require_list(ctx, xs))
        if position is None
        else _resolve_position(ctx, xs, position, extra=1)
    )
    return [*xs[:index], x, *xs[index:]]


@converts("SequenceErase")
def _sequence_erase(
    ctx: ConversionContext, xs: list[Value], position: Tensor | None = None
) -> list[Value]:
    index = (
        len(_require_list(ctx, xs)) - 1
        if position is None
        else _resolve_position(ctx, xs, position)
    )
    return [x for n, x in enumerate(xs) if n != index]


@converts("ConcatFromSequence")
def _concat_from_sequence(
    ctx: ConversionContext, xs: list[Value], *, axis: int, new_axis: int = 0
) -> Tensor:
    if not _require_list(ctx, xs):
        ctx.raise_unsupported(
            "the sequence is empty", "the shape of the result is unknown"
        )
    return stack_values(ctx, xs, axis) if new_axis else ctx.graph.concat(xs, axis)


@converts("SplitToSequence")
def _split_to_sequence(
    ctx: ConversionContext,
    x: Tensor,
    split: Tensor | None = None,
    *,
    axis: int = 0,
    keepdims: int = 1,
) -> list[Value]:
    axis = normalize_axis(axis, x.rank)
    size = x.shape[axis]
    sizes = (1,) * size if split is None else ctx.require_ints(split, "the sizes")
    if split is not None and not split.rank:
        (part_size,) = sizes
        if part_size <= 0:
            ctx.raise_invalid_model(
                f"the part size is {part_size}", "must be at least 1"
            )
        sizes = tuple(
            min(part_size, size - start) for start in range(0, size, part_size)
        )
    chunks = split_axis(ctx, x, axis, sizes)
    if split is None and not keepdims:
        return [squeeze_axes(ctx, part, (axis,)) for part in chunks]
    return list(chunks)


@converts("Optional")
def _optional(ctx: ConversionContext, x: Value = None, *, type: object = None) -> Value:
    return x


@converts("OptionalGetElement")
def _optional_get_element(ctx: ConversionContext, x: Value = None) -> Value:
    if x is None:
        ctx.raise_invalid_model("the optional input has no value")
    return x


@converts("OptionalHasElement")
def _optional_has_element(ctx: ConversionContext, x: Value = None) -> Tensor:
    return ctx.graph.add_constant(np.array(x is not None))


@converts("SequenceMap")
def _sequence_map(
    ctx: ConversionContext, xs: list[Value], *others: Value, body: GraphRecord
) -> tuple[list[Value], ...]:
    operands = (_require_list(ctx, xs), *others)
    lengths = {len(operand) for operand in operands if isinstance(operand, list)}
    if len(lengths) != 1:
        ctx.raise_invalid_model(
            f"the sequences have lengths {sorted(lengths)}",
            "the lengths must be equal",
        )
    results = [
        ctx.convert_body(
            body, [x[index] if isinstance(x, list) else x for x in operands]
        )
        for index in range(len(xs))
    ]
    return tuple(
        [outputs[index] for outputs in results] for index in range(len(body.outputs))
    )
