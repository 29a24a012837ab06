"""Converters of If, Loop and Scan: branches are chosen and loops unrolled during
conversion.

What decides must be known, or become known by the values of small inputs. Of an If
whose condition is not, both branches are computed and the values chosen, where their
types are the same; a Loop that may stop early at an unknown place goes on with its
values kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlxweb.core.errors import RlxError
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts
from rlxweb.onnx.model_records import DeclaredValue, GraphRecord
from rlxweb.onnx.reshape_transpose_slice import squeeze_axes, stack_values

MAX_UNROLLED_ITERATIONS = 10_000
"""Maximum number of iterations to which a loop is unrolled."""

MAX_SWITCH_ELEMENTS = 16
"""Maximum number of elements of an integer input whose values choose between branches.
"""

Ints = tuple[int, ...]


@converts("If")
def _if(
    ctx: ConversionContext,
    condition: Tensor,
    *,
    then_branch: GraphRecord,
    else_branch: GraphRecord,
) -> tuple[Value, ...]:
    if ctx.graph.known_array(condition) is None and not _depends_on_few_integers(
        ctx, condition
    ):
        branch_pairs = _convert_both_branches(ctx, then_branch, else_branch)
        if branch_pairs is not None:
            scalar_condition = ctx.graph.reshape(condition, ())
            return tuple(
                a if a is b else ctx.graph.where(scalar_condition, a, b)
                for a, b in branch_pairs
            )
    # Which branch it is has to be known.
    branch = (
        then_branch if ctx.require_number(condition, "the condition") else else_branch
    )
    return tuple(ctx.convert_body(branch, ()))


def _depends_on_few_integers(ctx: ConversionContext, condition: Tensor) -> bool:
    """Return whether a condition depends only on a few integers or bools among the
    inputs of a run.

    Then the model is converted for their values, and one branch is computed.
    """
    inputs = ctx.graph.named("input")
    source_types = [inputs[name].type for name in ctx.graph.source_inputs(condition)]
    return all(
        t.numel <= MAX_SWITCH_ELEMENTS and not t.dtype.is_float for t in source_types
    )


def _convert_both_branches(
    ctx: ConversionContext, then_branch: GraphRecord, else_branch: GraphRecord
) -> list[tuple[Value, Value]] | None:
    """Return the values of both branches, or None if their types differ or one of them
    cannot be converted, perhaps because it is meant for inputs of another shape.
    """
    try:
        branches = (
            ctx.convert_body(branch, ()) for branch in (then_branch, else_branch)
        )
        pairs = list(zip(*branches, strict=True))
    except RlxError:
        return None
    return pairs if all(_has_same_type(a, b) for a, b in pairs) else None


def _has_same_type(a: Value, b: Value) -> bool:
    return a is b or (
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and (a.shape, a.dtype) == (b.shape, b.dtype)
    )


@converts("Loop")
def _loop(
    ctx: ConversionContext,
    max_trip_count: Tensor | None = None,
    condition: Tensor | None = None,
    *state: Value,
    body: GraphRecord,
) -> tuple[Value, ...]:
    max_iterations = (
        None
        if max_trip_count is None
        else int(ctx.require_number(max_trip_count, "the number of iterations"))
    )
    loop_condition = (
        ctx.constant_value(np.array(True)) if condition is None else condition
    )
    carried, scan_output_count = list(state), len(body.outputs) - 1 - len(state)
    scan_values: list[list[Value]] = [[] for _ in range(scan_output_count)]
    iteration = 0
    while max_iterations is None or iteration < max_iterations:
        continues = _should_continue(
            ctx, loop_condition, max_iterations if not scan_output_count else None
        )
        if continues is False:
            break
        _check_iteration(ctx, iteration)
        counter = ctx.graph.add_constant(np.array(iteration, np.int64))
        outputs = ctx.convert_body(body, (counter, loop_condition, *carried))
        next_condition, new_values = outputs[0], outputs[1 : 1 + len(carried)]
        if continues is None:
            new_values = _freeze_after_stop(ctx, loop_condition, new_values, carried)
            next_condition = ctx.graph.where(
                loop_condition, next_condition, loop_condition
            )
        carried = new_values
        loop_condition = ctx.graph.reshape(next_condition, ())
        for collected, value in zip(
            scan_values, outputs[1 + len(carried) :], strict=True
        ):
            collected.append(value)
        iteration += 1
    scan_outputs = body.outputs[1 + len(carried) :]
    return (
        *carried,
        *(
            _stack_iterations(ctx, xs, d)
            for xs, d in zip(scan_values, scan_outputs, strict=True)
        ),
    )


def _should_continue(
    ctx: ConversionContext, loop_condition: Tensor, max_iterations: int | None
) -> bool | None:
    """Return whether there is another iteration, or None if only the device knows,
    which a given `max_iterations` allows.
    """
    if ctx.graph.known_array(loop_condition) is None and max_iterations is not None:
        return None
    return bool(ctx.require_number(loop_condition, "the loop condition"))


def _freeze_after_stop(
    ctx: ConversionContext,
    loop_condition: Tensor,
    new_values: Sequence[Value],
    old_values: Sequence[Value],
) -> list[Value]:
    """Select the new values while the loop continues and the old ones after it
    stopped.
    """
    scalar_condition = ctx.graph.reshape(loop_condition, ())
    if not all(
        _has_same_type(a, b) for a, b in zip(new_values, old_values, strict=True)
    ):
        ctx.raise_unsupported(
            "a loop-carried value changes its shape or dtype, or is not a tensor",
            "if the device computes the loop condition, each loop-carried value must "
            "be a tensor that keeps its shape and dtype",
        )
    return [
        a if a is b else ctx.graph.where(scalar_condition, a, b)
        for a, b in zip(new_values, old_values, strict=True)
    ]


def _check_iteration(ctx: ConversionContext, iteration: int) -> None:
    if iteration >= MAX_UNROLLED_ITERATIONS:
        ctx.raise_unsupported(
            f"the loop runs more than {iteration:,} iterations",
            f"at most {MAX_UNROLLED_ITERATIONS:,} are supported",
        )


def _stack_iterations(
    ctx: ConversionContext, xs: list[Value], declared: DeclaredValue
) -> Tensor:
    """Stack the values of all iterations along a new first axis."""
    if xs:
        return stack_values(ctx, xs)
    value_type = declared.type
    dims = None if value_type is None else value_type.dims
    if value_type is None or dims is None or any(not isinstance(d, int) for d in dims):
        ctx.raise_unsupported(
            "the loop runs 0 iterations, and the model does not declare the shape "
            f"of '{declared.name}'",
            "the shape of an empty result must be declared",
        )
    empty: Tensor = ctx.constant_value(np.zeros((0, *dims), value_type.dtype))
    return empty


@converts("Scan", since=9)
def _scan(
    ctx: ConversionContext,
    *operands: Value,
    body: GraphRecord,
    num_scan_inputs: int,
    scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None,
    scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None,
) -> tuple[Value, ...]:
    state_count = len(operands) - num_scan_inputs
    state, scan_inputs = list(operands[:state_count]), operands[state_count:]
    if state_count < 0 or not scan_inputs:
        ctx.raise_invalid_model(
            f"num_scan_inputs is {num_scan_inputs}", f"must be 1 to {len(operands)}"
        )
    axes = scan_input_axes or (0,) * len(scan_inputs)
    axes = tuple(
        normalize_axis(a, x.rank) for a, x in zip(axes, scan_inputs, strict=True)
    )
    directions = scan_input_directions or (0,) * len(scan_inputs)
    lengths = {x.shape[a] for x, a in zip(scan_inputs, axes, strict=True)}
    if len(lengths) != 1:
        ctx.raise_invalid_model(
            f"the scanned axes have lengths {sorted(lengths)}",
            "the lengths must be equal",
        )
    (length,) = lengths
    scan_output_count = len(body.outputs) - state_count
    scan_values: list[list[Value]] = [[] for _ in range(scan_output_count)]
    for iteration in range(length):
        _check_iteration(ctx, iteration)
        indices = (
            (length - 1 - iteration) if is_reversed else iteration
            for is_reversed in directions
        )
        elements = [
            squeeze_axes(ctx, ctx.graph.narrow(x, a, index, 1), (a,))
            for x, a, index in zip(scan_inputs, axes, indices, strict=True)
        ]
        outputs = ctx.convert_body(body, (*state, *elements))
        state = outputs[:state_count]
        for collected, value in zip(scan_values, outputs[state_count:], strict=True):
            collected.append(value)
    output_axes = scan_output_axes or (0,) * scan_output_count
    is_reversed = scan_output_directions or (0,) * scan_output_count
    return (
        *state,
        *(
            stack_values(ctx, xs[::-1] if b else xs, axis)
            for xs, axis, b in zip(scan_values, output_axes, is_reversed, strict=True)
        ),
    )


@converts("Scan", until=8)
def _scan_v8(
    ctx: ConversionContext,
    *inputs: Value,
    body: GraphRecord,
    num_scan_inputs: int,
    directions: Ints | None = None,
) -> tuple[Value, ...]:
    """Convert Scan of opset 8, in which every input has a leading batch axis; each item
    is scanned separately.
    """
    lengths, *operands = inputs
    if lengths is not None:
        ctx.raise_unsupported(
            "input sequence_lens is not supported",
            "all sequences of a batch must have the same length",
        )
    batch = operands[0].shape[0]
    results = []
    for index in range(batch):
        batch_item = [
            squeeze_axes(ctx, ctx.graph.narrow(x, 0, index, 1), (0,)) for x in operands
        ]
        results.append(
            _scan(
                ctx,
                *batch_item,
                body=body,
                num_scan_inputs=num_scan_inputs,
                scan_input_directions=directions,
            )
        )
    return tuple(stack_values(ctx, values) for values in zip(*results, strict=True))
